"""Strict stand-in for ROS 2's `launch`: what the files in launch/ use of it, no more.

It exists because `launch` cannot be had from a package registry. Signatures are those of the
real classes: a keyword argument that these refuse is refused here by Python itself, and one that
they accept but that is not imitated raises NotImplementedError.
"""

from .actions import Action


class LaunchContext:
    """Values of the launch arguments."""

    def __init__(self, launch_configurations=None):
        self.launch_configurations = dict(launch_configurations or {})


class LaunchDescription:
    """A list of actions."""

    def __init__(self, initial_entities=None, *, deprecated_reason=None):
        self.entities = list(initial_entities or [])
        if deprecated_reason is not None:
            raise NotImplementedError("deprecated_reason")
        for entity in self.entities:
            if not isinstance(entity, Action):
                raise TypeError(f"not an action: {entity!r}")
