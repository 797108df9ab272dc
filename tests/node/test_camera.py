"""Camera input: poses in the map and relative ones, calibrations that cannot be used, a LiDAR beside it."""

import time

import numpy as np
from camera_scene import D, FRAME, K, CameraScene, camera_info
from geometry_msgs.msg import PoseStamped
from poses import difference, nanoseconds, pose_matrix
from rclpy.qos import qos_profile_sensor_data
from ros_peer import wait_until
from scene import FAST, Scene, close_to, matrix_of
from sensor_msgs.msg import PointCloud2

NEAR = {"metres": 0.05, "degrees": 0.3}


def test_pixels_and_landmarks_localize(start_node, peer):
    """Half of the matches wrong, half a pixel of noise, a distorted image: map -> odom is the truth."""
    scene = CameraScene(peer)
    start_node(parameters=FAST)
    inliers = peer.collect(PointCloud2, "/inliers", qos_profile_sensor_data)
    scene.connect()
    for _ in range(10):
        stamp, step = scene.send(outliers=75)
        pose = wait_until(lambda: scene.pose_at(stamp), what="the pose")
        assert close_to(pose_matrix(pose.pose.pose), scene.truth(step), **NEAR)
        sent = scene.transform_at(stamp)
        assert close_to(matrix_of(sent), scene.map_odom, **NEAR)
        covariance = np.array(pose.pose.covariance).reshape(6, 6)
        assert np.linalg.eigvalsh(covariance).min() > 0
    latest = scene.camera.wait(category="ok", accepted="10", received="10", rejected_in_a_row="0")
    assert 70 <= int(latest["inliers"]) <= 80 and float(latest["margin"]) > 0.5
    assert float(latest["stage_us.search"]) > 0
    p50, p99 = (float(latest[f"latency_us.total.{rank}"]) for rank in ("p50", "p99"))
    print(f"arrival to tf: p50 {p50 / 1e3:.2f} ms, p99 {p99 / 1e3:.2f} ms")
    assert 0 < p50 <= p99 < 1e6
    # The node speaks for the only input that is heard.
    overall = scene.diagnostics.wait(category="ok", accepted="10", input="correspondences_2d3d")
    assert overall["inliers"] == latest["inliers"]
    cloud = wait_until(lambda: list(inliers), what="the inliers")[-1]
    shown = np.frombuffer(cloud.data.tobytes(), np.float32).reshape(-1, 3)
    assert cloud.header.frame_id == "map" and len(shown) >= 70
    assert np.abs(shown[:, None] - scene.landmarks[None, :]).max(axis=2).min(axis=1).max() < 1e-5
    assert scene.diagnostics.latest()["category"] == "ok"


def test_calibrations_that_cannot_be_used_are_named(start_node, peer):
    """None at all, K[0] = 0, an unknown model; each is counted, and nothing goes to tf until it is right again."""
    scene = CameraScene(peer)
    process = start_node(parameters=FAST)
    scene.connect(calibrated=False)

    def refused(words, **counts):
        scene.send()
        latest = scene.camera.wait(category="bad_input", **counts)
        assert words in latest["message"], latest["message"]

    refused(f"no_camera_info:{FRAME}", refused__camera_info="1")
    scene.calibrate(camera_info(k=(0.0, *K[1:])))
    scene.diagnostics.wait(refused__camera_info="2")
    refused("K[0] is 0", refused__camera_info="2")
    assert "K[0] is 0" in process.log
    unknown = camera_info()
    unknown.distortion_model = "magic"
    scene.calibrate(unknown)
    scene.diagnostics.wait(refused__camera_info="4")
    refused("magic", refused__camera_info="3")
    assert not scene.poses and not scene.map_odoms()
    scene.calibrate()
    time.sleep(0.2)
    stamp, step = scene.send()
    assert close_to(matrix_of(scene.transform_at(stamp)), scene.map_odom, **NEAR)
    # A bad one in place of a good one: it is forgotten.
    scene.calibrate(camera_info(d=(*D, 0.0, 0.0)))
    scene.diagnostics.wait(refused__camera_info="6")
    refused("camera_info", refused__camera_info="4")


def test_bearings_need_no_calibration(start_node, peer):
    """A fisheye of more than half of all directions, no CameraInfo; the vertical known and not."""
    scene = CameraScene(peer)
    start_node(parameters={**FAST, "camera.inlier_threshold_rad": 0.005})
    scene.connect(calibrated=False)
    for gravity in ("off", "odom"):
        peer.set_parameters({"registration.gravity": gravity})
        for _ in range(3):
            stamp = time.time_ns() - 20_000_000
            scene.send(stamp, scene.bearings(stamp, scene.step, outliers=60))
            assert close_to(matrix_of(scene.transform_at(stamp)), scene.map_odom, **NEAR)
    assert scene.camera.wait(category="ok", accepted="6")["refused.camera_info"] == "0"


def test_two_views_give_a_relative_pose_and_never_a_transform(start_node, peer):
    """Right rotation and direction, a translation of length one, in the reference frame; no motion is no pose."""
    scene = CameraScene(peer)
    start_node(parameters={**FAST, "camera.reference_frame": "keyframe"})
    scene.connect()
    sent, poses = len(scene.transforms), peer.collect(PoseStamped, "/relative_pose")
    pairs = scene.reach("/correspondences_2d2d")
    answered = []
    for i, step in enumerate((18, 22, 26, 30, 34, 38), 1):
        # No odometry at this stamp: none is needed.
        stamp = time.time_ns()
        cloud, truth = scene.pair(stamp, step, 0, outliers=60)
        peer.send_cloud(cloud, "/correspondences_2d2d")
        latest = pairs.wait(received=i)
        if latest["category"] != "ok":
            continue
        pose = wait_until(lambda: next((p for p in poses if nanoseconds(p.header.stamp) == stamp), None), 5.0)
        assert pose.header.frame_id == "keyframe"
        found = pose_matrix(pose.pose)
        assert abs(np.linalg.norm(found[:3, 3]) - 1.0) < 1e-9
        truth[:3, 3] /= np.linalg.norm(truth[:3, 3])
        assert close_to(found, truth, metres=0.03, degrees=0.3), difference(found, truth)
        answered.append(step)
    assert len(answered) >= 3, pairs.latest()["message"]
    cloud, _ = scene.pair(time.time_ns(), 0, 0)
    peer.send_cloud(cloud, "/correspondences_2d2d")
    latest = pairs.wait(received=7, accepted=len(answered))
    assert latest["category"] in ("degenerate", "ambiguous", "low_inliers"), latest["category"]
    time.sleep(0.2)
    assert len(poses) == len(answered) and not scene.poses
    assert not [t for t in scene.transforms[sent:] if t.header.frame_id != "odom"]


def test_lidar_and_camera_together(start_node, peer):
    """Both localize; what one cannot answer takes nothing from the other, and both are visible."""
    camera = CameraScene(peer)
    process = start_node(parameters={**FAST, "diagnostics.silence_sec": 1.5})
    camera.connect()
    lidar = Scene(peer)
    lidar.landmarks = camera.landmarks[:300]
    points = camera.reach(lidar.topic)
    camera.diagnostics.count_from_here()

    def step(at, **options):
        """Both measure at the same step, the camera a little later."""
        time.sleep(0.03)  # the odometry of the step before ends there
        stamp = time.time_ns() - 15_000_000
        camera.send_odometry(stamp - 1_000_000, at)
        camera.send_odometry(stamp + 10_000_000, at)
        peer.send_cloud(lidar.cloud(stamp, at), lidar.topic)
        peer.send_cloud(camera.cloud(stamp + 5_000_000, at, **options), camera.topic)
        return stamp, stamp + 5_000_000

    for at in range(5):
        for stamp in step(at):
            assert close_to(matrix_of(camera.transform_at(stamp)), camera.map_odom, **NEAR)
    points.wait(category="ok", accepted="5")
    camera.camera.wait(category="ok", accepted="5")
    # The camera sees nothing that is right: no transform of its stamps, neither new nor held.
    blind = []
    for at in range(5, 8):
        stamp, other = step(at, outliers=150)
        blind.append(other)
        assert close_to(matrix_of(camera.transform_at(stamp)), camera.map_odom, **NEAR)
    latest = camera.camera.wait(rejected_in_a_row="3")
    assert latest["category"] != "ok" and latest["accepted"] == "5"
    overall = camera.diagnostics.wait(category="ok", input="correspondences_3d3d", accepted="13")
    assert overall["rejected_in_a_row"] == "0"
    stamps = {nanoseconds(t.header.stamp) - 100_000_000 for t in camera.map_odoms()}
    assert not stamps & set(blind)
    # Silence is told of the inputs that were used, and of no other.
    said = process.log.count("no message on")
    wait_until(lambda: process.log.count("no message on") == said + 2, 5.0, "two warnings")
    assert "correspondences_2d2d for" not in process.log
