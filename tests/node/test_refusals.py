"""Each refusal has a status, a counter and a text, publishes nothing, and the node goes on."""

import time

import numpy as np
import pytest
from clouds import point_cloud
from poses import NANOSECONDS
from ros_peer import transform, wait_until
from scene import FAST, Scene


@pytest.fixture
def running(start_node, peer):
    """A node that has localized once."""
    scene = Scene(peer)
    diagnostics = scene.diagnostics
    start_node(parameters={**FAST, "tf.hold_sec": 0.0})
    scene.connect()
    scene.localize()
    diagnostics.wait(category="ok", accepted=1)
    return diagnostics, scene


def without(name):
    """A column is missing."""

    def change(scene, stamp):
        columns = scene.columns(1)
        del columns[name]
        return point_cloud(columns, stamp)

    return change


def datatype(number):
    """A PointField type that PCL invented."""

    def change(scene, stamp):
        cloud = scene.cloud(stamp, 1)
        cloud.fields[0].datatype = number
        return cloud

    return change


def attributes(**values):
    """Numbers of the message that contradict each other; values are functions of the old ones."""

    def change(scene, stamp):
        cloud = scene.cloud(stamp, 1)
        for name, value in values.items():
            setattr(cloud, name, value(getattr(cloud, name)))
        return cloud

    return change


def rows(**options):
    """Other rows."""
    return lambda scene, stamp: point_cloud(scene.columns(1, **options), stamp)


def columns(change):
    """Changed columns."""

    def changed(scene, stamp):
        columns = scene.columns(1)
        change(columns)
        return point_cloud(columns, stamp)

    return changed


def stamped(seconds):
    """A stamp that is off by so much."""
    return lambda scene, stamp: scene.cloud(stamp + round(seconds * NANOSECONDS), 1)


def in_frame(name):
    """Another frame of the sensor."""

    def change(scene, stamp):
        cloud = scene.cloud(stamp, 1)
        cloud.header.frame_id = name
        return cloud

    return change


def big_endian_lie(scene, stamp):
    """The flag says big-endian, the bytes are little-endian."""
    cloud = scene.cloud(stamp, 1)
    cloud.is_bigendian = True
    return cloud


def line(scene, stamp):
    """All landmarks on a line."""
    steps = np.linspace(-5, 5, 100)[:, None]
    return scene.cloud(stamp, 1, landmarks=steps * [1.0, 0.5, 0.2] + [0, 0, 1], noise=0.0)


def nan(columns):
    """Makes all but two rows unusable."""
    columns["x"] = columns["x"].copy()
    columns["x"][2:] = np.nan


NOTHING = np.empty((0, 3))
TABLE = [
    # what is sent, category, counter, beginning of the text
    ("no x", without("x"), "bad_input", "refused.missing_field", "missing_field:x"),
    ("no ty", without("ty"), "bad_input", "refused.missing_field", "missing_field:ty"),
    ("PCL type 9", datatype(9), "bad_input", "refused.bad_datatype", "bad_datatype:x=9"),
    ("PCL type 11", datatype(11), "bad_input", "refused.bad_datatype", "bad_datatype:x=11"),
    ("type 0", datatype(0), "bad_input", "refused.bad_datatype", "bad_datatype:x=0"),
    ("point_step", attributes(point_step=lambda n: n - 4), "bad_input", "refused.layout", "bad_point_step"),
    ("row_step", attributes(row_step=lambda n: n - 1), "bad_input", "refused.layout", "data_too_short"),
    ("data", attributes(data=lambda d: d[:-1]), "bad_input", "refused.layout", "data_too_short"),
    ("huge width", attributes(width=lambda n: 2**32 - 1), "bad_input", "refused.layout", "data_too_short"),
    ("huge height", attributes(height=lambda n: 2**32 - 1), "bad_input", "refused.layout", "data_too_short"),
    ("zero points", rows(landmarks=NOTHING), "too_few", "refused.too_few", "empty"),
    ("two points", rows(landmarks=np.ones((2, 3))), "too_few", "refused.too_few", "too_few:2<3"),
    ("NaN but two", columns(nan), "too_few", "refused.too_few", "too_few:2<3"),
    ("endianness", big_endian_lie, "bad_input", "refused.endianness", "bad_endianness:big"),
    ("stamp zero", lambda scene, _: scene.cloud(0, 1), "stale_input", "refused.stamp", "stamp is zero"),
    ("future", stamped(3.0), "stale_input", "refused.stamp", "stamp is 2.9"),
    ("old", stamped(-3.0), "stale_input", "refused.stamp", "stamp is 3.0"),
    ("boot time", stamped(-1e9), "stale_input", "refused.stamp", "stamp is 1000000000"),
    ("unknown frame", in_frame("moon"), "missing_tf", "refused.missing_tf", "frame 'moon' is unknown"),
    ("empty frame", in_frame(""), "missing_tf", "refused.missing_tf", "frame '' is unknown"),
    ("line", line, "degenerate", "rejected.degenerate", ""),
    ("outliers", rows(landmarks=NOTHING, outliers=300), None, None, ""),
]


@pytest.mark.parametrize("make, category, counter, text", [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_refused_named_counted_and_survived(running, make, category, counter, text):
    """Nothing goes out for it; the next good message is localized."""
    diagnostics, scene = running
    sent = len(scene.map_odoms())
    stamp = time.time_ns() - 20_000_000
    scene.send(stamp=stamp, cloud=make(scene, stamp))
    latest = diagnostics.wait(received=2, rejected_in_a_row=1)
    if category:
        assert (latest["category"], latest[counter]) == (category, "1")
        assert latest["message"].startswith(text), latest["message"]
    else:
        assert latest["category"] in ("low_inliers", "ambiguous", "degenerate")
    level = diagnostics.statuses()[-1].level
    assert level == (b"\x02" if category == "bad_input" else b"\x01")
    time.sleep(0.1)
    assert len(scene.poses) == 1 and len(scene.map_odoms()) == sent
    scene.localize()
    diagnostics.wait(category="ok", accepted=2, rejected_in_a_row=0)


def test_bad_rows_are_dropped_and_counted_and_the_rest_is_used(running):
    """NaN, infinity, weights of zero, below, and NaN."""
    diagnostics, scene = running
    scene.step = 1
    columns = scene.columns(1)
    for name, index, value in [("x", 0, np.nan), ("tz", 1, np.inf), ("ty", 2, -np.inf)]:
        columns[name] = columns[name].copy()
        columns[name][index] = value
    columns["weight"] = np.ones(300, np.float32)
    columns["weight"][[3, 4, 5]] = [0.0, -1.0, np.nan]
    stamp = time.time_ns()
    scene.localize(stamp=stamp, cloud=point_cloud(columns, stamp))
    diagnostics.wait(
        category="ok", dropped_rows__non_finite=3, dropped_rows__weight=3, correspondences=300, after_filter=294
    )


def test_the_heaviest_rows_are_kept(start_node, peer):
    """Of too many rows; the light ones are wrong here."""
    scene = Scene(peer)
    diagnostics = scene.diagnostics
    start_node(parameters={**FAST, "registration.max_correspondences": 300})
    scene.connect()
    columns = scene.columns(0, outliers=200)
    columns["weight"] = np.repeat(np.float32([2.0, 1.0]), [300, 200])
    stamp = time.time_ns()
    scene.localize(stamp=stamp, cloud=point_cloud(columns, stamp))
    diagnostics.wait(category="ok", truncated_rows=200, correspondences=500, after_filter=300)


@pytest.mark.parametrize("dtype, options", [(np.float64, {}), (np.float32, {"big_endian": True}), (np.float32, {"padding": 5})])
def test_other_layouts_are_read(running, dtype, options):
    """Double precision, big-endian, padding."""
    _, scene = running
    stamp = time.time_ns()
    scene.localize(stamp=stamp, cloud=point_cloud(scene.columns(scene.step, dtype=dtype), stamp, **options))


def test_force_little_endian(running, peer):
    """For drivers that set is_bigendian wrongly."""
    _, scene = running
    (result,) = peer.set_parameters({"input.force_little_endian": True})
    assert result.successful
    stamp = time.time_ns()
    cloud = scene.cloud(stamp, scene.step)
    cloud.is_bigendian = True
    scene.localize(stamp=stamp, cloud=cloud)


def test_stamp_zero_means_now_if_asked_for(start_node, peer):
    """input.stamp_zero: now. Odometry has to be known up to now, so it is told ahead."""
    scene = Scene(peer)
    diagnostics = scene.diagnostics
    start_node(parameters={**FAST, "input.stamp_zero": "now"})
    scene.connect()
    scene.send_odometry(time.time_ns(), 0)
    scene.send_odometry(time.time_ns() + NANOSECONDS, 0)
    peer.send_cloud(scene.cloud(0, 0))
    diagnostics.wait(category="ok", accepted=1)
    (pose,) = wait_until(lambda: list(scene.poses), what="the pose")
    assert abs(pose.header.stamp.sec - time.time()) < 3


def test_a_late_transform_is_waited_for(start_node, peer):
    """Odometry that comes 50 ms after the message; and one that does not come."""
    scene = Scene(peer)
    diagnostics = scene.diagnostics
    start_node(parameters={**FAST, "tf.wait_sec": 0.5})
    scene.connect()
    scene.send_odometry(time.time_ns() - NANOSECONDS // 2, 0)
    stamp = time.time_ns()
    peer.send_cloud(scene.cloud(stamp, 0))
    time.sleep(0.05)
    assert not scene.poses
    scene.send_odometry(stamp, 0)
    wait_until(lambda: scene.pose_at(stamp), 0.4, "the pose of the message that waited")
    peer.send_cloud(scene.cloud(time.time_ns(), 0))
    latest = diagnostics.wait(category="missing_tf", refused__missing_tf=1)
    assert "is known only until" in latest["message"]
    assert len(scene.poses) == 1


def test_a_newer_message_replaces_one_that_waits(start_node, peer):
    """Neither blocks the other."""
    scene = Scene(peer)
    diagnostics = scene.diagnostics
    start_node(parameters={**FAST, "tf.wait_sec": 3.0})
    scene.connect()
    scene.send_odometry(time.time_ns(), 0)
    time.sleep(0.1)
    peer.send_cloud(scene.cloud(time.time_ns(), 0))
    time.sleep(0.2)
    stamp = time.time_ns()
    peer.send_cloud(scene.cloud(stamp, 0))
    time.sleep(0.2)
    scene.send_odometry(stamp, 0)
    wait_until(lambda: scene.pose_at(stamp), 1.0, "the pose of the newer message")
    diagnostics.wait(received=2, overwritten=1, accepted=1)


@pytest.mark.parametrize(
    "bad",
    [
        transform("odom", "base_link", 0, (np.nan, 0, 0)),
        transform("odom", "base_link", 0, (0, 0, 0), (0, 0, 0, 0)),
        transform("odom", "base_link", 0, (0, 0, 0), (0, 0, 0, 2)),
        transform("base_link", "base_link", 0),
        transform("lidar", "odom", 0),
        transform("", "", 0),
    ],
    ids=["NaN", "zero quaternion", "long quaternion", "own parent", "loop", "no names"],
)
def test_bad_transforms_are_not_taken(running, bad, peer):
    """Nor do they spoil what is known."""
    _, scene = running
    stamp = time.time_ns() - 10_000_000
    bad.header.stamp.sec, bad.header.stamp.nanosec = divmod(stamp, NANOSECONDS)
    peer.send_tf(bad)
    scene.localize()
