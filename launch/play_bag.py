#!/usr/bin/env python3
"""Plays an MCAP bag into ROS 2: any topic whose type is installed, as the bytes that the bag holds.

/clock follows the bag's time, so that nodes with use_sim_time live in it. ROS arguments (remappings,
a namespace) follow --ros-args.
"""

import argparse
import importlib
import sys
import threading
import time

import rclpy
from mcap.reader import make_reader
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.signals import SignalHandlerOptions
from rclpy.utilities import remove_ros_args
from rosgraph_msgs.msg import Clock

NANOSECONDS = 1_000_000_000
LATCHED = {"/tf_static", "/map"}
SENSORS = {"Image", "Imu", "LaserScan", "PointCloud2"}
CLOCK_PERIOD = NANOSECONDS // 100


class Bag:
    """An MCAP file: its topics with their types, and its messages in the order of their log time."""

    def __init__(self, path, topics=()):
        self._path = path
        with open(path, "rb") as file:
            summary = make_reader(file).get_summary()
        if summary is None or not summary.channels:
            raise ValueError(f"{path} has no summary of its topics: an unfinished recording?")
        self.types, self.skipped = {}, {}
        for channel in summary.channels.values():
            if topics and channel.topic not in topics:
                continue
            name = summary.schemas[channel.schema_id].name
            try:
                package, _, message = name.split("/")
                self.types[channel.topic] = getattr(importlib.import_module(f"{package}.msg"), message)
            except (ImportError, AttributeError, ValueError):
                self.skipped[channel.topic] = name
        missing = [topic for topic in topics if topic not in self.types and topic not in self.skipped]
        if missing:
            raise ValueError(f"{path} has no topic {', '.join(missing)}")

    def messages(self, *topics, start=None):
        """Yields (topic, log time in nanoseconds, bytes) of these topics, or of all; from a log time on."""
        with open(self._path, "rb") as file:
            wanted = topics or list(self.types)
            for _, channel, message in make_reader(file).iter_messages(topics=wanted, starting_at=start):
                yield channel.topic, message.log_time, message.data


class Player:
    """Publishes a bag's messages at their time."""

    def __init__(self, node, bag, rate=1.0, sensors_reliable=False):
        self._bag, self._rate = bag, rate
        self._clock = node.create_publisher(Clock, "/clock", 10)
        self._publishers = {
            topic: node.create_publisher(kind, topic, self._qos(topic, kind, sensors_reliable))
            for topic, kind in bag.types.items()
        }
        self._last = 0
        # (topic, stamp of the bag) -> when it went out, by time.monotonic()
        self.sent = {}

    @staticmethod
    def _qos(topic, kind, sensors_reliable):
        qos = QoSProfile(depth=100, reliability=ReliabilityPolicy.RELIABLE)
        if topic in LATCHED:
            qos.durability = DurabilityPolicy.TRANSIENT_LOCAL
        elif kind.__name__ in SENSORS and not sensors_reliable:
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

    def play(self, start=0.0):
        """Plays the bag from `start` seconds after its beginning to its end; what is latched always."""
        first = next((log_time for _, log_time, _ in self._bag.messages()), None)
        if first is None:
            return
        bag_begin = ticked = first + round(start * NANOSECONDS)
        self._tick(ticked)
        for topic in LATCHED & set(self._bag.types):
            for _, log_time, data in self._bag.messages(topic):
                if log_time < bag_begin:
                    self._publishers[topic].publish(data)
        begin = time.monotonic()
        for topic, log_time, data in self._bag.messages(start=bag_begin):
            while log_time > ticked:
                ticked = min(ticked + CLOCK_PERIOD, log_time)
                wait = begin + (ticked - bag_begin) / NANOSECONDS / self._rate - time.monotonic()
                if wait > 0:
                    time.sleep(wait)
                self._tick(ticked)
            self.sent[topic, log_time] = time.monotonic()
            self._publishers[topic].publish(data)

    def stand_still(self):
        """Publishes the last time again and again until ROS is shut down."""
        while rclpy.ok():
            self._tick(self._last)
            time.sleep(0.1)

    def _tick(self, stamp):
        self._last = stamp
        clock = Clock()
        clock.clock.sec, clock.clock.nanosec = divmod(stamp, NANOSECONDS)
        self._clock.publish(clock)


def parser(description):
    """The options of whatever plays a bag."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("bag", help="MCAP file")
    made.add_argument("--rate", type=_above_zero, default=1.0, help="speed, 1 is real time")
    made.add_argument("--sensors-reliable", action="store_true", help="send sensor topics reliable, not best effort")
    return made


def _above_zero(text):
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not above zero")
    return value


def _seconds(text):
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not zero or more")
    return value


def _absolute(topic):
    return f"/{topic.lstrip('/')}"


def arguments(words):
    """The command line, without ROS arguments."""
    made = parser(__doc__)
    made.add_argument("--start", type=_seconds, default=0.0, metavar="SECONDS", help="begin so far into the bag")
    made.add_argument("--topics", nargs="+", default=[], metavar="TOPIC", help="play these only")
    made.add_argument("--loop", action="store_true", help="begin anew at the end; time jumps back")
    made.add_argument("--pause-at-end", action="store_true", help="stay at the end, with /clock, until Ctrl-C")
    made.add_argument("--wait-for", nargs="+", default=[], type=_absolute, metavar="TOPIC",
                      help="begin when those of these topics that are played have a subscriber, fail after 15 s")
    return made.parse_args(words)


def run(name, bag, options, act, stopped=130):
    """Runs `act(node, player)` beside a spinning node; returns its exit code, or `stopped` after Ctrl-C."""
    # Otherwise Ctrl-C takes ROS away before it is known here.
    rclpy.init(args=sys.argv, signal_handler_options=SignalHandlerOptions.NO)
    node = rclpy.create_node(name)
    player = Player(node, bag, options.rate, options.sensors_reliable)
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    hearing = threading.Thread(target=_spin, args=[executor])
    hearing.start()
    try:
        return act(node, player)
    except KeyboardInterrupt:
        return stopped
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


def wait_for(player, topic):
    """Waits for a subscriber; says so and gives False if none comes."""
    if player.wait_for_subscriber(topic, timeout=15.0):
        return True
    print(f"nobody has subscribed to {topic}", file=sys.stderr)
    return False


def main():
    """Plays; returns the exit code."""
    options = arguments(remove_ros_args(sys.argv)[1:])
    try:
        bag = Bag(options.bag, options.topics)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for topic, kind in bag.skipped.items():
        print(f"not played: {topic}, {kind} is not installed", file=sys.stderr)
    awaited = [topic for topic in options.wait_for if topic in bag.types]
    if options.wait_for and not awaited:
        print(f"error: {', '.join(options.wait_for)} is not played", file=sys.stderr)
        return 1

    def play(_, player):
        if not all(wait_for(player, topic) for topic in awaited):
            return 1
        player.play(options.start)
        while options.loop:
            player.play(options.start)
        if options.pause_at_end:
            player.stand_still()
        return 0

    # What never ends by itself is not cut short by Ctrl-C.
    return run("play_bag", bag, options, play, stopped=0 if options.loop or options.pause_at_end else 130)


if __name__ == "__main__":
    sys.exit(main())
