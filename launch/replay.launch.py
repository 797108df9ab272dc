"""Plays a bag to the localization node, and to RViz if wanted, with the bag's time.

ros2 launch flashreg replay.launch.py bag:=drive.mcap map_path:=house.pcd rviz:=true

Arguments of localization.launch.py go on to it. Needs the Python package mcap.
"""

import os
import sys

from ament_index_python.packages import get_package_share_directory
from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, IncludeLaunchDescription, OpaqueFunction
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

LAUNCH = os.path.join(get_package_share_directory('flashreg'), 'launch')

ARGUMENTS = [
    DeclareLaunchArgument('bag', description='MCAP file'),
    DeclareLaunchArgument('rate', default_value='1.0', description='speed, 1 is real time'),
    DeclareLaunchArgument('start', default_value='0.0', description='begin so many seconds into the bag'),
    DeclareLaunchArgument('loop', default_value='false', description='begin anew at the end; time jumps back',
                          choices=['true', 'false']),
    DeclareLaunchArgument('pause_at_end', default_value='true', description='hold the last time on /clock',
                          choices=['true', 'false']),
]

# After the arguments of the node, whose topics it names.
WAIT_FOR = DeclareLaunchArgument(
    'wait_for', default_value=[LaunchConfiguration('points_topic'), ' ', LaunchConfiguration('correspondences')],
    description='begin when those of these topics that the bag has have a subscriber; empty: at once')


def start_player(context):
    """The player; in a function because its words depend on the arguments' values."""
    def value(name):
        return LaunchConfiguration(name).perform(context)

    words = [os.path.join(LAUNCH, 'play_bag.py'), value('bag'), '--rate', value('rate'), '--start', value('start')]
    words += ['--loop'] if value('loop') == 'true' else []
    words += ['--pause-at-end'] if value('pause_at_end') == 'true' else []
    words += ['--wait-for', *value('wait_for').split()] if value('wait_for') else []
    return [Node(executable=sys.executable, arguments=words, output='screen')]


def generate_launch_description():
    """Called by ros2 launch."""
    return LaunchDescription([
        *ARGUMENTS,
        IncludeLaunchDescription(
            PythonLaunchDescriptionSource(os.path.join(LAUNCH, 'localization.launch.py')),
            launch_arguments={'use_sim_time': 'true'}.items(),
        ),
        WAIT_FOR,
        OpaqueFunction(function=start_player),
    ])
