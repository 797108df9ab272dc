"""A small bag for players and nodes."""

import numpy as np
from clouds import correspondences, point_cloud, time_message
from geometry_msgs.msg import PoseStamped
from mcap.writer import Writer
from poses import NANOSECONDS, matrix
from rclpy.serialization import serialize_message
from ros_peer import transform
from sensor_msgs.msg import PointCloud2
from tf2_msgs.msg import TFMessage

SCANS = "/correspondences_3d3d"
START, PERIOD, COUNT = 1000 * NANOSECONDS, NANOSECONDS // 10, 20
TYPES = {"/tf": TFMessage, "/tf_static": TFMessage, "/ground_truth": PoseStamped, SCANS: PointCloud2}


def rotation(yaw):
    """Quaternion (x, y, z, w) of a turn about z."""
    return 0.0, 0.0, np.sin(yaw / 2), np.cos(yaw / 2)


def write_bag(path, truth_offset=0.0):
    """A straight drive with exact correspondences; odometry that started elsewhere than the map."""
    random = np.random.default_rng(7)
    landmarks = random.uniform([-20, -20, 0], [20, 20, 6], (300, 3))
    base_lidar = matrix((0.3, 0.0, 0.8), rotation(0.1))
    map_odom = matrix((2.0, -1.0, 0.0), rotation(0.4))
    with path.open("wb") as file:
        writer = Writer(file)
        writer.start()
        channels = {}
        for topic, kind in TYPES.items():
            name = f"{kind.__module__.split('.')[0]}/msg/{kind.__name__}"
            schema = writer.register_schema(name, "ros2msg", b"")
            channels[topic] = writer.register_channel(topic, "cdr", schema)

        def write(topic, stamp, message):
            writer.add_message(channels[topic], stamp, serialize_message(message), stamp)

        mount = transform("base_link", "lidar", START, base_lidar[:3, 3], rotation(0.1))
        write("/tf_static", START, TFMessage(transforms=[mount]))
        for index in range(COUNT):
            stamp = START + index * PERIOD
            place, turn = (0.1 * index, 0.02 * index, 0.0), rotation(0.01 * index)
            write("/tf", stamp, TFMessage(transforms=[transform("odom", "base_link", stamp, place, turn)]))
            map_base = map_odom @ matrix(place, turn)
            truth = PoseStamped()
            truth.header.frame_id, truth.header.stamp = "map", time_message(stamp)
            p, q = truth.pose.position, truth.pose.orientation
            p.x, p.y, p.z = (float(value) for value in map_base[:3, 3])
            p.x += truth_offset
            q.x, q.y, q.z, q.w = map(float, rotation(0.4 + 0.01 * index))
            write("/ground_truth", stamp, truth)
            lidar_map = np.linalg.inv(map_base @ base_lidar)
            seen = landmarks @ lidar_map[:3, :3].T + lidar_map[:3, 3]
            write(SCANS, stamp, point_cloud(correspondences(seen, landmarks), stamp))
        writer.finish()
    return path


def seconds(stamp):
    """Of a builtin_interfaces/Time, after the start of the bag."""
    return stamp.sec + stamp.nanosec / NANOSECONDS - START / NANOSECONDS
