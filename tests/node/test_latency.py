"""What the node adds to a registration."""

import statistics
import time

from clouds import point_cloud
from poses import nanoseconds
from ros_peer import wait_until
from scene import Scene


def test_the_node_adds_less_than_two_milliseconds(start_node, peer):
    """5,000 correspondences: from the arrival of a message until tf is sent, without the registration."""
    scene = Scene(peer, count=2500)
    start_node(parameters={"diagnostics.period_sec": 0.1, "input.qos": "reliable"})
    send_cloud = peer.send_cloud
    peer.send_cloud = lambda cloud, topic: send_cloud(cloud, topic, reliable=True)
    scene.connect()
    round_trips = []
    clouds = [scene.columns(step, outliers=2500) for step in range(40)]

    for step, columns in enumerate(clouds):
        stamp = time.time_ns()
        scene.send_odometry(stamp, step)
        time.sleep(0.05)
        cloud = point_cloud(columns, stamp)
        begin = time.perf_counter()
        peer.send_cloud(cloud, scene.topic)
        wanted = stamp + 100_000_000
        wait_until(lambda: any(abs(nanoseconds(t.header.stamp) - wanted) < 2 for t in scene.map_odoms()), 20.0, "tf")
        round_trips.append((time.perf_counter() - begin) * 1e3)
    latest = scene.diagnostics.wait(category="ok", accepted=40, correspondences=5000)
    times = {key: float(value) / 1e3 for key, value in latest.items() if key.startswith("latency_us.")}
    for name in ("total", "overhead", "parse", "publish"):
        print(name.ljust(9), *(f"{rank} {times[f'latency_us.{name}.{rank}']:.3f} ms" for rank in ("p50", "p95", "max")))
    print(f"round trip seen by the peer: median {statistics.median(round_trips):.1f} ms")
    assert 0.0 < times["latency_us.overhead.p50"] < 2.0
    assert times["latency_us.total.p50"] >= times["latency_us.overhead.p50"]
