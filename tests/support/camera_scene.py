"""A camera on the robot of scene.Scene: what it sees of the landmarks, as messages, with the truth."""

import time

import numpy as np
from clouds import point_cloud, time_message
from poses import matrix
from rclpy.qos import qos_profile_sensor_data
from ros_peer import transform, wait_until
from scene import Diagnostics, Scene
from sensor_msgs.msg import CameraInfo

FRAME = "camera_optical"
SIZE = (640, 480)
K = (420.0, 418.0, 322.0, 239.0)  # fx fy cx cy
# base_link -> camera: forwards, a little to the left and down; z forward, x right, y down.
MOUNT = (0.2, 0.05, 1.1), tuple(np.array((-0.47, 0.53, -0.54, 0.45)) / np.linalg.norm((-0.47, 0.53, -0.54, 0.45)))
D = (-0.12, 0.03, 0.0006, -0.0004, 0.0)  # plumb_bob: k1 k2 p1 p2 k3


def camera_info(k=K, d=D, frame_id=FRAME, stamp=0):
    """A calibrated camera; K[0] of zero means that it is not."""
    fx, fy, cx, cy = k
    info = CameraInfo(width=SIZE[0], height=SIZE[1], distortion_model="plumb_bob", d=[float(v) for v in d])
    info.header.frame_id, info.header.stamp = frame_id, time_message(stamp)
    info.k = [fx, 0.0, cx, 0.0, fy, cy, 0.0, 0.0, 1.0]
    info.r = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]
    info.p = [fx, 0.0, cx, 0.0, 0.0, fy, cy, 0.0, 0.0, 0.0, 1.0, 0.0]
    return info


def project(points):
    """Pixels (n, 2) of points (n, 3) in the optical frame, by the plumb_bob model."""
    k1, k2, p1, p2, k3 = D
    x, y = points[:, 0] / points[:, 2], points[:, 1] / points[:, 2]
    r2 = x * x + y * y
    radial = 1 + r2 * (k1 + r2 * (k2 + r2 * k3))
    u = x * radial + 2 * p1 * x * y + p2 * (r2 + 2 * x * x)
    v = y * radial + p1 * (r2 + 2 * y * y) + 2 * p2 * x * y
    return np.column_stack([K[0] * u + K[2], K[1] * v + K[3]])


def in_image(points, pixels):
    """Which points are in front of the camera and in its image."""
    inside = (pixels >= 0).all(axis=1) & (pixels < SIZE).all(axis=1)
    # Beyond the corners of the image the model of distortion means nothing.
    near = np.hypot(points[:, 0], points[:, 1]) < 1.1 * points[:, 2]
    return (points[:, 2] > 0.5) & near & inside


class CameraScene(Scene):
    """The peer's side of a drive with a camera, at the topic of 2D-3D correspondences."""

    def __init__(self, peer, count=4000, noise=0.5, **options):
        super().__init__(peer, count=count, **options)
        self.topic, self.noise = "/correspondences_2d3d", noise
        self.camera = Diagnostics(peer, self.node, "correspondences_2d3d")

    def connect(self, calibrated=True, **options):
        """As Scene.connect, with the place of the camera and, once the node hears it, its calibration."""
        self.peer.send_static_tf(*(transform("base_link", frame, 0, *MOUNT) for frame in (FRAME, "fisheye")))
        self.calibrate(camera_info(frame_id="another camera"))
        super().connect(**options)
        if calibrated:
            self.calibrate()
            time.sleep(0.1)
        self.camera.count_from_here()
        return self

    def reach(self, topic):
        """Waits until the node hears another input too; what it says of that from now on."""
        said = Diagnostics(self.peer, self.node, topic.lstrip("/"))

        def heard():
            self.peer.send_cloud(self.cloud(time.time_ns(), 0, landmarks=np.empty((0, 3))), topic)
            time.sleep(0.2)
            return said.latest()

        wait_until(heard, 10.0, f"the answer of the node to {topic}")
        time.sleep(0.2)
        said.count_from_here()
        return said

    def calibrate(self, info=None):
        """Publishes a CameraInfo."""
        self.peer.send("/camera_info", camera_info() if info is None else info, qos_profile_sensor_data)

    def view(self, step):
        """Pose of the camera in the map."""
        return self.truth(step) @ matrix(*MOUNT)

    def seen(self, step, landmarks=None):
        """Landmarks in the optical frame at a step."""
        landmarks = self.landmarks if landmarks is None else landmarks
        camera_map = np.linalg.inv(self.view(step))
        return landmarks @ camera_map[:3, :3].T + camera_map[:3, 3]

    def columns(self, step, landmarks=None, outliers=0, count=150):
        """Pixels and landmarks, the first `outliers` of them matched with others."""
        landmarks = self.landmarks if landmarks is None else landmarks
        points = self.seen(step, landmarks)
        pixels = project(points) if len(points) else np.empty((0, 2))
        rows = np.flatnonzero(in_image(points, pixels))[:count]
        return self.matched(
            pixels[rows] + self.random.normal(0.0, self.noise, (len(rows), 2)), landmarks[rows], outliers, ("u", "v")
        )

    def matched(self, features, landmarks, outliers, names):
        """Columns of features and landmarks; wrong landmarks for the first rows."""
        landmarks = landmarks.copy()
        landmarks[:outliers] = self.random.uniform([-10, -10, 0], [10, 10, 4], (min(outliers, len(landmarks)), 3))
        columns = dict(zip(names, features.T))
        columns.update(zip(("tx", "ty", "tz"), landmarks.T))
        return {name: column.astype(np.float32) for name, column in columns.items()}

    def cloud(self, stamp, step, frame_id=FRAME, **options):
        """A message of 2D-3D correspondences."""
        return point_cloud(self.columns(step, **options), stamp, frame_id)

    def bearings(self, stamp, step, outliers=0, count=150, noise=0.001):
        """The same from a camera that sees half of all directions and more: bearings of any length."""
        points = self.seen(step)
        rays = points / np.linalg.norm(points, axis=1, keepdims=True)
        rows = np.flatnonzero(rays[:, 2] > np.cos(np.radians(100)))[:count]
        rays = rays[rows] + self.random.normal(0.0, noise, (len(rows), 3))
        rays *= self.random.uniform(0.5, 2.0, (len(rows), 1))
        return point_cloud(self.matched(rays, self.landmarks[rows], outliers, ("x", "y", "z")), stamp, "fisheye")

    def pair(self, stamp, step, reference, outliers=0, count=200):
        """A message of 2D-2D correspondences with an earlier view, and the pose of the camera in that."""
        both = [self.seen(step), self.seen(reference)]
        pixels = [project(points) for points in both]
        rows = np.flatnonzero(in_image(both[0], pixels[0]) & in_image(both[1], pixels[1]))[:count]
        current, other = (p[rows] + self.random.normal(0.0, self.noise, (len(rows), 2)) for p in pixels)
        other[:outliers] = self.random.uniform((0, 0), SIZE, (min(outliers, len(rows)), 2))
        columns = dict(zip(("u", "v", "tu", "tv"), (*current.T, *other.T)))
        columns = {name: column.astype(np.float32) for name, column in columns.items()}
        truth = np.linalg.inv(self.view(reference)) @ self.view(step)
        return point_cloud(columns, stamp, FRAME), truth
