"""Stand-ins for launch.substitutions."""


class Substitution:
    """A text that is known only when the launch file runs."""

    def perform(self, context):
        """Returns the text."""
        raise NotImplementedError


class LaunchConfiguration(Substitution):
    """The value of a launch argument."""

    def __init__(self, variable_name, *, default=None):
        self._name, self._default = variable_name, default

    def perform(self, context):
        name = perform(context, self._name)
        if name in context.launch_configurations:
            return context.launch_configurations[name]
        if self._default is None:
            raise RuntimeError(f"launch configuration '{name}' does not exist")
        return perform(context, self._default)


def perform(context, text):
    """Text of a str, a substitution, or a sequence of these; TypeError for anything else."""
    if isinstance(text, str):
        return text
    if isinstance(text, Substitution):
        return text.perform(context)
    if isinstance(text, (list, tuple)):
        return "".join(perform(context, part) for part in text)
    raise TypeError(f"neither text nor a substitution: {text!r}")
