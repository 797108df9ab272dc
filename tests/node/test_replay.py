"""flashreg_replay: what it says of a node that answers, and of one that does not."""

import json

import numpy as np
from node_process import EXECUTABLE
from poses import matrix

REPLAY = EXECUTABLE.with_name("flashreg_replay")
FAST = {"diagnostics.period_sec": 0.1, "input.qos": "reliable", "backend.kind": "cpu"}


def write_rows(path, right):
    """500 rows of which so many follow a pose."""
    random = np.random.default_rng(3)
    source, target = random.uniform(-3, 3, (500, 3)), random.uniform(-3, 3, (500, 3))
    pose = matrix((1.0, 2.0, 0.5), (0.0, 0.0, 0.6, 0.8))
    target[:right] = source[:right] @ pose[:3, :3].T + pose[:3, 3]
    np.savetxt(path, np.hstack([source, target]))
    return path


def test_every_message_is_answered_and_timed(start_node, processes, tmp_path):
    start_node(parameters=FAST)
    file = write_rows(tmp_path / "rows.txt", 200)
    replay = processes([REPLAY, file, "--count", "30", "--rate", "200", "--json"])
    assert replay.wait(30.0) == 0, replay.log
    report = json.loads(replay.log)
    node, trip = report["node"], report["round_trip_ms"]
    assert (report["rows"], report["sent"], report["answered"]) == (500, 30, 30)
    assert (node["received"], node["accepted"], node["overwritten"], node["backend"]) == ("30", "30", "0", "cpu")
    total, age = (float(node[f"latency_us.{name}.p50"]) / 1e3 for name in ("total", "age"))
    # The stamp is older than the arrival. The round trip ends with tf, before the pose is sent.
    assert 0.0 < total < age < 1000.0 and 0.5 * total < trip["p50"] <= trip["max"] < 1000.0, report


def test_no_pose_is_no_answer(start_node, processes, tmp_path):
    start_node(parameters=FAST)
    replay = processes([REPLAY, write_rows(tmp_path / "rows.txt", 0), "--count", "2"])
    assert replay.wait(30.0) == 1, replay.log
    assert "2 sent, 0 answered; node: 0 accepted" in replay.log
