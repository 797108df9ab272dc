"""What arrives: both kinds of publishers, bursts, bytes that are no message, silence."""

import random
import time

import numpy as np
import pytest
from geometry_msgs.msg import PoseWithCovarianceStamped
from rclpy.qos import QoSProfile, ReliabilityPolicy, qos_profile_sensor_data
from rclpy.serialization import serialize_message
from ros_peer import RELIABLE, transform, wait_until
from scene import FAST, Scene
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import String
from tf2_msgs.msg import TFMessage

TOPIC = "/correspondences_3d3d"
BEST_EFFORT = QoSProfile(depth=5, reliability=ReliabilityPolicy.BEST_EFFORT)


@pytest.mark.parametrize("reliable", [False, True], ids=["best effort", "reliable"])
@pytest.mark.parametrize("wanted", ["best_effort", "reliable"])
def test_publishers_that_fit_are_heard(start_node, peer, wanted, reliable):
    """All but a best-effort publisher with a node that wants reliable."""
    scene = Scene(peer)
    send_cloud = peer.send_cloud
    peer.send_cloud = lambda cloud, topic=TOPIC: send_cloud(cloud, topic, reliable=reliable)
    process = start_node(parameters={**FAST, "input.qos": wanted, "diagnostics.silence_sec": 1.0})
    if wanted == "reliable" and not reliable:
        peer.node.create_publisher(PointCloud2, TOPIC, BEST_EFFORT)
        warning = "test_peer is best_effort: incompatible with input.qos reliable"
        wait_until(lambda: warning in process.log, 5.0, "the warning")
        assert scene.diagnostics.wait(category="waiting_input")["received"] == "0"
    else:
        scene.connect()
        scene.localize()


def test_silence_is_warned_of_once(start_node, peer):
    """With the topic and who publishes there; and again in the next silence."""
    scene = Scene(peer)
    process = start_node(parameters={**FAST, "diagnostics.silence_sec": 0.8}, remaps={"correspondences_3d3d": "/matches"})
    topics = "/matches, /correspondences_2d3d, /correspondences_2d2d, /points"
    wait_until(lambda: f"no message on {topics} for 0.8 s; nobody publishes there" in process.log, 4.0)
    time.sleep(1.5)
    assert process.log.count("no message on") == 1
    assert scene.diagnostics.statuses()[-1].level == b"\x03"
    scene.topic = "/matches"
    scene.connect()
    scene.localize()
    said = process.log.count("no message on")
    wait_until(lambda: process.log.count("no message on") == said + 1, 4.0, "the second warning")
    assert "/test_peer is best_effort: compatible" in process.log
    latest = scene.diagnostics.wait(category="stale_input")
    assert "before that: ok" in latest["message"] and int(latest["input_age_ms"]) > 1000
    scene.localize()
    scene.diagnostics.wait(category="ok")


def test_a_publisher_of_another_type_is_named(start_node, peer):
    """Otherwise that silence is hard to explain."""
    peer.node.create_publisher(String, TOPIC, RELIABLE)
    process = start_node(parameters={"diagnostics.silence_sec": 0.5})
    wait_until(lambda: "has the type std_msgs/msg/String" in process.log, 4.0, "the warning")


def test_a_burst_is_answered_by_its_newest_message(start_node, peer):
    """Older ones are overwritten and counted; the newest is always localized."""
    scene = Scene(peer, count=4000)
    start_node(parameters={**FAST, "input.qos": "reliable"})
    reliable = peer.send_cloud
    peer.send_cloud = lambda cloud, topic=TOPIC: reliable(cloud, topic, reliable=True)
    scene.connect()
    begin = time.time_ns() - 300_000_000
    clouds = [(begin + 10_000_000 * i, i) for i in range(30)]
    messages = [scene.cloud(*cloud) for cloud in clouds]
    for stamp, step in clouds:
        scene.send_odometry(stamp, step)
    time.sleep(0.2)
    for message in messages:
        peer.send_cloud(message)
    wait_until(lambda: scene.pose_at(clouds[-1][0]), 10.0, "the pose of the newest message")
    wait_until(lambda: scene.diagnostics.number("accepted") == len(scene.poses), what="the last diagnostics")
    latest = scene.diagnostics.latest()
    received, overwritten, accepted = (int(latest[k]) for k in ("received", "overwritten", "accepted"))
    # With depth 1 the middleware itself drops what the node has not taken yet.
    assert overwritten + accepted == received <= 30
    assert 1 <= accepted < 30
    stamps = [(p.header.stamp.sec, p.header.stamp.nanosec) for p in scene.poses]
    assert stamps == sorted(stamps)


def test_the_rate_is_told(start_node, peer):
    """10 Hz for two seconds."""
    scene = Scene(peer)
    start_node(parameters=FAST)
    scene.connect()
    time.sleep(5.0)
    for _ in range(20):
        scene.send()
        time.sleep(0.1)
    assert float(scene.diagnostics.latest()["input_rate_hz"]) == pytest.approx(10.0, abs=2.0)


def test_bytes_that_are_no_message_are_survived(start_node, peer):
    """Random bytes, cut and flipped messages, on every topic that the node hears."""
    scene = Scene(peer)
    process = start_node(parameters=FAST)
    scene.connect()
    rng = random.Random(5)
    cloud = serialize_message(scene.cloud(time.time_ns(), 0))
    transforms = serialize_message(TFMessage(transforms=scene.peer._static_transforms))
    peer.send("/tf", TFMessage())
    targets = [(peer._publishers[TOPIC], cloud), (peer._publishers["/tf"], transforms)]
    peer.send("/initialpose", PoseWithCovarianceStamped())
    targets.append((peer._publishers["/initialpose"], serialize_message(PoseWithCovarianceStamped())))
    for publisher, good in targets:
        for size in (0, 1, 3, 4, 5, 7, 8, 12, 16, 24, 100, 1000):
            publisher.publish(bytes([0, 1, 0, 0][:size]) + rng.randbytes(max(0, size - 4)))
            publisher.publish(rng.randbytes(size))
        for _ in range(150):
            bad = bytearray(good[: rng.randrange(len(good) + 1)] if rng.random() < 0.5 else good)
            for _ in range(rng.randrange(1, 6)):
                if bad:
                    # Headers and lengths are at the beginning.
                    bad[rng.randrange(min(len(bad), 200))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
            publisher.publish(bytes(bad))
            time.sleep(0.002)
    time.sleep(0.5)
    assert process.running, process.log
    assert scene.diagnostics.number("refused.layout") > 10, scene.diagnostics.latest()
    # Frames of the mount may have been moved by flipped bytes that still were a message.
    peer.send_static_tf()
    scene.localize()
    scene.diagnostics.wait(category="ok")


def test_names_with_any_characters_are_survived(start_node, peer):
    """They come back in diagnostics and logs."""
    scene = Scene(peer)
    process = start_node(parameters=FAST)
    scene.connect()
    for name in ["a\nb", "%s%n%d", "ünïcödé ☃", "x" * 5000, '"quoted" {braces}', "../..", "/lidar"]:
        cloud = scene.cloud(time.time_ns(), 0)
        cloud.header.frame_id = name
        peer.send_cloud(cloud)
        time.sleep(0.05)
    assert process.running
    # A NUL inside of a string cannot be written by rclpy: made by hand.
    data = bytearray(serialize_message(scene.cloud(time.time_ns(), 0)))
    data[data.index(b"lidar") + 2] = 0
    peer._publishers[TOPIC].publish(bytes(data))
    time.sleep(0.3)
    assert process.running
    scene.localize()


def test_many_transforms_are_taken(start_node, peer):
    """Odometry of 500 Hz beside 50 other frames."""
    scene = Scene(peer)
    start_node(parameters=FAST)
    scene.connect()
    others = [transform("base_link", f"wheel{i}", 0) for i in range(50)]
    for step in range(200):
        stamp = time.time_ns()
        for other in others:
            other.header.stamp.sec, other.header.stamp.nanosec = divmod(stamp, 10**9)
        peer.send_tf(transform("odom", "base_link", stamp, *scene.odometry(step)), *others)
        if step % 20 == 10:
            scene.step = step
            peer.send_cloud(scene.cloud(stamp, step))
            assert wait_until(lambda: scene.pose_at(stamp), what=f"the pose of step {step}")
        time.sleep(0.002)
    assert np.isclose(scene.diagnostics.number("refused.missing_tf"), 0)
