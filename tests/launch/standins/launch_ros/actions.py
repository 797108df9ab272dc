"""Stand-ins for launch_ros.actions."""

import os
import tempfile

import yaml
from ament_index_python.packages import get_package_prefix
from launch.actions import Action
from launch.substitutions import Substitution, perform

from .parameter_descriptions import ParameterValue

OUTPUTS = {"screen", "log", "both", "own_log", "full"}

# Accepted by the real Node, which hands them on to ExecuteProcess and ExecuteLocal.
NOT_IMITATED = {
    "additional_env",
    "cached_output",
    "cwd",
    "emulate_tty",
    "env",
    "exec_name",
    "log_cmd",
    "on_exit",
    "output_format",
    "prefix",
    "respawn",
    "respawn_delay",
    "respawn_max_retries",
    "shell",
    "sigkill_timeout",
    "sigterm_timeout",
}


class Node(Action):
    """A ROS node to be started. `command` is what the real one would execute."""

    def __init__(
        self,
        *,
        executable,
        package=None,
        name=None,
        namespace=None,
        parameters=None,
        remappings=None,
        ros_arguments=None,
        arguments=None,
        output="log",
        condition=None,
        **others,
    ):
        super().__init__(condition=condition)
        for argument in others:
            if argument in NOT_IMITATED:
                raise NotImplementedError(f"Node({argument}=...)")
            raise TypeError(f"Node() got an unexpected keyword argument '{argument}'")
        if output not in OUTPUTS:
            raise ValueError(f"output='{output}' is none of {sorted(OUTPUTS)}")
        if not (parameters is None or isinstance(parameters, list)):
            raise TypeError(f"parameters must be a list: {parameters!r}")
        self._package, self._executable = package, executable
        self._name, self._namespace = name, namespace
        self._parameters, self._remappings = parameters or [], remappings or []
        self._ros_arguments, self._arguments = ros_arguments or [], arguments or []
        self.command, self.parameter_files = [], []

    def execute(self, context):
        self.command = [self._program(context)]
        self.command += [perform(context, word) for word in self._arguments]
        self.command += ["--ros-args"]
        self.command += [perform(context, word) for word in self._ros_arguments]
        full_name = "/**"
        if self._name is not None:
            name = perform(context, self._name)
            self.command += ["-r", f"__node:={name}"]
        if self._namespace is not None:
            namespace = perform(context, self._namespace)
            namespace = namespace if namespace.startswith("/") else "/" + namespace
            self.command += ["-r", f"__ns:={namespace}"]
            if self._name is not None:
                full_name = f"{namespace.rstrip('/')}/{name}"
        for source in self._parameters:
            if isinstance(source, dict):
                file = self._write(full_name, {key: _value(context, value) for key, value in source.items()})
            else:
                file = perform(context, source)
                if not os.path.isfile(file):
                    raise RuntimeError(f"parameter file '{file}' is not a file")
            self.command += ["--params-file", file]
        for source, target in self._remappings:
            self.command += ["-r", f"{perform(context, source)}:={perform(context, target)}"]

    def _program(self, context):
        executable = perform(context, self._executable)
        if self._package is None:
            return executable
        package = perform(context, self._package)
        path = os.path.join(get_package_prefix(package), "lib", package, executable)
        if not os.access(path, os.X_OK):
            raise RuntimeError(f"executable '{executable}' not found in the libexec directory of '{package}': {path}")
        return path

    def _write(self, full_name, parameters):
        with tempfile.NamedTemporaryFile("w", prefix="launch_params_", delete=False) as file:
            yaml.safe_dump({full_name: {"ros__parameters": parameters}}, file)
        self.parameter_files.append(file.name)
        return file.name


def _value(context, value):
    if isinstance(value, ParameterValue):
        return value.evaluate(context)
    if isinstance(value, (str, Substitution)):
        # launch_ros takes a bare text for YAML
        return yaml.safe_load(perform(context, value))
    if isinstance(value, (bool, int, float)):
        return value
    raise NotImplementedError(f"parameter value {value!r}")
