"""Stand-ins for launch_ros.parameter_descriptions."""

import yaml
from launch.substitutions import perform


class ParameterValue:
    """A parameter's value, of a type that is asked for."""

    def __init__(self, value, *, value_type=None):
        # Only a substitution is converted: a plain text is a parameter of type str.
        if isinstance(value, (bool, int, float, str)) and not isinstance(value, value_type or object):
            raise TypeError(f"value='{value}' is not an instance of {value_type}")
        self._value, self._type = value, value_type

    def evaluate(self, context):
        """The value."""
        if isinstance(self._value, (bool, int, float, str)):
            return self._value
        text = perform(context, self._value)
        value = text if self._type is str else yaml.safe_load(text)
        if self._type is float and type(value) is int:
            value = float(value)
        if self._type is not None and type(value) is not self._type:
            raise ValueError(f"'{text}' is not of type {self._type.__name__}")
        return value
