"""Stand-ins for launch.conditions."""

from .substitutions import perform


class Condition:
    """Decides whether an action is executed."""

    def evaluate(self, context):
        """True or false."""
        raise NotImplementedError


class IfCondition(Condition):
    """True if the text says so."""

    def __init__(self, predicate_expression):
        self._expression = predicate_expression

    def evaluate(self, context):
        text = perform(context, self._expression).strip().lower()
        if text in ("true", "1"):
            return True
        if text in ("false", "0"):
            return False
        raise ValueError(f"neither true nor false: '{text}'")
