"""PointCloud2 messages from numpy arrays, with any fields, number types, byte order and padding."""

import array

import numpy as np
from builtin_interfaces.msg import Time
from poses import NANOSECONDS
from sensor_msgs.msg import PointCloud2, PointField

DATATYPES = {
    "int8": PointField.INT8,
    "uint8": PointField.UINT8,
    "int16": PointField.INT16,
    "uint16": PointField.UINT16,
    "int32": PointField.INT32,
    "uint32": PointField.UINT32,
    "float32": PointField.FLOAT32,
    "float64": PointField.FLOAT64,
}


def time_message(nanoseconds):
    """builtin_interfaces/Time of a stamp in nanoseconds."""
    sec, nanosec = divmod(int(nanoseconds), NANOSECONDS)
    return Time(sec=sec, nanosec=nanosec)


def point_cloud(columns, stamp, frame_id="lidar", big_endian=False, padding=0):
    """A cloud of one row.

    columns: {field name: array of numbers}; the array's type becomes the field's datatype.
    stamp: nanoseconds. padding: unused bytes at the end of each point.
    """
    columns = {name: np.asarray(column) for name, column in columns.items()}
    order = ">" if big_endian else "<"
    types = [column.dtype.newbyteorder(order) for column in columns.values()]
    offsets = np.cumsum([0] + [kind.itemsize for kind in types]).tolist()
    step = offsets[-1] + padding
    layout = np.dtype({"names": list(columns), "formats": types, "offsets": offsets[:-1], "itemsize": step})
    count = len(next(iter(columns.values())))
    rows = np.zeros(count, layout)
    for name, column in columns.items():
        rows[name] = column

    cloud = PointCloud2(height=1, width=count, point_step=step, row_step=step * count)
    cloud.header.stamp = time_message(stamp)
    cloud.header.frame_id = frame_id
    cloud.fields = [
        PointField(name=name, offset=offset, datatype=DATATYPES[column.dtype.name], count=1)
        for (name, column), offset in zip(columns.items(), offsets)
    ]
    cloud.is_bigendian = big_endian
    cloud.is_dense = True
    cloud.data = array.array("B", rows.tobytes())
    return cloud


def correspondences(points, targets, weights=None, dtype=np.float32):
    """The columns of a 3D-3D correspondence message: points in the sensor's frame, targets in the map."""
    columns = {}
    for name, values in (("{}", points), ("t{}", targets)):
        for axis, column in zip("xyz", np.asarray(values, dtype).T):
            columns[name.format(axis)] = column
    if weights is not None:
        columns["weight"] = np.asarray(weights, dtype)
    return columns
