"""Trajectory errors of a replay agree with evo, on the files that the replay wrote.

The folders are those that `cargo test --test replay_files` leaves.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from evo.core.metrics import APE, RPE, PoseRelation, Unit
from evo.core.sync import associate_trajectories
from evo.core.trajectory import PoseTrajectory3D

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "tmp" / "replay"
RELATIONS = {"translation_m": PoseRelation.translation_part, "rotation_deg": PoseRelation.rotation_angle_deg}


def read(path):
    rows = np.loadtxt(path)
    return PoseTrajectory3D(rows[:, 1:4], rows[:, [7, 4, 5, 6]], rows[:, 0])


def pair(truth, estimate):
    """As `evo_ape tum` takes two files."""
    return associate_trajectories(read(FOLDERS / truth / "groundtruth.tum"), read(FOLDERS / estimate / "estimate.tum"))


def agree(metric, trajectories, ours):
    metric.process_data(trajectories)
    theirs = metric.get_all_statistics()
    for name in ["rmse", "mean", "median", "min", "max"]:
        assert ours[name] == pytest.approx(theirs[name], rel=0, abs=1e-6), name
    return len(metric.error)


def summary(folder):
    return json.loads((FOLDERS / folder / "result.json").read_text())["summary"]


@pytest.mark.parametrize("key", RELATIONS)
def test_absolute_errors(key):
    ours = summary("drive")["ate"]
    assert agree(APE(RELATIONS[key]), pair("drive", "drive"), ours[key]) == ours["pairs"] > 5000


@pytest.mark.parametrize("key", RELATIONS)
def test_absolute_errors_after_alignment(key):
    truth, estimate = pair("drive", "aligned")
    estimate.align(truth)
    ours = summary("aligned")["ate"]
    assert agree(APE(RELATIONS[key]), (truth, estimate), ours[key]) == ours["pairs"]
    assert ours["translation_m"]["rmse"] < summary("drive")["ate"]["translation_m"]["rmse"]


METRES = pytest.param(
    *("aligned", 10.0, Unit.meters),
    marks=pytest.mark.skipif(sys.version_info < (3, 11), reason="evo for Python 3.10 leaves out the first step"),
)


@pytest.mark.parametrize("key", RELATIONS)
@pytest.mark.parametrize("folder, delta, unit", [("drive", 1, Unit.frames), ("frames", 7, Unit.frames), METRES])
def test_relative_errors(folder, delta, unit, key):
    ours = summary(folder)["rpe"]
    metric = RPE(RELATIONS[key], delta, unit)
    assert agree(metric, pair(folder, folder), ours[key]) == ours["pairs"] > 30
