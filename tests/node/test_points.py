"""Raw clouds and a map: from anywhere to a pose, and what is said when there is none."""

import time

import numpy as np
import pytest
from building import CloudScene, map_message, map_points, sweep, write_pcd, xyz
from clouds import point_cloud
from node_process import ROOT
from poses import NANOSECONDS, difference, matrix, pose_matrix
from rclpy.qos import qos_profile_sensor_data
from ros_peer import LATCHED, transform, wait_until
from scene import FAST, close_to, matrix_of, turn
from sensor_msgs.msg import PointCloud2
from std_srvs.srv import Empty, SetBool

METRES, DEGREES = 0.1, 1.0
FILES = [ROOT / "config/localizer.yaml", ROOT / "config/indoor.yaml"]
PERIOD = 0.1


@pytest.fixture(scope="module")
def house():
    """Points of the map."""
    return map_points()


@pytest.fixture(scope="module")
def house_file(house, tmp_path_factory):
    """The same as a file, whose cache is made once."""
    return write_pcd(tmp_path_factory.mktemp("map") / "house.pcd", house)


def drive(scene, until, most=60):
    """Sends sweeps, one after another, until `until()` holds; every pose that comes has to be right."""
    for _ in range(most):
        begin, received = time.monotonic(), scene.diagnostics.number("received")
        stamp, step = scene.send()
        wait_until(lambda: scene.diagnostics.number("received") > received, 5.0, "the answer")  # noqa: B023
        check(scene, stamp, step)
        if until():
            return stamp, step
        time.sleep(max(0.0, begin + PERIOD - time.monotonic()))
    raise AssertionError(f"not after {most} sweeps; the last diagnostics: {scene.diagnostics.latest()}")


def check(scene, stamp, step):
    """The pose of this stamp, if there is one, is right."""
    pose = scene.pose_at(stamp)
    if pose is not None:
        assert close_to(pose_matrix(pose.pose.pose), scene.truth(step), METRES, DEGREES), (
            difference(pose_matrix(pose.pose.pose), scene.truth(step)),
            scene.diagnostics.latest(),
        )


def is_(scene, **wanted):
    """Whether the newest diagnostics have these values."""
    return lambda: all(scene.diagnostics.latest().get(key) == value for key, value in wanted.items())


def test_from_a_file_to_a_pose(start_node, peer, house, house_file):
    """Found without a guess, tracked, shown; carried elsewhere it is noticed, never wrong, and found again."""
    scene = CloudScene(peer)
    aligned = peer.collect(PointCloud2, "/aligned_points", qos_profile_sensor_data)
    start_node(parameters={**FAST, "map.path": str(house_file)}, params_files=FILES)
    scene.connect()
    latest = scene.diagnostics.latest()
    assert str(house_file) in latest["map"] and int(latest["map_points"]) > 1000 and int(latest["submaps"]) >= 1
    assert latest["mode"] == "lost"

    begin = time.monotonic()
    stamp, step = drive(scene, is_(scene, category="ok"))
    print(f"found after {scene.step} sweeps, {time.monotonic() - begin:.2f} s")
    assert close_to(matrix_of(scene.transform_at(stamp)), scene.map_odom, METRES, DEGREES)
    last = scene.step + 10
    stamp, step = drive(scene, lambda: scene.step >= last)
    assert close_to(pose_matrix(scene.pose_at(stamp).pose.pose), scene.truth(step), METRES, DEGREES)
    latest = scene.diagnostics.wait(category="ok", mode="tracking", input="points", rejected_in_a_row=0)
    assert float(latest["overlap"]) > 0.8 and int(latest["inliers"]) > 0.8 * int(latest["after_filter"])
    assert float(latest["stage_us.track"]) > 0

    cloud = wait_until(lambda: list(aligned), what="the aligned points")[-1]
    points = np.frombuffer(bytes(cloud.data), "<f4").reshape(-1, 3)
    assert cloud.header.frame_id == "map" and abs(len(points) / int(latest["after_filter"]) - 1) < 0.2  # of another sweep
    shown = peer.collect(PointCloud2, "/map_points", LATCHED)
    (shown,) = wait_until(lambda: list(shown), what="the map")
    voxels = np.frombuffer(bytes(shown.data), "<f4").reshape(-1, 3)
    assert len(voxels) == int(latest["map_points"])
    for cloud in (points[::50], voxels[::200]):
        nearest = np.linalg.norm(cloud[:, None] - house[None, ::7], axis=2).min(axis=1)
        assert (nearest < 0.3).mean() > 0.95

    # Carried through the wall into another room.
    scene.put_down(8.0, 4.6, 2.4)
    poses = len(scene.poses)
    drive(scene, lambda: not is_(scene, mode="tracking", category="ok")(), most=10)
    assert len(scene.poses) == poses
    drive(scene, is_(scene, category="ok", mode="tracking"))
    assert len(scene.poses) > poses


def test_services_and_the_initial_pose(start_node, peer, house_file):
    """Lost on demand, switched off and on, and put right by a pose that is said."""
    scene = CloudScene(peer)
    start_node(parameters={**FAST, "map.path": str(house_file)}, params_files=FILES)
    scene.connect()
    drive(scene, is_(scene, category="ok"))
    generation = int(scene.diagnostics.latest()["generation"])
    peer.call(Empty, "/reinitialize_global_localization")
    scene.diagnostics.wait(category="waiting_input", generation=generation + 1)
    peer.call(SetBool, "/flashreg/set_active", SetBool.Request(data=False))
    poses = len(scene.poses)
    for _ in range(4):
        scene.send()
        time.sleep(PERIOD)
    scene.diagnostics.wait(category="inactive")
    assert len(scene.poses) == poses
    peer.call(SetBool, "/flashreg/set_active", SetBool.Request(data=True))
    stamp = time.time_ns()
    scene.send_odometry(stamp, scene.step)
    position = scene.truth(scene.step)[:3, 3] + [0.3, -0.2, 0.0]
    covariance = np.diag([0.25, 0.25, 0.0, 0.0, 0.0, 0.07]).ravel()
    peer.send_initialpose(stamp, position, turn(0, 0, 0.7 + 0.02 * scene.step + 0.1), covariance)
    scene.diagnostics.wait(generation=generation + 2)
    drive(scene, is_(scene, category="ok"), most=10)


def test_a_latched_map(start_node, peer, house):
    """None: missing_map. Bad ones are refused by name and counted; a good one is taken and survives a bad one."""
    scene = CloudScene(peer)
    start_node(parameters=FAST, params_files=FILES)
    peer.send_static_tf(transform("base_link", "lidar", 0, *scene.mount))

    def heard():
        scene.send()
        time.sleep(0.2)
        return is_(scene, category="missing_map")()

    wait_until(heard, 15.0, "missing_map")
    latest = scene.diagnostics.latest()
    assert latest["message"].startswith("map.path is empty, and no message has come"), latest
    assert int(latest["refused.missing_map"]) > 0 and not scene.poses
    assert scene.diagnostics.statuses()[-1].level == b"\x02"

    stamp = time.time_ns()
    flat = point_cloud({name: column for name, column in xyz(house).items() if name != "z"}, stamp, "map")
    bad = [
        (map_message(house[::100], stamp, "odom"), "frame 'odom' is not 'map'"),
        (flat, "missing_field:z"),
        (map_message(house[:0], stamp), "empty"),
        (map_message(np.full((50, 3), np.nan), stamp), "too_few: 0 occupied voxels"),
    ]
    for count, (message, why) in enumerate(bad, start=1):
        peer.send("/map", message, LATCHED)
        latest = scene.diagnostics.wait(10.0, refused__map=count, category="missing_map", map_points=0)
        assert why in latest["message"], latest

    peer.send("/map", map_message(house, time.time_ns()), LATCHED)
    wait_until(lambda: scene.diagnostics.number("map_points") > 1000, 20.0, "the map")
    drive(scene, is_(scene, category="ok"))
    generation, points = (scene.diagnostics.latest()[key] for key in ("generation", "map_points"))
    # A bad one, and the same again with another stamp: nothing changes.
    peer.send("/map", bad[0][0], LATCHED)
    scene.diagnostics.wait(refused__map=len(bad) + 1)
    peer.send("/map", map_message(house, time.time_ns()), LATCHED)
    time.sleep(0.5)
    last = scene.step + 5
    drive(scene, lambda: scene.step >= last)
    scene.diagnostics.wait(category="ok", mode="tracking", generation=generation, map_points=points)


@pytest.mark.parametrize(
    "make, why",
    [
        (lambda path: None, "unreadable"),
        (lambda path: path.write_bytes(b""), "not_a_cloud"),
        (lambda path: path.write_bytes(b"solid teapot\n" * 50), "not_a_cloud"),
        (lambda path: write_pcd(path, np.ones((100, 2)), "x y"), "missing_field:z"),
        (lambda path: path.write_bytes(write_pcd(path, np.ones((100, 3))).read_bytes()[:-9]), "truncated"),
        (lambda path: write_pcd(path, np.full((100, 3), np.nan)), "empty"),
    ],
    ids=["missing", "empty file", "something else", "no z", "cut", "NaN only"],
)
def test_a_bad_file_ends_the_start(start_node, tmp_path, make, why):
    """Exit code 2, and its name."""
    path = tmp_path / "map.pcd"
    make(path)
    node = start_node(parameters={"map.path": str(path)}, wait=False)
    assert node.wait(15.0) == 2, node.log
    assert str(path) in node.log and why in node.log, node.log


def test_another_building_is_not_this_one(start_node, peer, house_file):
    """Sweeps of a place that the map does not have: no pose."""
    scene = CloudScene(peer)
    start_node(parameters={**FAST, "map.path": str(house_file)}, params_files=FILES)
    scene.connect()
    # Twice as large and mirrored.
    seen = sweep(scene.truth(0) @ matrix(*scene.mount), scene.random) * [2.0, -2.0, 2.0]
    for _ in range(12):
        stamp = time.time_ns() - NANOSECONDS // 50
        scene.send(stamp=stamp, cloud=point_cloud(xyz(seen), stamp))
        time.sleep(PERIOD)
    latest = scene.diagnostics.wait(mode="lost")
    assert latest["category"] in ("low_inliers", "low_overlap", "unconfirmed", "ambiguous", "degenerate"), latest
    assert not scene.poses and not scene.map_odoms()
