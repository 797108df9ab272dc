"""`flashreg replay` and the node give the same poses for the same bag."""

import subprocess
import sys

import numpy as np
from geometry_msgs.msg import PoseWithCovarianceStamped
from node_process import EXECUTABLE, ROOT
from poses import nanoseconds
from ros_peer import wait_until

FLASHREG = EXECUTABLE.with_name("flashreg")
PLAYER = [sys.executable, ROOT / "launch/play_bag.py"]
FILES = [ROOT / "config" / name for name in ("localizer.yaml", "indoor.yaml")]
FRAMES = 50


def rows(path):
    """{stamp in ns: the seven numbers of a pose} of a TUM file."""
    lines = [line.split() for line in path.read_text().splitlines() if not line.startswith("#")]
    stamp = lambda word: int(word.replace(".", ""))  # noqa: E731  nine decimals
    return {stamp(words[0]): np.array(words[1:], float) for words in lines}


def test_node_and_replay_give_the_same_poses(peer, start_node, processes, tmp_path):
    bag, replayed = tmp_path / "drive.mcap", tmp_path / "replayed"
    drive = ["--duration", str(FRAMES / 10), "--correspondences", "600", "--inlier-rate", "0.3"]
    subprocess.run([FLASHREG, "simulate", "--out", bag, *drive], check=True, stdout=subprocess.DEVNULL)
    command = [FLASHREG, "replay", bag, "--preset", "indoor", "--set", "backend.kind=cpu", "--out", replayed]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    expected = rows(replayed / "estimate.tum")
    assert len(expected) > 0.8 * FRAMES

    live = {"use_sim_time": True, "input.qos": "reliable", "backend.kind": "cpu"}
    start_node(parameters=live, params_files=FILES)
    poses = peer.collect(PoseWithCovarianceStamped, "/pose")
    player = processes([*PLAYER, bag, "--sensors-reliable", "--pause-at-end", "--wait-for", "/correspondences_3d3d"])
    last = max(expected)
    wait_until(lambda: poses and nanoseconds(poses[-1].header.stamp) == last, 30.0, "the last pose")
    assert player.running, player.log
    # Messages sent before all subscriptions are known to all are lost.
    assert len(poses) > 0.9 * len(expected)
    for message in poses:
        p, q = message.pose.pose.position, message.pose.pose.orientation
        got, wanted = np.array([p.x, p.y, p.z, q.x, q.y, q.z, q.w]), expected[nanoseconds(message.header.stamp)]
        # A quaternion and its negative are the same rotation.
        got[3:] *= np.sign(got[3:] @ wanted[3:])
        assert np.abs(got - wanted).max() <= 1e-9
