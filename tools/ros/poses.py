"""Rigid transforms as 4x4 matrices, and tracks of them over time."""

import bisect
import math

import numpy as np

NANOSECONDS = 1_000_000_000


def nanoseconds(stamp):
    """A builtin_interfaces/Time as one integer."""
    return stamp.sec * NANOSECONDS + stamp.nanosec


def matrix(translation, rotation):
    """4x4 matrix of (x, y, z) and a unit quaternion (x, y, z, w)."""
    x, y, z, w = np.asarray(rotation, float) / np.linalg.norm(rotation)
    result = np.eye(4)
    result[:3, :3] = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ]
    result[:3, 3] = translation
    return result


def vector(message):
    """(x, y, z) of a Vector3 or a Point."""
    return np.array([message.x, message.y, message.z])


def quaternion(message):
    """(x, y, z, w) of a Quaternion."""
    return np.array([message.x, message.y, message.z, message.w])


def transform_matrix(transform):
    """4x4 matrix of a geometry_msgs/Transform."""
    return matrix(vector(transform.translation), quaternion(transform.rotation))


def pose_matrix(pose):
    """4x4 matrix of a geometry_msgs/Pose."""
    return matrix(vector(pose.position), quaternion(pose.orientation))


def difference(a, b):
    """How far apart two poses are: (metres, degrees)."""
    between = np.linalg.inv(a) @ b
    # The angle from both its sine and its cosine, accurate near 0 as well as near 180 degrees.
    r = between[:3, :3]
    sine = np.linalg.norm([r[2, 1] - r[1, 2], r[0, 2] - r[2, 0], r[1, 0] - r[0, 1]]) / 2
    cosine = (np.trace(r) - 1) / 2
    return float(np.linalg.norm(between[:3, 3])), math.degrees(math.atan2(sine, cosine))


def yaw(pose):
    """Heading of a pose in degrees."""
    return math.degrees(math.atan2(pose[1, 0], pose[0, 0]))


class Track:
    """A moving pose, known at some stamps and interpolated between them."""

    def __init__(self):
        self._stamps, self._poses = [], []

    def __len__(self):
        return len(self._stamps)

    def add(self, stamp, translation, rotation):
        """Adds the pose at a stamp in nanoseconds; in any order."""
        index = bisect.bisect(self._stamps, stamp)
        self._stamps.insert(index, stamp)
        self._poses.insert(index, (np.asarray(translation, float), np.asarray(rotation, float)))

    def at(self, stamp):
        """4x4 matrix at a stamp, or None outside of the track: no extrapolation."""
        after = bisect.bisect_left(self._stamps, stamp)
        if after == len(self._stamps):
            return None
        if self._stamps[after] == stamp:
            return matrix(*self._poses[after])
        if after == 0:
            return None
        before = after - 1
        share = (stamp - self._stamps[before]) / (self._stamps[after] - self._stamps[before])
        (t0, q0), (t1, q1) = self._poses[before], self._poses[after]
        if q0 @ q1 < 0:
            q1 = -q1
        return matrix((1 - share) * t0 + share * t1, (1 - share) * q0 + share * q1)
