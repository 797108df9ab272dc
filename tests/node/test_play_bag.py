"""launch/play_bag.py: what it plays. tools/ros/judge_node.py: that its judgement of a node is right both ways."""

import signal
import sys

import pytest
from bags import COUNT, PERIOD, SCANS, START, rotation, seconds, write_bag
from clouds import time_message
from geometry_msgs.msg import PoseStamped
from mcap.writer import Writer
from node_process import ROOT
from poses import NANOSECONDS, difference, matrix, transform_matrix
from rclpy.qos import qos_profile_sensor_data
from ros_peer import LATCHED, wait_until
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import PointCloud2
from tf2_msgs.msg import TFMessage

PLAYER = [sys.executable, ROOT / "launch/play_bag.py"]
JUDGE = [sys.executable, ROOT / "tools/ros/judge_node.py"]


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


def test_from_the_middle_again_and_again(processes, peer, tmp_path):
    """--start leaves out what came before, but not what is latched; with --loop time jumps back."""
    odometry, clocks = peer.collect_tf(), peer.collect(Clock, "/clock")
    latched = peer.collect(TFMessage, "/tf_static", LATCHED)
    options = ["--start", "1.5", "--rate", "2", "--loop", "--wait-for", "/tf"]
    player = processes([*PLAYER, write_bag(tmp_path / "bag.mcap"), *options])
    first, last = 1.5, (COUNT - 1) * PERIOD / NANOSECONDS
    jumps = lambda: sum(b < a for a, b in zip(times(), times()[1:]))  # noqa: E731
    times = lambda: [seconds(clock.clock) for clock in clocks]  # noqa: E731
    wait_until(lambda: jumps() >= 2, 10.0)
    assert player.stop(signal.SIGINT, timeout=10.0) == 0, player.log
    stamps = [seconds(t.header.stamp) for t in odometry]
    assert (min(stamps), max(stamps)) == pytest.approx((first, last))
    assert min(times()) == pytest.approx(first) and max(times()) == pytest.approx(last)
    assert latched


def test_the_end_can_be_held(processes, peer, tmp_path):
    """--pause-at-end keeps the last time on /clock; --topics plays no others."""
    clocks, odometry = peer.collect(Clock, "/clock"), peer.collect_tf()
    truths = peer.collect(PoseStamped, "/ground_truth")
    options = ["--rate", "8", "--pause-at-end", "--topics", "/ground_truth", "--wait-for", "/ground_truth"]
    player = processes([*PLAYER, write_bag(tmp_path / "bag.mcap"), *options])
    last = (COUNT - 1) * PERIOD / NANOSECONDS
    at_end = lambda: [c for c in clocks if seconds(c.clock) == pytest.approx(last)]  # noqa: E731
    wait_until(lambda: len(at_end()) > 5, 10.0)
    assert player.stop(signal.SIGINT, timeout=10.0) == 0, player.log
    assert truths and not odometry


def test_what_cannot_be_played_is_said(processes, tmp_path):
    """A type that is not installed is left out by name, a topic that is not there refused."""
    bag = tmp_path / "bag.mcap"
    with bag.open("wb") as file:
        writer = Writer(file)
        writer.start()
        schema = writer.register_schema("no_such_msgs/msg/Thing", "ros2msg", b"")
        writer.add_message(writer.register_channel("/thing", "cdr", schema), START, b"", START)
        writer.finish()
    player = processes([*PLAYER, bag])
    assert player.wait(15.0) == 0, player.log
    assert "not played: /thing, no_such_msgs/msg/Thing is not installed" in player.log
    player = processes([*PLAYER, bag, "--topics", "/ting"])
    assert player.wait(15.0) == 1, player.log
    assert "has no topic /ting" in player.log


@pytest.mark.parametrize("truth_offset, verdict", [(0.0, 0), (1.0, 1)])
def test_judgement(start_node, processes, tmp_path, truth_offset, verdict):
    """A node that is right passes, and fails against a truth that is a metre off."""
    start_node(parameters={"use_sim_time": True})
    player = processes([*JUDGE, write_bag(tmp_path / "bag.mcap", truth_offset), "--listen", SCANS])
    assert player.wait(30.0) == verdict, player.log
    assert "poses" in player.log
    assert ("WRONG" in player.log) == bool(verdict)


def test_silence_is_a_failure(processes, peer, tmp_path):
    """No node, or one that says nothing."""
    peer.collect(PointCloud2, SCANS, qos_profile_sensor_data)
    player = processes([*JUDGE, write_bag(tmp_path / "bag.mcap"), "--rate", "4", "--listen", SCANS])
    assert player.wait(30.0) == 1
    assert "no pose was published" in player.log
