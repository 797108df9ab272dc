"""Services and the initial pose."""

import time

import numpy as np
import pytest
from clouds import point_cloud
from poses import matrix
from ros_peer import wait_until
from scene import FAST, Scene, close_to, matrix_of, turn
from std_srvs.srv import Empty, SetBool, Trigger

GOOD = np.diag([0.25, 0.25, 0.0, 0.0, 0.0, 0.07]).ravel()


@pytest.fixture
def scene(start_node, peer):
    """A drive with a node that has localized once and keeps its transform for long."""
    scene = Scene(peer)
    start_node(parameters={**FAST, "tf.hold_sec": 60.0})
    scene.connect()
    scene.localize()
    scene.diagnostics.wait(category="ok", accepted=1)
    return scene


def generation(scene):
    """As the diagnostics tell it."""
    return int(scene.diagnostics.latest()["generation"])


def test_reset_forgets_the_last_pose(scene, peer):
    """No transform is held after it; the next good message is localized."""
    before = generation(scene)
    peer.call(Empty, "/reinitialize_global_localization")
    scene.diagnostics.wait(category="waiting_input", generation=before + 1)
    sent = len(scene.map_odoms())
    scene.send(landmarks=np.empty((0, 3)), outliers=200)
    scene.diagnostics.wait(rejected_in_a_row=1)
    time.sleep(0.1)
    assert len(scene.map_odoms()) == sent
    scene.localize()


def test_switched_off_nothing_is_published(scene, peer):
    """Messages are counted, the category is inactive; switched on, it goes on."""
    assert peer.call(SetBool, "/flashreg/set_active", SetBool.Request(data=False)).success
    scene.diagnostics.wait(category="inactive")
    poses, sent = len(scene.poses), len(scene.map_odoms())
    scene.send()
    scene.diagnostics.wait(category="inactive", received=2, accepted=1)
    assert len(scene.poses) == poses and len(scene.map_odoms()) == sent
    assert peer.call(SetBool, "/flashreg/set_active", SetBool.Request(data=True)).success
    scene.localize()
    scene.diagnostics.wait(category="ok")


def test_trigger_registers_the_newest_message(scene, peer):
    """Also while switched off, and only once."""
    answer = peer.call(Trigger, "/flashreg/trigger")
    assert answer.success and answer.message.startswith("ok"), answer
    peer.call(SetBool, "/flashreg/set_active", SetBool.Request(data=False))
    scene.diagnostics.wait(category="inactive")
    stamp, _ = scene.send()
    scene.diagnostics.wait(received=3)
    assert scene.pose_at(stamp) is None
    assert peer.call(Trigger, "/flashreg/trigger").success
    wait_until(lambda: scene.pose_at(stamp), what="the pose of the triggered message")
    scene.diagnostics.wait(category="inactive")
    stamp, _ = scene.send()
    scene.diagnostics.wait(received=5)
    assert scene.pose_at(stamp) is None


def test_trigger_says_why_not(start_node, peer):
    """No message, or one that is too old by now."""
    scene = Scene(peer)
    start_node(parameters={**FAST, "input.max_age_sec": 0.3})
    answer = peer.call(Trigger, "/flashreg/trigger")
    assert not answer.success and answer.message == "no message has arrived yet"
    scene.connect()
    scene.localize()
    time.sleep(0.5)
    answer = peer.call(Trigger, "/flashreg/trigger")
    assert not answer.success and answer.message.startswith("stale_input: stamp is"), answer


def test_a_good_initial_pose_is_taken(scene, peer):
    """The generation grows, and nothing is published from it."""
    before, poses = generation(scene), len(scene.poses)
    peer.send_initialpose(time.time_ns(), (0.0, 0.0, 0.0), turn(0, 0, 0.3), GOOD)
    scene.diagnostics.wait(generation=before + 1, refused__initialpose=0)
    time.sleep(0.1)
    assert len(scene.poses) == poses
    scene.localize()


def changed(**entries):
    """GOOD with other entries, by index."""
    covariance = GOOD.copy()
    for name, value in entries.items():
        covariance[int(name[1:])] = value
    return covariance


@pytest.mark.parametrize(
    "fields",
    [
        {"frame_id": "odom"},
        {"frame_id": ""},
        {"position": (np.nan, 0, 0)},
        {"position": (0, np.inf, 0)},
        {"orientation": (0, 0, 0, 0)},
        {"orientation": (0, 0, 0, 1.001)},
        {"orientation": (0, 0, np.nan, 1)},
        {"covariance": changed(i0=np.nan)},
        {"covariance": changed(i0=-1.0)},
        {"covariance": changed(i1=0.1)},
        {"covariance": changed(i1=1.0, i6=1.0)},
    ],
    ids=str,
)
def test_a_bad_initial_pose_is_refused(scene, peer, fields):
    """Counted; the node goes on as before."""
    before = generation(scene)
    good = {"position": (0, 0, 0), "orientation": (0, 0, 0, 1), "covariance": GOOD}
    peer.send_initialpose(time.time_ns(), **{**good, **fields})
    scene.diagnostics.wait(refused__initialpose=1, generation=before)
    scene.localize()


def test_the_initial_pose_settles_an_ambiguity(start_node, peer):
    """Of two poses with equal support the one that was said is published."""
    scene = Scene(peer)
    start_node(parameters=FAST)
    scene.connect()

    def both(stamp):
        here = scene.columns(scene.step)
        kept, scene.map_odom = scene.map_odom, matrix((-3.0, 4.0, 0.0), turn(0.0, 0.0, -1.0))
        there = scene.columns(scene.step)
        scene.map_odom = kept
        return point_cloud({name: np.concatenate([here[name], there[name]]) for name in here}, stamp)

    stamp = time.time_ns()
    scene.send(stamp=stamp, cloud=both(stamp))
    scene.diagnostics.wait(category="ambiguous")
    near = scene.truth(scene.step)
    stamp = time.time_ns()
    scene.send_odometry(stamp, scene.step)
    position = near[:3, 3] + [0.2, -0.1, 0.0]
    peer.send_initialpose(stamp, position, turn(0, 0, 0.7 + 0.02 * scene.step + 0.05), GOOD)
    scene.diagnostics.wait(generation=1)
    stamp = time.time_ns()
    scene.send(stamp=stamp, cloud=both(stamp))
    latest = scene.diagnostics.wait(category="ok", accepted=1)
    assert "settled by the initial pose" in latest["message"]
    assert close_to(matrix_of(scene.transform_at(stamp)), scene.map_odom)
