"""Starts the localization node, and RViz if wanted.

ros2 launch flashreg localization.launch.py map_path:=/maps/yard.pcd points_topic:=/lidar/points
"""

import os

from ament_index_python.packages import get_package_share_directory
from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, OpaqueFunction
from launch.conditions import IfCondition
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue

CONFIG = os.path.join(get_package_share_directory('flashreg'), 'config')

ARGUMENTS = [
    DeclareLaunchArgument('namespace', default_value='', description='namespace of the node and its topics'),
    DeclareLaunchArgument('use_sim_time', default_value='false', description='take the time from /clock',
                          choices=['true', 'false']),
    DeclareLaunchArgument('config_file', default_value=os.path.join(CONFIG, 'localizer.yaml'),
                          description='parameter file with all parameters'),
    DeclareLaunchArgument('presets', default_value='',
                          description="files of flashreg's config folder that change some of them, in order "
                                      'and separated by commas, such as outdoor,jetson'),
    DeclareLaunchArgument('params_file', default_value='', description='parameter file of your own, applied last'),
    DeclareLaunchArgument('map_path', default_value='',
                          description='map.path, the PCD or PLY file of the map; empty: as the files say'),
    DeclareLaunchArgument('map_topic', default_value='map', description='topic of the map where it is not a file'),
    DeclareLaunchArgument('points_topic', default_value='points', description='topic of the raw clouds'),
    DeclareLaunchArgument('map_frame', default_value='', description='frames.map; empty: as the files say'),
    DeclareLaunchArgument('odom_frame', default_value='', description='frames.odom; empty: as the files say'),
    DeclareLaunchArgument('base_frame', default_value='', description='frames.base; empty: as the files say'),
    DeclareLaunchArgument('correspondences', default_value='correspondences_3d3d',
                          description='topic of the 3D-3D correspondences'),
    DeclareLaunchArgument('correspondences_2d3d', default_value='correspondences_2d3d',
                          description='topic of the 2D-3D correspondences: a camera and the map'),
    DeclareLaunchArgument('correspondences_2d2d', default_value='correspondences_2d2d',
                          description='topic of the 2D-2D correspondences: two views'),
    DeclareLaunchArgument('camera_info', default_value='camera_info',
                          description='topic of the calibration of the camera'),
    DeclareLaunchArgument('log_level', default_value='info', description='least severity that is logged',
                          choices=['debug', 'info', 'warn', 'error', 'fatal']),
    DeclareLaunchArgument('rviz', default_value='false', description='start RViz too', choices=['true', 'false']),
]


def start_node(context):
    """The node; in a function because the parameters depend on the arguments' values."""
    def value(name):
        return LaunchConfiguration(name).perform(context)

    files = [value('config_file')]
    files += [os.path.join(CONFIG, f'{name.strip()}.yaml') for name in value('presets').split(',') if name.strip()]
    files += [value('params_file')] if value('params_file') else []
    for file in files:
        # launch only warns of such a file and starts the node without it
        if not os.path.isfile(file):
            raise RuntimeError(f"parameter file '{file}' does not exist")

    overrides = {'use_sim_time': ParameterValue(LaunchConfiguration('use_sim_time'), value_type=bool)}
    if value('map_path'):
        overrides['map.path'] = ParameterValue(LaunchConfiguration('map_path'), value_type=str)
    for frame in ('map', 'odom', 'base'):
        if value(f'{frame}_frame'):
            overrides[f'frames.{frame}'] = ParameterValue(LaunchConfiguration(f'{frame}_frame'), value_type=str)

    return [
        Node(
            package='flashreg',
            executable='flashreg_node',
            name='flashreg',
            namespace=value('namespace'),
            output='screen',
            parameters=[*files, overrides],
            remappings=[
                # relative, so that each namespace has its own tree of transforms
                ('/tf', 'tf'),
                ('/tf_static', 'tf_static'),
                ('points', value('points_topic')),
                ('map', value('map_topic')),
                ('correspondences_3d3d', value('correspondences')),
                *((topic, value(topic)) for topic in ('correspondences_2d3d', 'correspondences_2d2d', 'camera_info')),
            ],
            ros_arguments=['--log-level', value('log_level')],
        ),
    ]


def generate_launch_description():
    """Called by ros2 launch."""
    return LaunchDescription([
        *ARGUMENTS,
        OpaqueFunction(function=start_node),
        Node(
            package='rviz2',
            executable='rviz2',
            namespace=LaunchConfiguration('namespace'),
            arguments=['-d', os.path.join(CONFIG, 'flashreg.rviz')],
            parameters=[{'use_sim_time': ParameterValue(LaunchConfiguration('use_sim_time'), value_type=bool)}],
            remappings=[
                ('/tf', 'tf'),
                ('/tf_static', 'tf_static'),
                ('points', LaunchConfiguration('points_topic')),
                ('correspondences_3d3d', LaunchConfiguration('correspondences')),
            ],
            condition=IfCondition(LaunchConfiguration('rviz')),
        ),
    ])
