"""A small building of boxes, the sweeps of a LiDAR in it, and a map made of such sweeps."""

import numpy as np
from clouds import point_cloud
from poses import matrix
from scene import Scene, turn

# Low and high corners. Walls, then what stands about: no place is like another.
BOXES = np.array(
    [
        ((-5.2, -5.2, 0.0), (11.2, -5.0, 2.8)),
        ((-5.2, 6.0, 0.0), (11.2, 6.2, 2.8)),
        ((-5.2, -5.2, 0.0), (-5.0, 6.2, 2.8)),
        ((11.0, -5.2, 0.0), (11.2, 6.2, 2.8)),
        ((-5.2, -5.2, -0.2), (11.2, 6.2, 0.0)),
        ((-5.2, -5.2, 2.8), (11.2, 6.2, 3.0)),
        ((-0.4, 2.2, 0.0), (-0.2, 6.0, 2.8)),  # rooms with doors
        ((4.6, -5.0, 0.0), (4.8, -2.4, 2.8)),
        ((4.6, 3.4, 0.0), (4.8, 6.0, 2.8)),
        ((4.8, 3.4, 0.0), (9.0, 3.6, 2.8)),
        ((-5.0, -1.9, 0.0), (-2.6, -1.7, 2.8)),
        ((-4.9, 4.9, 0.0), (-2.2, 5.9, 2.0)),  # furniture
        ((-4.9, 0.4, 0.0), (-4.3, 2.0, 1.1)),
        ((-2.1, -4.8, 0.0), (-0.6, -4.1, 0.8)),
        ((1.4, 4.6, 0.0), (2.1, 5.4, 1.6)),
        ((3.7, 0.9, 0.0), (4.4, 2.3, 0.75)),
        ((6.1, -1.3, 0.0), (6.9, 0.2, 1.3)),
        ((8.8, -4.7, 0.0), (10.7, -3.2, 0.9)),
        ((10.2, 0.8, 0.0), (10.9, 2.9, 1.9)),
        ((5.6, 5.0, 0.0), (7.4, 5.7, 1.0)),
        ((2.4, -3.9, 0.0), (2.9, -3.4, 2.8)),  # pillars
        ((8.1, 1.7, 0.0), (8.5, 2.1, 2.8)),
    ]
)
ELEVATIONS = np.radians(np.linspace(-22.5, 22.5, 31))
AZIMUTHS = np.radians(np.arange(0.0, 360.0, 1.5))
NOISE = 0.01
SPACING = 0.05  # of the points of the map


def directions():
    """Unit vectors of the beams in the frame of the sensor."""
    up, around = (angle.ravel() for angle in np.meshgrid(ELEVATIONS, AZIMUTHS))
    return np.column_stack([np.cos(up) * np.cos(around), np.cos(up) * np.sin(around), np.sin(up)])


def ranges(map_sensor, beams):
    """Distances along the beams to the nearest box."""
    origin, rays = map_sensor[:3, 3], beams @ map_sensor[:3, :3].T
    nearest = np.full(len(rays), np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        inverse = 1.0 / rays
        for low, high in BOXES:
            to_low, to_high = (low - origin) * inverse, (high - origin) * inverse
            enter = np.minimum(to_low, to_high).max(axis=1)
            leave = np.maximum(to_low, to_high).min(axis=1)
            np.minimum(nearest, enter, where=(enter > 0) & (enter <= leave), out=nearest)
    return nearest


def sweep(map_sensor, random):
    """Points that the sensor sees from there, in its frame."""
    beams = directions()
    measured = ranges(map_sensor, beams) + random.normal(0.0, NOISE, len(beams))
    return (beams * measured[:, None])[np.isfinite(measured)]


def map_points():
    """Points on all faces that can be seen from inside."""
    random = np.random.default_rng(5)
    faces = []
    for low, high in BOXES:
        for axis in range(3):
            u, v = (other for other in range(3) if other != axis)
            grid = np.meshgrid(*(np.arange(low[k], high[k], SPACING) for k in (u, v)))
            for side in (low, high):
                points = np.empty((grid[0].size, 3))
                points[:, axis], points[:, u], points[:, v] = side[axis], grid[0].ravel(), grid[1].ravel()
                faces.append(points)
    points = np.vstack(faces)
    inside = ((points > (-5.001, -5.001, -0.001)) & (points < (11.001, 6.001, 2.801))).all(axis=1)
    for low, high in BOXES:
        inside &= ~((points > low + 0.001) & (points < high - 0.001)).all(axis=1)
    return points[inside] + random.normal(0.0, NOISE, (inside.sum(), 3))


def write_pcd(path, points, fields="x y z"):
    """A binary PCD file."""
    count = len(points)
    columns = len(fields.split())
    header = (
        f"# .PCD v0.7\nVERSION 0.7\nFIELDS {fields}\nSIZE{' 4' * columns}\nTYPE{' F' * columns}\n"
        f"COUNT{' 1' * columns}\nWIDTH {count}\nHEIGHT 1\nVIEWPOINT 0 0 0 1 0 0 0\nPOINTS {count}\nDATA binary\n"
    )
    path.write_bytes(header.encode() + np.asarray(points, "<f4").tobytes())
    return path


def xyz(points):
    """Columns of a cloud."""
    return dict(zip("xyz", np.asarray(points, np.float32).T))


class CloudScene(Scene):
    """The peer's side of a drive with raw clouds in the building."""

    def __init__(self, peer, **options):
        super().__init__(peer, **options)
        self.topic = "/points"

    def columns(self, step, landmarks=None):
        """A sweep, or no points at all."""
        if landmarks is not None:
            return xyz(landmarks)
        return xyz(sweep(self.truth(step) @ matrix(*self.mount), self.random))

    def put_down(self, x, y, yaw):
        """Carries the robot elsewhere; odometry does not notice."""
        base = matrix((x, y, self.map_odom[2, 3]), turn(0.0, 0.0, yaw))
        self.map_odom = base @ np.linalg.inv(matrix(*self.odometry(self.step)))


def map_message(points, stamp, frame_id="map"):
    """A map as a message."""
    return point_cloud(xyz(points), stamp, frame_id)
