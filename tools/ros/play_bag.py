#!/usr/bin/env python3
"""Plays an MCAP bag into ROS 2, as `ros2 bag play --clock` does, and can judge the answer.

Messages go out as the bytes that the bag holds. /clock follows the bag's time.

With --listen SCANS, where SCANS is the topic that a localization node answers to, the
map->odom transforms that the node broadcasts are composed with the bag's odom->base_link and
compared with the bag's /ground_truth. Once a second a pose is printed beside the truth, and each
one that is wrong. The exit code is 1 if no pose came, or a wrong one.
"""

import argparse
import importlib
import statistics
import sys
import threading
import time

import rclpy
from mcap.reader import make_reader
from poses import NANOSECONDS, Track, difference, nanoseconds, quaternion, transform_matrix, vector, yaw
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.serialization import deserialize_message
from rosgraph_msgs.msg import Clock
from tf2_msgs.msg import TFMessage

MAP, ODOM, BASE = "map", "odom", "base_link"
TRUTH = "/ground_truth"
LATCHED = {"/tf_static", "/map"}
SENSORS = {"Image", "Imu", "LaserScan", "PointCloud2"}
CLOCK_PERIOD = NANOSECONDS // 100


class Bag:
    """An MCAP file: its topics with their types, and its messages in the order of their log time."""

    def __init__(self, path):
        self._path = path
        with open(path, "rb") as file:
            summary = make_reader(file).get_summary()
        if summary is None or not summary.channels:
            raise ValueError(f"{path} has no summary of its topics: an unfinished recording?")
        self.types = {}
        for channel in summary.channels.values():
            name = summary.schemas[channel.schema_id].name
            package, _, message = name.split("/")
            self.types[channel.topic] = getattr(importlib.import_module(f"{package}.msg"), message)

    def messages(self, *topics):
        """Yields (topic, log time in nanoseconds, bytes) of these topics, or of all."""
        with open(self._path, "rb") as file:
            for _, channel, message in make_reader(file).iter_messages(topics=topics or None):
                yield channel.topic, message.log_time, message.data

    def read(self, topic):
        """Yields the messages of one topic, decoded."""
        for _, _, data in self.messages(topic):
            yield deserialize_message(data, self.types[topic])


class Player:
    """Publishes a bag's messages at their time."""

    def __init__(self, node, bag, rate=1.0, sensors_reliable=False):
        self._bag, self._rate = bag, rate
        self._clock = node.create_publisher(Clock, "/clock", 10)
        self._publishers = {
            topic: node.create_publisher(kind, topic, self._qos(topic, kind, sensors_reliable))
            for topic, kind in bag.types.items()
        }
        # (topic, stamp of the bag) -> when it went out, by time.monotonic()
        self.sent = {}

    @staticmethod
    def _qos(topic, kind, sensors_reliable):
        qos = QoSProfile(depth=100, reliability=ReliabilityPolicy.RELIABLE)
        if topic in LATCHED:
            qos.durability = DurabilityPolicy.TRANSIENT_LOCAL
        if kind.__name__ in SENSORS and not sensors_reliable:
            qos.reliability = ReliabilityPolicy.BEST_EFFORT
        return qos

    def wait_for_subscriber(self, topic, timeout):
        """False if nobody has subscribed to the topic within the time."""
        end = time.monotonic() + timeout
        while not self._publishers[topic].get_subscription_count():
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
        return True

    def play(self):
        """Plays the bag to its end."""
        begin, bag_begin, ticked = time.monotonic(), None, None
        for topic, log_time, data in self._bag.messages():
            if bag_begin is None:
                bag_begin = ticked = log_time
                self._tick(ticked)
            while log_time > ticked:
                ticked = min(ticked + CLOCK_PERIOD, log_time)
                wait = begin + (ticked - bag_begin) / NANOSECONDS / self._rate - time.monotonic()
                if wait > 0:
                    time.sleep(wait)
                self._tick(ticked)
            self.sent[topic, log_time] = time.monotonic()
            self._publishers[topic].publish(data)

    def _tick(self, stamp):
        clock = Clock()
        clock.clock.sec, clock.clock.nanosec = divmod(stamp, NANOSECONDS)
        self._clock.publish(clock)


class Judge:
    """Compares the map->odom transforms on /tf with the truth of the bag."""

    def __init__(self, node, bag, player, scans, transform_tolerance, limits):
        self._player, self._scans, self._limits = player, scans, limits
        self._tolerance = round(transform_tolerance * NANOSECONDS)
        self._truth, self._odometry = Track(), Track()
        for message in bag.read(TRUTH):
            pose = message.pose
            self._truth.add(nanoseconds(message.header.stamp), vector(pose.position), quaternion(pose.orientation))
        for message in bag.read("/tf"):
            for t in message.transforms:
                if (t.header.frame_id, t.child_frame_id) == (ODOM, BASE):
                    place, turn = vector(t.transform.translation), quaternion(t.transform.rotation)
                    self._odometry.add(nanoseconds(t.header.stamp), place, turn)
        # stamp of a scan -> its log time
        self._log_times = {
            nanoseconds(deserialize_message(data, bag.types[scans]).header.stamp): log_time
            for _, log_time, data in bag.messages(scans)
        }
        self._begin = min(self._log_times)
        self._next_line, self._last = self._begin, None
        self._answered, self._errors, self._latencies, self._held, self._wrong = set(), [], [], 0, 0
        node.create_subscription(TFMessage, "/tf", self._hear, QoSProfile(depth=100))

    def _hear(self, message):
        now = time.monotonic()
        for t in message.transforms:
            if (t.header.frame_id, t.child_frame_id) == (MAP, ODOM):
                self._judge(t, now)

    def _judge(self, t, now):
        # The node stamps its transform with the scan's stamp plus a tolerance.
        stamp = nanoseconds(t.header.stamp) - self._tolerance
        log_time = self._log_times.get(stamp)
        sent = self._player.sent.get((self._scans, log_time))
        truth, odometry = self._truth.at(stamp), self._odometry.at(stamp)
        if sent is None or truth is None or odometry is None:
            self._wrong += 1
            print(f"a transform stamped {stamp / NANOSECONDS:.3f} s: no scan with a known pose there", file=sys.stderr)
            return
        # A node that has rejected a scan may send its last transform again, number for number.
        self._held += t.transform == self._last
        self._last = t.transform
        self._answered.add(stamp)
        pose = transform_matrix(t.transform) @ odometry
        metres, degrees = difference(truth, pose)
        latency = (now - sent) * 1e3
        wrong = metres > self._limits[0] or degrees > self._limits[1]
        self._wrong += wrong
        self._errors.append((metres, degrees))
        self._latencies.append(latency)
        if stamp < self._next_line and not wrong:
            return
        self._next_line = stamp + NANOSECONDS
        print(
            f"t {(stamp - self._begin) / NANOSECONDS:6.2f} s   pose {_text(pose)}   truth {_text(truth)}   "
            f"error {metres:.3f} m {degrees:.2f} deg   latency {latency:.1f} ms{'   WRONG' if wrong else ''}",
            flush=True,
        )

    def summary(self):
        """Prints the outcome; True if there are poses and all are right."""
        if not self._errors:
            print("no pose was published")
            return False
        metres, degrees = zip(*self._errors)
        print(
            f"\nposes       {len(self._answered)} of {len(self._log_times)} scans, {self._held} of them held from a "
            f"scan before, {self._wrong} wrong\n"
            f"            (more than {self._limits[0]} m or {self._limits[1]} deg off, or stamped where no scan is)\n"
            f"position    median {statistics.median(metres):.3f} m, max {max(metres):.3f} m\n"
            f"orientation median {statistics.median(degrees):.2f} deg, max {max(degrees):.2f} deg\n"
            f"latency     median {statistics.median(self._latencies):.1f} ms, max {max(self._latencies):.1f} ms "
            "(scan sent to transform received)"
        )
        return self._wrong == 0


def _text(pose):
    x, y, z = pose[:3, 3]
    return f"({x:7.2f} {y:7.2f} {z:6.2f}) {yaw(pose):6.1f} deg"


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bag", help="MCAP file")
    parser.add_argument("--rate", type=float, default=1.0, help="speed, 1 is real time")
    parser.add_argument("--sensors-reliable", action="store_true", help="send sensor topics reliable, not best effort")
    parser.add_argument("--wait-for", metavar="TOPIC", help="begin when this topic has a subscriber, fail after 15 s")
    parser.add_argument("--listen", metavar="SCANS", help="wait for and judge the node that answers to this topic")
    parser.add_argument("--transform-tolerance", type=float, default=0.1, help="tf.transform_tolerance of the node, s")
    parser.add_argument("--max-metres", type=float, default=0.5, help="a pose farther off is wrong")
    parser.add_argument("--max-degrees", type=float, default=5.0, help="a pose turned more is wrong")
    return parser.parse_args()


def main():
    """Runs the player; returns the exit code."""
    options = arguments()
    rclpy.init()
    node = rclpy.create_node("play_bag")
    bag = Bag(options.bag)
    player = Player(node, bag, options.rate, options.sensors_reliable)
    judge = None
    if options.listen:
        limits = options.max_metres, options.max_degrees
        judge = Judge(node, bag, player, options.listen, options.transform_tolerance, limits)
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    hearing = threading.Thread(target=_spin, args=[executor])
    hearing.start()
    try:
        awaited = options.listen or options.wait_for
        if awaited and not player.wait_for_subscriber(awaited, timeout=15.0):
            print(f"nobody has subscribed to {awaited}", file=sys.stderr)
            return 1
        player.play()
        if judge:
            time.sleep(1.0)  # the last answers
            return 0 if judge.summary() else 1
        return 0
    except KeyboardInterrupt:
        return 130
    finally:
        executor.shutdown()
        hearing.join()
        node.destroy_node()
        rclpy.try_shutdown()


def _spin(executor):
    try:
        executor.spin()
    except ExternalShutdownException:
        pass  # Ctrl-C


if __name__ == "__main__":
    sys.exit(main())
