"""What flashreg reads of bags that other libraries wrote is what those read of them, byte by byte and
field by field."""

import json
import os
import subprocess
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from mcap.reader import make_reader
from mcap.writer import CompressionType, IndexType
from mcap.writer import Writer as McapWriter
from rosbags.rosbag2 import CompressionFormat, CompressionMode, Reader, StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
FLASHREG = TARGET / "release" / "flashreg"
DATA = ROOT.parent / "shared" / "data" / "bags"
STORE = get_typestore(Stores.ROS2_JAZZY)
TYPES = STORE.types

POSE, TF, ODOMETRY, CLOUD, COVARIANCE = (
    "geometry_msgs/msg/PoseStamped",
    "tf2_msgs/msg/TFMessage",
    "nav_msgs/msg/Odometry",
    "sensor_msgs/msg/PointCloud2",
    "geometry_msgs/msg/PoseWithCovarianceStamped",
)


def header(time, frame):
    stamp = TYPES["builtin_interfaces/msg/Time"](sec=time // 10**9, nanosec=time % 10**9)
    return TYPES["std_msgs/msg/Header"](stamp=stamp, frame_id=frame)


def xyz(kind, rng, n=3):
    return TYPES[f"geometry_msgs/msg/{kind}"](*rng.normal(size=n))


def pose(rng):
    return TYPES["geometry_msgs/msg/Pose"](xyz("Point", rng), xyz("Quaternion", rng, 4))


def with_covariance(rng):
    return TYPES["geometry_msgs/msg/PoseWithCovariance"](pose(rng), rng.normal(size=36))


def cloud(time, rng):
    field = TYPES["sensor_msgs/msg/PointField"]
    names = ["x", "y", "z", "tx", "ty", "tz"]
    fields = [field(name, 4 * i, 7, 1) for i, name in enumerate(names)]
    n = int(rng.integers(0, 300))
    data = np.frombuffer(rng.normal(size=(n, 6)).astype(np.float32).tobytes(), np.uint8)
    return TYPES[CLOUD](header(time, "lidar"), 1, n, fields, False, 24, 24 * n, data, True)


def messages():
    """Topic, type, log time, message: the times do not ascend everywhere."""
    rng = np.random.default_rng(3)
    for i in range(60):
        time = 1_700_000_000_123_456_789 + i * 50_000_001
        transform = TYPES["geometry_msgs/msg/Transform"](xyz("Vector3", rng), xyz("Quaternion", rng, 4))
        stamped = TYPES["geometry_msgs/msg/TransformStamped"](header(time, "odom"), "base_link", transform)
        twist = TYPES["geometry_msgs/msg/TwistWithCovariance"](
            TYPES["geometry_msgs/msg/Twist"](xyz("Vector3", rng), xyz("Vector3", rng)), np.zeros(36)
        )
        yield "/tf", TF, time, TYPES[TF]([stamped] * int(rng.integers(0, 4)))
        yield "/points", CLOUD, time - 20_000_000, cloud(time, rng)
        yield "/truth", POSE, time, TYPES[POSE](header(time, "map"), pose(rng))
        yield "/odometry", ODOMETRY, time, TYPES[ODOMETRY](header(time, "odom"), "base", with_covariance(rng), twist)
        yield "/initialpose", COVARIANCE, time, TYPES[COVARIANCE](header(time, "äußerst"), with_covariance(rng))


def by_rosbags(path, storage, mode):
    writer = Writer(path, version=9, storage_plugin=storage)
    if mode is not CompressionMode.NONE:
        writer.set_compression(mode, CompressionFormat.ZSTD)
    with writer:
        connections = {}
        for topic, name, time, message in messages():
            if topic not in connections:
                connections[topic] = writer.add_connection(topic, name, typestore=STORE)
            writer.write(connections[topic], time, STORE.serialize_cdr(message, name))
    return path


def by_mcap(path, big_endian=False, **options):
    with path.open("wb") as file:
        writer = McapWriter(file, chunk_size=20_000, **options)
        writer.start(profile="ros2")
        channels = {}
        for topic, name, time, message in messages():
            if topic not in channels:
                schema = writer.register_schema(name=name, encoding="ros2msg", data=b"")
                channels[topic] = writer.register_channel(topic=topic, message_encoding="cdr", schema_id=schema)
            data = bytes(STORE.serialize_cdr(message, name, little_endian=not big_endian))
            writer.add_message(channels[topic], log_time=time, publish_time=time - 7, data=data)
        writer.finish()
    return path


def flashreg(*arguments):
    done = subprocess.run([FLASHREG, "bag", *map(str, arguments)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def nanoseconds(stamp):
    return stamp.sec * 10**9 + stamp.nanosec


def fields(message):
    """The fields of a message as `flashreg bag --echo` tells them."""
    kind = message.__msgtype__
    if kind == TF:
        return [
            {
                "stamp": nanoseconds(t.header.stamp),
                "frame_id": t.header.frame_id,
                "child_frame_id": t.child_frame_id,
                "translation": numbers(t.transform.translation, "xyz"),
                "rotation": numbers(t.transform.rotation, "xyzw"),
            }
            for t in message.transforms
        ]
    told = {"stamp": nanoseconds(message.header.stamp), "frame_id": message.header.frame_id}
    if kind == CLOUD:
        names = ["height", "width", "is_bigendian", "point_step", "row_step", "is_dense"]
        return told | {name: getattr(message, name) for name in names} | {"data_bytes": len(message.data)}
    covariance = None if kind == POSE else message.pose.covariance.tolist()
    pose = message.pose if kind == POSE else message.pose.pose
    child = getattr(message, "child_frame_id", None)
    place = {"position": numbers(pose.position, "xyz"), "orientation": numbers(pose.orientation, "xyzw")}
    return told | place | {"child_frame_id": child, "covariance": covariance}


def numbers(of, names):
    return [getattr(of, name) for name in names]


def assert_same(path, expected):
    """`expected`: topic -> type and messages, each log time, bytes."""
    (overview,) = flashreg(path, "--json")
    assert overview["losses"] == []
    told = {topic["name"]: (topic["type"], topic["count"]) for topic in overview["topics"]}
    assert told == {topic: (kind, len(found)) for topic, (kind, found) in expected.items()}
    times = [time for _, found in expected.values() for time, _ in found]
    assert overview["span"] == [min(times), max(times)]
    for topic, (kind, found) in expected.items():
        lines = flashreg(path, "--echo", topic, "--cdr")
        assert [(line["log_time"], line["cdr"]) for line in lines] == [(t, data.hex()) for t, data in found], topic
        if kind in (POSE, TF, ODOMETRY, CLOUD, COVARIANCE):
            for line, (_, data) in zip(lines, found):
                assert line["message"] == fields(STORE.deserialize_cdr(data, kind))


def read_by_rosbags(path):
    expected = {}
    with Reader(path) as reader:
        for connection, time, data in reader.messages():
            _, found = expected.setdefault(connection.topic, (connection.msgtype, []))
            found.append((time, bytes(data)))
    return expected


def read_by_mcap(path):
    expected = {}
    for schema, channel, message in make_reader(BytesIO(path.read_bytes())).iter_messages():
        _, found = expected.setdefault(channel.topic, (schema.name, []))
        found.append((message.log_time, message.data))
    return expected


# sqlite3 has no compression of its own.
WAYS = [(storage, mode) for storage in StoragePlugin for mode in CompressionMode]
WAYS.remove((StoragePlugin.SQLITE3, CompressionMode.STORAGE))


@pytest.mark.parametrize(("storage", "mode"), WAYS)
def test_bags_of_rosbags(tmp_path, storage, mode):
    path = by_rosbags(tmp_path / "bag", storage, mode)
    assert_same(path, read_by_rosbags(path))


OPTIONS = {
    "none": {"compression": CompressionType.NONE},
    "lz4": {"compression": CompressionType.LZ4},
    "zstd": {"compression": CompressionType.ZSTD},
    "no chunks": {"use_chunking": False},
    "bare": {"index_types": IndexType.NONE, "use_statistics": False, "use_summary_offsets": False},
    "no sums": {"enable_crcs": False},
    "big endian": {"big_endian": True},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_files_of_mcap(tmp_path, name):
    path = by_mcap(tmp_path / "bag.mcap", **OPTIONS[name])
    assert_same(path, read_by_mcap(path))
    (first, *_) = flashreg(path, "--echo", "/truth")
    assert first["log_time"] - first["publish_time"] == 7


@pytest.mark.skipif(not DATA.exists(), reason="no shared data")
@pytest.mark.parametrize(
    "name",
    ["correspondences_demo", "cloudini_lidar", "rosbags-rs/test_bag_mcap", "rosbags-rs/test_bag_sqlite3"],
)
def test_bags_of_other_programs(name):
    assert_same(DATA / name, read_by_rosbags(DATA / name))
