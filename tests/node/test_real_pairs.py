"""Real scans with known poses, through the running node: all are localized, no chance match is.

The data lie beside the checkout, in ../shared/data/registration (or $FLASHREG_DATA/registration);
without them the tests are skipped. Two presets, nothing is tuned for a pair.
"""

import json
import os
import pathlib
import time

import numpy as np
import pytest
from clouds import correspondences, point_cloud
from node_process import ROOT
from poses import NANOSECONDS, difference, matrix, nanoseconds, pose_matrix, transform_matrix
from ros_peer import wait_until
from scene import Scene, turn

DATA = pathlib.Path(os.environ.get("FLASHREG_DATA", ROOT.parent / "shared/data")) / "registration"
TRUTH = json.loads((DATA / "truth.json").read_text()) if (DATA / "truth.json").exists() else {}
FILES = [(pair, name) for pair in sorted(TRUTH) for name in sorted(TRUTH[pair]["correspondences"])]
pytestmark = pytest.mark.skipif(not TRUTH, reason="skipped: no data")

SHUFFLES = int(os.environ.get("FLASHREG_SHUFFLES", 200))
RANDOM_SETS = int(os.environ.get("FLASHREG_RANDOM_SETS", 500))
PRESETS = {"indoor": False, "outdoor": True}
# Half the size of the box in which random correspondences lie, metres.
BOXES = {"indoor": (2.0, 2.0, 1.5), "outdoor": (40.0, 40.0, 8.0)}


def load(pair, name):
    """(source, target, target_t_source) of a correspondence file."""
    rows = np.loadtxt(DATA / pair / f"corr_{name}.txt")
    return rows[:, :3], rows[:, 3:6], np.loadtxt(DATA / pair / "gt.txt")


class Node:
    """A node with a preset, a mounted sensor, and odometry that is somewhere."""

    MOUNT = matrix((0.4, -0.2, 1.1), turn(0.1, -0.2, 2.0))
    ODOMETRY = ((12.0, -7.0, 0.5), turn(0.02, -0.01, -1.3))

    def __init__(self, start_node, peer, preset):
        self.peer = peer
        self.scene = Scene(peer)
        self.scene.mount = ((0.4, -0.2, 1.1), turn(0.1, -0.2, 2.0))
        self.scene.odometry = lambda step: self.ODOMETRY
        files = [ROOT / "config/localizer.yaml", ROOT / f"config/{preset}.yaml"]
        # The last accepted transform is sent again for each rejected message: it tells that the
        # message has been looked at.
        parameters = {"input.qos": "reliable", "tf.hold_sec": 3600.0, "input.max_age_sec": 600.0, "diagnostics.period_sec": 0.05}
        self.process = start_node(parameters=parameters, params_files=files)
        send_cloud = peer.send_cloud
        peer.send_cloud = lambda cloud, topic="/correspondences_3d3d": send_cloud(cloud, topic, reliable=True)
        self.scene.connect()

    def send(self, source, target):
        """Sends a set and waits until it was looked at; returns (stamp, milliseconds)."""
        stamp = time.time_ns()
        self.scene.send_odometry(stamp, 0)
        cloud = point_cloud(correspondences(source, target), stamp)
        begin = time.perf_counter()
        self.peer.send_cloud(cloud)
        wanted = stamp + NANOSECONDS // 10

        def answered():
            newest = self.scene.transforms[-50:]
            return any(t.header.frame_id == "map" and abs(nanoseconds(t.header.stamp) - wanted) < 2 for t in newest)

        try:
            wait_until(answered, 20.0, "an answer on /tf")
        except AssertionError:
            assert self.process.running, self.process.log
            if self.scene.map_odoms():
                raise
        return stamp, (time.perf_counter() - begin) * 1e3

    def map_t_sensor(self, stamp):
        """The pose of the sensor, composed from tf as any consumer does."""
        map_odom = transform_matrix(self.scene.transform_at(stamp).transform)
        return map_odom @ matrix(*self.ODOMETRY) @ self.MOUNT


def registration_ms(diagnostics):
    """Milliseconds of the registration of the last message."""
    stages = ("upload", "fog", "sog", "pivots", "cliques", "hypotheses", "refine")
    return sum(float(diagnostics[f"stage_us.{stage}"]) for stage in stages) / 1e3


@pytest.mark.parametrize("preset", PRESETS)
def test_every_pair_is_localized(start_node, peer, preset):
    """Within the bound of its data set, with status ok, on tf and on the pose topic."""
    node = Node(start_node, peer, preset)
    files = [(pair, name) for pair, name in FILES if TRUTH[pair]["outdoor"] == PRESETS[preset]]
    assert files
    failures = []
    print(f"\n{'pair':38} {'N':>5} {'inliers':>7} {'RE deg':>7} {'TE m':>6} {'status':12} {'ms':>7} {'registration ms':>15}")
    for count, (pair, name) in enumerate(files, 1):
        source, target, truth = load(pair, name)
        stamp, milliseconds = node.send(source, target)
        latest = node.scene.diagnostics.wait(10.0, received=count)
        status, angle, distance = latest["category"], float("nan"), float("nan")
        if status == "ok":
            distance, angle = difference(node.map_t_sensor(stamp), truth)
            pose = wait_until(lambda: node.scene.pose_at(stamp), what="the pose")
            agrees = np.allclose(pose_matrix(pose.pose.pose) @ node.MOUNT, node.map_t_sensor(stamp), atol=1e-6)
            assert agrees and pose.header.frame_id == "map"
        bound = TRUTH[pair]
        right = status == "ok" and angle < bound["max_rotation_deg"] and distance < bound["max_translation_m"]
        print(
            f"{pair + ' ' + name:38} {len(source):5} {latest['inliers']:>7} {angle:7.3f} {distance:6.3f}"
            f" {status:12} {milliseconds:7.1f} {registration_ms(latest):15.1f}"
        )
        if not right:
            failures.append((pair, name, status, latest["message"], angle, distance))
    assert not failures, failures


def chance_sets(preset):
    """(name, source, target) of sets that have nothing in common but chance; the same each time."""
    for pair, name in FILES:
        if TRUTH[pair]["outdoor"] == PRESETS[preset]:
            source, target, _ = load(pair, name)
            random = np.random.default_rng([1, len(source)])
            for _ in range(SHUFFLES):
                yield f"{pair} {name}, shuffled", source, random.permutation(target)
    random = np.random.default_rng([2, len(preset)])
    box = np.array(BOXES[preset])
    for _ in range(RANDOM_SETS):
        count = int(random.integers(500, 6001))
        yield "random", random.uniform(-box, box, (count, 3)), random.uniform(-box, box, (count, 3))


@pytest.mark.parametrize("preset", PRESETS)
def test_chance_is_never_localized(start_node, peer, preset):
    """Targets of real files shuffled, and random points: not one pose."""
    node = Node(start_node, peer, preset)
    node.scene.localize()
    sets, begin, wrong = 0, time.monotonic(), []
    poses = len(node.scene.poses)
    for name, source, target in chance_sets(preset):
        node.send(source, target)
        sets += 1
        if len(node.scene.poses) > poses:
            poses = len(node.scene.poses)
            wrong.append((sets, name))
    latest = node.scene.diagnostics.wait(10.0, received=sets + 1)
    seconds = time.monotonic() - begin
    rejected = {key: value for key, value in latest.items() if key.startswith(("rejected.", "refused.")) and value != "0"}
    print(f"\n{preset}: {sets} sets in {seconds:.0f} s, accepted {int(latest['accepted']) - 1}, {rejected}")
    assert not wrong and latest["accepted"] == "1"
    assert sum(map(int, rejected.values())) == sets
