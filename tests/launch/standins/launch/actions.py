"""Stand-ins for launch.actions."""

from .conditions import Condition
from .launch_description_sources import PythonLaunchDescriptionSource
from .substitutions import perform


class Action:
    """Something a launch description does."""

    def __init__(self, *, condition=None):
        if not (condition is None or isinstance(condition, Condition)):
            raise TypeError(f"not a condition: {condition!r}")
        self._condition = condition

    def visit(self, context):
        """Executes the action if its condition holds; returns the actions that follow from it."""
        if self._condition is not None and not self._condition.evaluate(context):
            return []
        return self.execute(context) or []

    def execute(self, context):
        """What the action does."""
        raise NotImplementedError


class DeclareLaunchArgument(Action):
    """Declares a launch argument and gives it its default."""

    def __init__(self, name, *, default_value=None, description=None, choices=None, condition=None):
        super().__init__(condition=condition)
        for text in (name, description):
            if not (text is None or isinstance(text, str)):
                raise TypeError(f"not a text: {text!r}")
        if choices is not None and isinstance(default_value, str) and default_value not in choices:
            raise RuntimeError(f"default_value '{default_value}' of '{name}' is not in its choices {choices}")
        self.name, self._default, self._choices = name, default_value, choices

    def execute(self, context):
        values = context.launch_configurations
        if self.name not in values:
            if self._default is None:
                raise RuntimeError(f"required launch argument '{self.name}' was not provided")
            values[self.name] = perform(context, self._default)
        if self._choices is not None and values[self.name] not in self._choices:
            raise RuntimeError(f"argument '{self.name}' is '{values[self.name]}', not one of {self._choices}")


class IncludeLaunchDescription(Action):
    """Executes another launch file, whose arguments are those of this one and the ones given here."""

    def __init__(self, launch_description_source, *, launch_arguments=None, condition=None):
        super().__init__(condition=condition)
        if not isinstance(launch_description_source, PythonLaunchDescriptionSource):
            raise TypeError(f"not a source: {launch_description_source!r}")
        self._source, self._arguments = launch_description_source, list(launch_arguments or [])

    def execute(self, context):
        for name, value in self._arguments:
            context.launch_configurations[perform(context, name)] = perform(context, value)
        return self._source.get_launch_description(context).entities


class OpaqueFunction(Action):
    """Calls a Python function that returns further actions."""

    def __init__(self, *, function, args=None, kwargs=None, condition=None):
        super().__init__(condition=condition)
        if not callable(function):
            raise TypeError(f"not a function: {function!r}")
        self._function, self._args, self._kwargs = function, args or [], kwargs or {}

    def execute(self, context):
        return self._function(context, *self._args, **self._kwargs)
