"""Stand-ins for launch.launch_description_sources."""

import runpy

from .substitutions import perform


class PythonLaunchDescriptionSource:
    """A launch file in Python."""

    def __init__(self, launch_file_path):
        self._path = launch_file_path

    def get_launch_description(self, context):
        """Runs the file."""
        return runpy.run_path(perform(context, self._path))["generate_launch_description"]()
