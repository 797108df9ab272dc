"""The program: signals, processor time, names, logs."""

import os
import signal
import time

import pytest
from geometry_msgs.msg import PoseWithCovarianceStamped
from rcl_interfaces.msg import Log
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from ros_peer import wait_until
from scene import FAST, Scene

ROSOUT = QoSProfile(depth=1000, durability=DurabilityPolicy.TRANSIENT_LOCAL, reliability=ReliabilityPolicy.RELIABLE)


def processor_seconds(pid):
    """User and system time of a process."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_an_idle_node_hardly_computes(start_node):
    """Less than 5 % of a core with the periods of config/localizer.yaml."""
    process = start_node()
    time.sleep(1.0)
    before, begin = processor_seconds(process.pid), time.monotonic()
    time.sleep(5.0)
    share = (processor_seconds(process.pid) - before) / (time.monotonic() - begin)
    print(f"idle: {100 * share:.2f} % of a core")
    assert share < 0.05


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_working_node_ends_with_0(start_node, peer, number):
    """Within a second, in the middle of messages."""
    scene = Scene(peer)
    process = start_node(parameters=FAST)
    scene.connect()
    for _ in range(5):
        scene.send()
    begin = time.monotonic()
    assert process.stop(number) == 0
    assert time.monotonic() - begin < 2.0


def test_two_signals_at_once_end_it_too(start_node):
    """Properly if the first was served by then, else hard."""
    process = start_node()
    os.kill(process.pid, signal.SIGINT)
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(5.0) in (0, 1)


def test_namespace_and_remaps(start_node, peer):
    """Relative names follow the namespace; tf and diagnostics are global; frames are parameters."""
    scene = Scene(peer, namespace="/robot1", node="loc")
    start_node(
        parameters={**FAST, "frames.map": "world"},
        name="loc",
        namespace="/robot1",
        remaps={"correspondences_3d3d": "/front/matches", "pose": "where"},
    )
    topics = dict(peer.node.get_topic_names_and_types())
    assert {"/front/matches", "/robot1/where", "/robot1/initialpose", "/robot1/candidates", "/tf", "/diagnostics"} <= set(topics)
    services = dict(peer.node.get_service_names_and_types())
    assert {
        "/robot1/reinitialize_global_localization",
        "/robot1/loc/set_active",
        "/robot1/loc/trigger",
        "/robot1/loc/set_parameters",
    } <= set(services)
    scene.topic, scene.pose_topic = "/front/matches", "/robot1/where"
    scene.poses = peer.collect(PoseWithCovarianceStamped, "/robot1/where")
    scene.connect()
    assert scene.localize().header.frame_id == "world"
    assert wait_until(lambda: scene.map_odoms(parent="world"))
    assert scene.diagnostics.statuses()[-1].name == "robot1/loc: localization"


def test_tf_can_be_remapped(start_node, peer):
    """For robots that keep their tf in a namespace."""
    start_node(remaps={"/tf": "/robot1/tf", "/tf_static": "/robot1/tf_static"})
    for topic in ("/robot1/tf", "/robot1/tf_static"):
        assert [end.node_name for end in peer.node.get_subscriptions_info_by_topic(topic)] == ["flashreg"]
    assert [end.node_name for end in peer.node.get_publishers_info_by_topic("/robot1/tf")] == ["flashreg"]
    assert not [end for end in peer.node.get_publishers_info_by_topic("/tf") if end.node_name == "flashreg"]


def test_logs_go_to_rosout_and_once_to_stderr(start_node, peer):
    """The start, and each change of the category; refusals again and again are said once."""
    logs = peer.collect(Log, "/rosout", ROSOUT)
    scene = Scene(peer)
    process = start_node(parameters=FAST)
    scene.connect()
    scene.localize()
    for _ in range(10):
        peer.send_cloud(scene.cloud(0, 0))
        time.sleep(0.02)
    scene.diagnostics.wait(category="stale_input")
    wait_until(lambda: "stale_input: stamp is zero" in process.log)
    assert process.log.count("stale_input: stamp is zero") == 1
    assert process.log.count("flashreg 0.") == 1
    said = [log.msg for log in list(logs) if log.name == "flashreg"]
    assert sum("stale_input: stamp is zero" in text for text in said) == 1
    assert any("listens to /correspondences_3d3d" in text for text in said)


@pytest.mark.parametrize("level, info", [("warn", False), ("error", False), ("debug", True)])
def test_the_log_level_is_obeyed(start_node, level, info):
    """By the node's own messages and by those of the library."""
    process = start_node(arguments=["--log-level", level])
    time.sleep(0.3)
    assert ("listens to" in process.log) == info
