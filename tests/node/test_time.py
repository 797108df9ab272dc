"""Simulated time, and a clock that jumps back as a bag does that is played in a loop."""

import time

import pytest
from poses import NANOSECONDS
from ros_peer import wait_until
from scene import FAST, Scene

SECOND = NANOSECONDS


class Clock:
    """The simulated time of a test; each look at it sends it."""

    def __init__(self, peer, seconds):
        self._peer, self.now = peer, round(seconds * SECOND)

    def tick(self, seconds=0.1):
        """Moves the time on, sends it, and returns it."""
        self.now += round(seconds * SECOND)
        self._peer.send_clock(self.now)
        return self.now


def test_simulated_time_is_followed(start_node, peer):
    """Stamps near 1000 s are neither old nor in the future; diagnostics carry them too."""
    scene, clock = Scene(peer), Clock(peer, 1000.0)
    start_node(parameters={**FAST, "use_sim_time": True})
    scene.connect(now=clock.tick)
    for _ in range(5):
        scene.localize(stamp=clock.tick())
    scene.diagnostics.wait(category="ok", accepted=5)
    assert 1000 <= scene.diagnostics.messages[-1].header.stamp.sec <= 1010
    scene.send(stamp=clock.now - 5 * SECOND)
    scene.diagnostics.wait(category="stale_input", refused__stamp=1)


def test_nothing_is_refused_before_the_clock_comes(start_node, peer):
    """A message waits for the first /clock."""
    scene = Scene(peer)
    start_node(parameters={**FAST, "use_sim_time": True})
    scene.topic, clock = "/correspondences_3d3d", Clock(peer, 500.0)
    for topic in ("/clock", scene.topic):
        wait_until(lambda topic=topic: peer.node.count_subscribers(topic) > 0, 5.0, f"a subscriber of {topic}")
    time.sleep(0.5)
    peer.send_static_tf()
    stamp, _ = scene.send(stamp=500 * SECOND)
    told = lambda: "no /clock has arrived" in scene.diagnostics.latest().get("message", "")  # noqa: E731
    wait_until(told, 5.0, "word of the clock")
    time.sleep(0.5)
    scene.diagnostics.wait(category="waiting_input", refused__stamp=0)
    scene.connect(now=clock.tick)
    scene.localize(stamp=clock.tick())
    assert scene.diagnostics.number("refused.stamp") == 0


@pytest.mark.parametrize("held", [0.5, 60.0])
def test_a_bag_in_a_loop(start_node, peer, held):
    """The clock jumps back: the past is forgotten and counted, static transforms are kept."""
    scene, clock = Scene(peer), Clock(peer, 100.0)
    start_node(parameters={**FAST, "use_sim_time": True, "tf.hold_sec": held})
    scene.connect(now=clock.tick)
    for loop in range(3):
        for _ in range(5):
            scene.localize(stamp=clock.tick(0.5))
        scene.diagnostics.wait(category="ok", accepted=5 * (loop + 1), clock_jumps=loop, generation=loop)
        clock.now = 100 * SECOND
        clock.tick()
        # The stamps of the next loop are those of this one.
        scene.poses.clear()
        scene.transforms.clear()
        scene.diagnostics.wait(clock_jumps=loop + 1, generation=loop + 1)


def test_use_sim_time_at_run_time(start_node, peer):
    """On and off again."""
    scene, clock = Scene(peer), Clock(peer, 2000.0)
    start_node(parameters=FAST)
    scene.connect()
    scene.localize()
    assert peer.set_parameters({"use_sim_time": True})[0].successful
    wait_until(lambda: peer.node.count_subscribers("/clock") > 0, 5.0, "a subscriber of /clock")
    wait_until(lambda: clock.tick(0.0) and scene.diagnostics.messages[-1].header.stamp.sec == 2000, 5.0, "the time")
    scene.localize(stamp=clock.tick())
    assert peer.set_parameters({"use_sim_time": False})[0].successful
    wait_until(lambda: scene.diagnostics.messages[-1].header.stamp.sec > 10000, 5.0, "the time")
    scene.localize()
