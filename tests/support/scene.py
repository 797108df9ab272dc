"""A robot that drives past landmarks: odometry, a mounted sensor, correspondences, and the truth."""

import time

import numpy as np
from clouds import correspondences, point_cloud
from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import PoseWithCovarianceStamped
from poses import NANOSECONDS, difference, matrix, nanoseconds, pose_matrix, transform_matrix
from ros_peer import transform, wait_until

FAST = {"diagnostics.period_sec": 0.1}


def turn(*rotation_vector):
    """Quaternion (x, y, z, w) of a rotation vector in radians."""
    vector = np.array(rotation_vector, float)
    angle = np.linalg.norm(vector)
    axis = vector / angle if angle > 0 else vector
    return (*(axis * np.sin(angle / 2)), np.cos(angle / 2))


def close_to(pose, truth, metres=0.02, degrees=0.5):
    """Whether two poses are the same within bounds."""
    distance, angle = difference(pose, truth)
    return distance < metres and angle < degrees


class Diagnostics:
    """What the node says about itself. Counters are told as they have grown since count_from_here()."""

    def __init__(self, peer, node="flashreg", of="localization"):
        self._name = f"{node}: {of}"
        self._before = {}
        self.messages = peer.collect(DiagnosticArray, "/diagnostics")

    def statuses(self):
        """All statuses of the node so far."""
        return [status for message in list(self.messages) for status in message.status if status.name == self._name]

    def latest(self):
        """Keys and values of the newest status, {} before the first."""
        statuses = self.statuses()
        values = {pair.key: pair.value for pair in statuses[-1].values} if statuses else {}
        return {key: str(int(value) - self._before.get(key, 0)) if is_counter(key) else value for key, value in values.items()}

    def count_from_here(self):
        """Forgets what has been counted so far."""
        self._before = {}
        self._before = {key: int(value) for key, value in self.latest().items() if is_counter(key)}

    def number(self, key):
        """A counter of the newest status."""
        return int(self.latest().get(key, 0))

    def wait(self, timeout=5.0, **wanted):
        """Waits until the newest status has all these values; a dot in a key is written as __."""
        keys = {key.replace("__", "."): str(value) for key, value in wanted.items()}

        def fits():
            latest = self.latest()
            return latest if latest and all(latest.get(key) == value for key, value in keys.items()) else None

        try:
            return wait_until(fits, timeout, f"diagnostics with {keys}")
        except AssertionError as error:
            latest = self.latest()
            seen = {key: latest.get(key) for key in {"category", "message", *keys}}
            raise AssertionError(f"{error}; the last had {seen}") from None


def is_counter(key):
    """Keys that only ever grow."""
    return key in ("received", "overwritten", "accepted", "truncated_rows") or key.startswith(
        ("refused.", "rejected.", "dropped_rows.")
    )


class Scene:
    """The peer's side of a drive. map_odom is what a node with tf.mode map_odom has to find."""

    def __init__(self, peer, count=300, seed=1, namespace="", node="flashreg"):
        self.peer, self.node = peer, node
        self.random = np.random.default_rng(seed)
        self.landmarks = self.random.uniform([-10, -10, 0], [10, 10, 4], (count, 3))
        self.mount = ((0.3, -0.1, 0.8), turn(0.05, 0.1, 0.4))
        self.map_odom = matrix((2.0, -1.0, 0.1), turn(0.0, 0.0, 0.7))
        self.topic = f"{namespace}/correspondences_3d3d"
        self.diagnostics = Diagnostics(peer, f"{namespace}/{node}".lstrip("/"))
        self.transforms = peer.collect_tf()
        self.poses = peer.collect(PoseWithCovarianceStamped, f"{namespace}/pose")
        self.pose_topic = f"{namespace}/pose"
        self.step = 0

    def connect(self, now=time.time_ns):
        """Says where the sensor is, and waits until node and peer hear each other on every topic.

        The node answers a message without rows by too_few once it has heard the message and both
        kinds of transforms.
        """
        self.peer.send_static_tf(transform("base_link", "lidar", 0, *self.mount))
        for topic in (self.pose_topic, "/tf"):
            ends = lambda: [end.node_name for end in self.peer.node.get_publishers_info_by_topic(topic)]
            wait_until(lambda: self.node in ends(), 10.0, f"the publisher of {topic}")

        def heard():
            stamp = now()
            self.send_odometry(stamp, 0)
            self.peer.send_cloud(self.cloud(stamp, 0, landmarks=np.empty((0, 3))), self.topic)
            time.sleep(0.3)
            return self.diagnostics.latest().get("category") == "too_few"

        wait_until(heard, 15.0, "the answer of the node")
        # All of them have been looked at: nothing is counted later.
        time.sleep(0.3)
        self.diagnostics.count_from_here()
        return self

    def odometry(self, step):
        """(translation, rotation) of odom -> base at a step of the drive."""
        return (0.05 * step, 0.01 * step, 0.0), turn(0.0, 0.0, 0.02 * step)

    def truth(self, step):
        """Pose of the base in the map."""
        return self.map_odom @ matrix(*self.odometry(step))

    def send_odometry(self, stamp, step):
        """odom -> base at a stamp in nanoseconds."""
        self.peer.send_tf(transform("odom", "base_link", stamp, *self.odometry(step)))

    def columns(self, step, landmarks=None, outliers=0, noise=0.005, dtype=np.float32):
        """Columns of a message: landmarks as seen at a step, and some pairs that match nothing."""
        landmarks = self.landmarks if landmarks is None else landmarks
        sensor_map = np.linalg.inv(self.truth(step) @ matrix(*self.mount))
        seen = landmarks @ sensor_map[:3, :3].T + sensor_map[:3, 3]
        seen = seen + self.random.normal(0.0, noise, seen.shape)
        wrong = self.random.uniform(-10, 10, (2, outliers, 3))
        return correspondences(np.vstack([seen, wrong[0]]), np.vstack([landmarks, wrong[1]]), dtype=dtype)

    def cloud(self, stamp, step, **options):
        """A message of correspondences."""
        return point_cloud(self.columns(step, **options), stamp)

    def send(self, stamp=None, cloud=None, **options):
        """One step of the drive: odometry around the stamp and a message; returns (stamp, step)."""
        stamp = time.time_ns() - 20_000_000 if stamp is None else stamp
        step, self.step = self.step, self.step + 1
        self.send_odometry(stamp, step)
        self.peer.send_cloud(self.cloud(stamp, step, **options) if cloud is None else cloud, self.topic)
        return stamp, step

    def map_odoms(self, parent="map", child="odom"):
        """Transforms of this kind that the node has sent."""
        return [t for t in list(self.transforms) if (t.header.frame_id, t.child_frame_id) == (parent, child)]

    def pose_at(self, stamp):
        """The pose message of this stamp, if it has come."""
        return next((p for p in list(self.poses) if nanoseconds(p.header.stamp) == stamp), None)

    def localize(self, **options):
        """Sends one message and waits for its pose; fails if it is not the truth."""
        stamp, step = self.send(**options)
        pose = wait_until(lambda: self.pose_at(stamp), 5.0, "the pose")
        assert close_to(pose_matrix(pose.pose.pose), self.truth(step)), (pose, self.truth(step))
        return pose

    def transform_at(self, stamp, tolerance=0.1, **names):
        """The transform for a message of this stamp, waited for."""
        wanted = stamp + round(tolerance * NANOSECONDS)
        find = lambda: next((t for t in self.map_odoms(**names) if abs(nanoseconds(t.header.stamp) - wanted) < 2), None)
        return wait_until(find, 5.0, "the transform")


def matrix_of(stamped):
    """4x4 matrix of a TransformStamped."""
    return transform_matrix(stamped.transform)
