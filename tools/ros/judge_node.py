#!/usr/bin/env python3
"""Plays an MCAP bag to a localization node and judges its answers.

The map->odom transforms that the node broadcasts are composed with the bag's odom->base_link and
compared with the bag's /ground_truth. Once a second a pose is printed beside the truth, and each
one that is wrong. The exit code is 1 if no pose came, or a wrong one.
"""

import statistics
import sys
import time
from pathlib import Path

from poses import NANOSECONDS, Track, difference, nanoseconds, quaternion, transform_matrix, vector, yaw
from rclpy.qos import QoSProfile
from rclpy.serialization import deserialize_message
from tf2_msgs.msg import TFMessage

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "launch"))
import play_bag  # noqa: E402

MAP, ODOM, BASE = "map", "odom", "base_link"
TRUTH = "/ground_truth"


def _read(bag, topic):
    """Yields the messages of one topic, decoded."""
    for _, _, data in bag.messages(topic):
        yield deserialize_message(data, bag.types[topic])


class Judge:
    """Compares the map->odom transforms on /tf with the truth of the bag."""

    def __init__(self, node, bag, player, scans, transform_tolerance, limits):
        self._player, self._scans, self._limits = player, scans, limits
        self._tolerance = round(transform_tolerance * NANOSECONDS)
        self._truth, self._odometry = Track(), Track()
        for message in _read(bag, TRUTH):
            pose = message.pose
            self._truth.add(nanoseconds(message.header.stamp), vector(pose.position), quaternion(pose.orientation))
        for message in _read(bag, "/tf"):
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
    parser = play_bag.parser(__doc__)
    parser.add_argument("--listen", metavar="SCANS", required=True, help="the topic that the node answers to")
    parser.add_argument("--transform-tolerance", type=float, default=0.1, help="tf.transform_tolerance of the node, s")
    parser.add_argument("--max-metres", type=float, default=0.5, help="a pose farther off is wrong")
    parser.add_argument("--max-degrees", type=float, default=5.0, help="a pose turned more is wrong")
    return parser.parse_args()


def main():
    """Plays and judges; returns the exit code."""
    options = arguments()
    bag = play_bag.Bag(options.bag)

    def act(node, player):
        limits = options.max_metres, options.max_degrees
        judge = Judge(node, bag, player, options.listen, options.transform_tolerance, limits)
        if not play_bag.wait_for(player, options.listen):
            return 1
        player.play()
        time.sleep(1.0)  # the last answers
        return 0 if judge.summary() else 1

    return play_bag.run("judge_node", bag, options, act)


if __name__ == "__main__":
    sys.exit(main())
