"""tools/ros/play_bag.py: what it plays, and that its judgement of a node is right both ways."""

import sys

import numpy as np
import pytest
from clouds import correspondences, point_cloud, time_message
from geometry_msgs.msg import PoseStamped
from mcap.writer import Writer
from node_process import ROOT
from poses import NANOSECONDS, difference, matrix, transform_matrix
from rclpy.qos import qos_profile_sensor_data
from rclpy.serialization import serialize_message
from ros_peer import LATCHED, transform, wait_until
from sensor_msgs.msg import PointCloud2
from tf2_msgs.msg import TFMessage

PLAYER = [sys.executable, ROOT / "tools/ros/play_bag.py"]
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


def test_bytes_times_and_latching(processes, peer, tmp_path):
    """Messages arrive as they are in the bag; /tf_static also for who comes later; time runs at the rate."""
    clouds, odometry = peer.collect(PointCloud2, SCANS), peer.collect_tf()
    options = ["--rate", "2", "--sensors-reliable", "--wait-for", SCANS]
    player = processes([*PLAYER, write_bag(tmp_path / "bag.mcap"), *options])
    latched = peer.collect(TFMessage, "/tf_static", LATCHED)
    wait_until(lambda: odometry and latched, 10.0)
    late = peer.collect(TFMessage, "/tf_static", LATCHED)
    wait_until(lambda: late)
    assert player.wait(10.0) == 0, player.log
    assert late[0] == latched[0]
    assert clouds[-1].header.stamp == time_message(START + (COUNT - 1) * PERIOD)
    assert clouds[-1].width == 300
    last = transform_matrix(odometry[-1].transform)
    assert difference(last, matrix((1.9, 0.38, 0.0), rotation(0.19))) == pytest.approx((0.0, 0.0), abs=1e-6)


@pytest.mark.parametrize("truth_offset, verdict", [(0.0, 0), (1.0, 1)])
def test_judgement(start_node, processes, tmp_path, truth_offset, verdict):
    """A node that is right passes, and fails against a truth that is a metre off."""
    start_node(parameters={"use_sim_time": True})
    player = processes([*PLAYER, write_bag(tmp_path / "bag.mcap", truth_offset), "--listen", SCANS])
    assert player.wait(30.0) == verdict, player.log
    assert "poses" in player.log
    assert ("WRONG" in player.log) == bool(verdict)


def test_silence_is_a_failure(processes, peer, tmp_path):
    """No node, or one that says nothing."""
    peer.collect(PointCloud2, SCANS, qos_profile_sensor_data)
    player = processes([*PLAYER, write_bag(tmp_path / "bag.mcap"), "--rate", "4", "--listen", SCANS])
    assert player.wait(30.0) == 1
    assert "no pose was published" in player.log
