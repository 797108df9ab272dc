"""Strict stand-in for ROS 2's `launch_ros`; see the one for `launch`."""
