"""The way of a good message: pose and transform, in all modes, and when there is none."""

import time

import numpy as np
import pytest
from clouds import point_cloud
from geometry_msgs.msg import PoseArray
from poses import NANOSECONDS, matrix, nanoseconds, pose_matrix
from rclpy.qos import qos_profile_sensor_data
from ros_peer import wait_until
from scene import FAST, Scene, close_to, matrix_of, turn
from sensor_msgs.msg import PointCloud2


def test_a_drive_is_followed(start_node, peer):
    """map -> odom is the truth at each step, stamped with the measurement plus the tolerance."""
    scene = Scene(peer)
    diagnostics = scene.diagnostics
    start_node(parameters=FAST)
    scene.connect()
    for _ in range(10):
        stamp, step = scene.send(outliers=100)
        pose = wait_until(lambda: scene.pose_at(stamp), what="the pose")
        assert pose.header.frame_id == "map"
        assert close_to(pose_matrix(pose.pose.pose), scene.truth(step))
        sent = scene.transform_at(stamp)
        assert (sent.header.frame_id, sent.child_frame_id) == ("map", "odom")
        assert close_to(matrix_of(sent), scene.map_odom)
        assert close_to(matrix_of(sent) @ matrix(*scene.odometry(step)), scene.truth(step))
        scene.map_odom = scene.map_odom @ matrix((0.01, 0.0, 0.0), turn(0.0, 0.0, 0.001))  # drift
    latest = diagnostics.wait(category="ok", accepted="10", received="10")
    assert (latest["correspondences"], latest["after_filter"]) == ("400", "400")
    assert int(latest["inliers"]) >= 295 and latest["rejected_in_a_row"] == "0"
    assert float(latest["inlier_ratio"]) == pytest.approx(int(latest["inliers"]) / 400, abs=1e-3)
    status, message = diagnostics.statuses()[-1], diagnostics.messages[-1]
    assert status.level == b"\x00" and status.hardware_id == latest["device"] != ""
    assert abs(nanoseconds(message.header.stamp) - time.time_ns()) < 2 * NANOSECONDS
    assert latest["backend"] in ("cpu", "cuda")


def test_covariance_is_one(start_node, peer):
    """Symmetric, positive definite, finite, not below the floors of the parameters."""
    scene = Scene(peer)
    start_node()
    scene.connect()
    covariance = np.array(scene.localize().pose.covariance).reshape(6, 6)
    assert np.isfinite(covariance).all() and np.array_equal(covariance, covariance.T)
    assert np.linalg.eigvalsh(covariance).min() > 0
    floor = np.array([0.2] * 3 + [0.035] * 3) ** 2
    assert (np.diag(covariance) >= 0.999 * floor).all()
    assert (np.diag(covariance) <= 1e6).all()


def test_mode_map_base_needs_no_odometry(start_node, peer):
    """map -> base, with the sensor's mount taken into account."""
    scene = Scene(peer)
    start_node(parameters={"tf.mode": "map_base"})
    scene.connect()
    stamp = time.time_ns()
    peer.send_cloud(scene.cloud(stamp, 3))
    sent = scene.transform_at(stamp, child="base_link")
    assert close_to(matrix_of(sent), scene.truth(3))
    assert not scene.map_odoms()


def test_mode_none_sends_the_pose_only(start_node, peer):
    """Nothing on /tf."""
    scene = Scene(peer)
    start_node(parameters={"tf.mode": "none"})
    scene.connect()
    for _ in range(3):
        scene.localize()
    time.sleep(0.2)
    assert not scene.map_odoms() and not scene.map_odoms(child="base_link")


def test_nothing_is_sent_before_the_first_accepted_pose(start_node, peer):
    """Outliers only, then a scene: the first transform is the truth, and never an identity."""
    scene = Scene(peer)
    diagnostics = scene.diagnostics
    start_node(parameters=FAST)
    scene.connect()
    for _ in range(3):
        stamp, _ = scene.send(landmarks=np.empty((0, 3)), outliers=200)
        wait_until(lambda: diagnostics.number("received") >= scene.step)
    assert not scene.map_odoms() and not scene.poses
    assert diagnostics.latest()["category"] in ("low_inliers", "ambiguous", "degenerate")
    scene.localize()
    scene.transform_at(nanoseconds(scene.poses[0].header.stamp))
    for sent in scene.map_odoms():
        assert close_to(matrix_of(sent), scene.map_odom)


def test_a_rejected_message_holds_the_transform_for_a_while(start_node, peer):
    """The last accepted map -> odom with new stamps for tf.hold_sec, then none; never a new pose."""
    scene = Scene(peer)
    diagnostics = scene.diagnostics
    start_node(parameters={**FAST, "tf.hold_sec": 0.6})
    scene.connect()
    accepted = nanoseconds(scene.localize().header.stamp)
    held, late = [], []
    while (stamp := time.time_ns()) < accepted + 1.2 * NANOSECONDS:
        scene.send(stamp=stamp, landmarks=np.empty((0, 3)), outliers=100)
        (held if stamp < accepted + 0.6 * NANOSECONDS else late).append(stamp)
        time.sleep(0.1)
    latest = diagnostics.wait(rejected_in_a_row=len(held) + len(late))
    assert len(held) >= 3 and len(late) >= 3 and latest["category"] != "ok"
    for stamp in held:
        assert close_to(matrix_of(scene.transform_at(stamp)), scene.map_odom)
    assert len(scene.poses) == 1
    tolerance = NANOSECONDS // 10
    stamps = {nanoseconds(t.header.stamp) - tolerance for t in scene.map_odoms()}
    assert not stamps & set(late)
    scene.localize()
    diagnostics.wait(category="ok", rejected_in_a_row=0)


def test_inliers_are_shown_to_who_listens(start_node, peer):
    """Their targets, in the map."""
    scene = Scene(peer)
    start_node()
    clouds = peer.collect(PointCloud2, "/inliers", qos_profile_sensor_data)
    scene.connect()
    scene.localize(outliers=50)
    (cloud,) = wait_until(lambda: list(clouds), what="the inliers")
    points = np.frombuffer(bytes(cloud.data), "<f4").reshape(-1, 3)
    assert cloud.header.frame_id == "map" and 295 <= cloud.width == len(points) <= 302
    nearest = np.linalg.norm(points[:, None] - scene.landmarks[None], axis=2).min(axis=1)
    assert (nearest < 0.2).mean() > 0.98


def test_two_answers_are_ambiguous(start_node, peer):
    """Half of the landmarks say one pose and half another: candidates, no pose, no transform."""
    scene = Scene(peer)
    diagnostics = scene.diagnostics
    start_node(parameters=FAST)
    candidates = peer.collect(PoseArray, "/candidates")
    scene.connect()
    stamp = time.time_ns()
    here = scene.columns(0)
    scene.map_odom = matrix((-3.0, 4.0, 0.0), turn(0.0, 0.0, -1.0))
    there = scene.columns(0)
    both = {name: np.concatenate([here[name], there[name]]) for name in here}
    scene.send(stamp=stamp, cloud=point_cloud(both, stamp))
    diagnostics.wait(category="ambiguous", rejected__ambiguous=1, candidates=2)
    (message,) = wait_until(lambda: list(candidates), what="the candidates")
    assert message.header.frame_id == "map" and len(message.poses) == 2
    assert any(close_to(pose_matrix(pose), scene.truth(0)) for pose in message.poses)
    assert not scene.poses and not scene.map_odoms()
