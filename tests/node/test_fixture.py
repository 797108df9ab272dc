"""The tools of these tests themselves, on a node that does nothing but start."""

import signal

import numpy as np
import pytest
from clouds import correspondences, point_cloud
from diagnostic_msgs.msg import DiagnosticArray
from rclpy.qos import ReliabilityPolicy
from ros_peer import wait_until
from sensor_msgs.msg import PointField


def test_node_is_found_asked_and_stopped(start_node, peer):
    """Discovery, the parameter client and collecting; exit code 0 is demanded by the fixture."""
    diagnostics = peer.collect(DiagnosticArray, "/diagnostics")
    start_node(parameters={"frames.map": "world"})
    assert "/flashreg" in peer.node_names()
    assert peer.get_parameter("frames.map") == "world"
    assert peer.get_parameter("frames.odom") == "odom"
    assert {"frames.map", "tf.mode"} <= peer.list_parameters()
    wait_until(lambda: diagnostics, what="a message on /diagnostics")


def test_name_namespace_and_remaps(start_node, peer):
    """They reach the node."""
    start_node(name="second", namespace="/robot", remaps={"correspondences_3d3d": "/front/matches"})
    (end,) = wait_until(lambda: peer.node.get_subscriptions_info_by_topic("/front/matches"))
    assert (end.node_namespace, end.node_name) == ("/robot", "second")
    assert end.qos_profile.reliability == ReliabilityPolicy.BEST_EFFORT


def test_cloud_is_delivered(start_node, peer):
    """A publisher finds the node and the node survives what it is sent."""
    start_node()
    rows = np.zeros((3, 3))
    peer.send_cloud(point_cloud(correspondences(rows, rows), stamp=1))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stop_by_signal(start_node, number):
    """Both signals end the node properly."""
    assert start_node().stop(number) == 0


def test_node_that_does_not_start_is_reported(start_node, peer):
    """An unusable argument: the node ends by itself and the log says why."""
    process = start_node(arguments=["-r", "not a rule"], wait=False)
    assert process.wait() != 0
    assert process.log


def test_cloud_layout():
    """Offsets, types, padding and byte order of a made cloud."""
    columns = {"x": np.array([1.0, 2.0]), "id": np.array([7, 8], np.uint16), "w": np.array([0.5, 0.25], np.float32)}
    cloud = point_cloud(columns, stamp=1_500_000_000, big_endian=True, padding=2)
    assert [(f.name, f.offset, f.datatype) for f in cloud.fields] == [
        ("x", 0, PointField.FLOAT64),
        ("id", 8, PointField.UINT16),
        ("w", 10, PointField.FLOAT32),
    ]
    assert (cloud.point_step, cloud.row_step, cloud.width, cloud.is_bigendian) == (16, 32, 2, True)
    assert (cloud.header.stamp.sec, cloud.header.stamp.nanosec) == (1, 500_000_000)
    data = bytes(cloud.data)
    assert np.frombuffer(data, ">f8", 1, 16)[0] == 2.0
    assert np.frombuffer(data, ">u2", 1, 24)[0] == 8
    assert np.frombuffer(data, ">f4", 1, 26)[0] == 0.25
