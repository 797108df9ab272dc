"""launch/localization.launch.py and launch/replay.launch.py, run from the installed package.

With our strict stand-ins for launch and launch_ros always, and with the independent play_launch
program where that can run; ROS 2's own `launch` is not to be had from a package registry.
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import ament_index_python
import pytest
import yaml
from bags import COUNT, PERIOD, seconds, write_bag
from geometry_msgs.msg import PoseWithCovarianceStamped
from node_process import ROOT, write_parameters
from poses import NANOSECONDS
from ros_peer import wait_until

FILE = "launch/localization.launch.py"
REPLAY = "launch/replay.launch.py"
STANDINS = pathlib.Path(__file__).parent / "standins"
PLAY_LAUNCH = ROOT / ".ros/venv/bin/play_launch"
LIBPYTHON310 = os.environ.get("FLASHREG_LIBPYTHON310", "")

needs_play_launch = pytest.mark.skipif(
    not LIBPYTHON310,
    reason="play_launch runs only with the ROS 2 that tools/setup makes, and only if that finds "
    "libpython3.10.so.1.0 (of python3.10 or pyenv)",
)


@pytest.fixture
def standins(in_install, colcon_install):
    """Command line of a launch with the stand-ins."""

    def command(*arguments, options=(), prepend=None, file=FILE):
        file = colcon_install / "flashreg/share/flashreg" / file
        run = [sys.executable, STANDINS / "run_launch.py", *options, file, *arguments]
        return in_install(*run, prepend={"PYTHONPATH": STANDINS, **(prepend or {})})

    return command


@pytest.fixture
def play_launch(in_install, tmp_path):
    """Command line of a launch with play_launch."""
    # play_launch embeds Python 3.10: of this environment's packages it may see this one only
    python_path = tmp_path / "python3.10"
    python_path.mkdir()
    (python_path / "ament_index_python").symlink_to(pathlib.Path(ament_index_python.__file__).parent)
    overlay = ROOT / ".ros/overlay-launch"

    def command(*arguments):
        libraries = f"{overlay}/lib:{LIBPYTHON310}"
        environment = {"AMENT_PREFIX_PATH": overlay, "LD_LIBRARY_PATH": libraries}
        run = ["env", f"PYTHONPATH={python_path}", PLAY_LAUNCH, "launch", "flashreg", pathlib.Path(FILE).name]
        return in_install(*run, *arguments, "--disable-all", prepend=environment)

    return command


@pytest.fixture(params=["standins", pytest.param("play_launch", marks=needs_play_launch)])
def launch(request, processes):
    """Runs the launch file with the arguments given; returns a NodeProcess."""
    command = request.getfixturevalue(request.param)
    return lambda *arguments: processes(command(*arguments))


def run(command):
    """Runs a command to its end."""
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)


def show(command):
    """The nodes that a launch would start."""
    result = run(command)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def subscriptions(peer, topic):
    """Full names of the nodes that subscribe to a topic."""
    ends = peer.node.get_subscriptions_info_by_topic(topic)
    return {f"{end.node_namespace.rstrip('/')}/{end.node_name}" for end in ends}


# ---------------------------------------------------------------- real nodes


def test_without_arguments(launch, peer):
    """Name, topics and parameters of a launch without arguments; its end on SIGINT."""
    process = launch()
    peer.wait_for_node("/flashreg")
    for topic in ("/tf", "/tf_static", "/correspondences_3d3d", "/points", "/map"):
        wait_until(lambda topic=topic: "/flashreg" in subscriptions(peer, topic), what=topic)
    assert peer.get_parameter("frames.map") == "map"
    assert not peer.get_parameter("use_sim_time")
    assert process.stop(signal.SIGINT, timeout=15.0) == 0, process.log


def test_with_arguments(launch, peer, tmp_path):
    """Namespace, remaps and parameters; arguments win over the file.

    One file only: play_launch gives several to the node in an arbitrary order. That order is
    tested below, on the command line.
    """
    own = write_parameters(tmp_path / "own.yaml", {"frames.map": "earth", "frames.odom": "wheels"})
    launch(
        "namespace:=robot",
        "use_sim_time:=true",
        f"config_file:={own}",
        "odom_frame:=drift",
        "base_frame:=chassis",
        "correspondences:=front/matches",
        "points_topic:=front/points",
        "map_topic:=/house",
        "log_level:=debug",
    )
    peer.wait_for_node("/robot/flashreg")
    for topic in ("/robot/tf", "/robot/tf_static", "/robot/front/matches", "/robot/front/points", "/house"):
        wait_until(lambda topic=topic: "/robot/flashreg" in subscriptions(peer, topic), what=topic)
    expected = {"frames.map": "earth", "frames.odom": "drift", "frames.base": "chassis", "use_sim_time": True}
    assert {name: peer.get_parameter(name, "/robot/flashreg") for name in expected} == expected


def test_node_that_fails_fails_the_launch(standins, processes, tmp_path):
    """The exit code of the node is not lost."""
    broken = tmp_path / "broken.yaml"
    broken.write_text("{")
    process = processes(standins(f"params_file:={broken}"))
    assert process.wait(15.0) != 0


def test_replay(standins, processes, peer, tmp_path):
    """The node lives in the bag's time and answers to it, again after time has jumped back."""
    poses = peer.collect(PoseWithCovarianceStamped, "/pose")
    process = processes(standins(f"bag:={write_bag(tmp_path / 'bag.mcap')}", "loop:=true", file=REPLAY))
    peer.wait_for_node("/flashreg")
    assert peer.get_parameter("use_sim_time")
    last = pytest.approx((COUNT - 1) * PERIOD / NANOSECONDS)

    def stamps():
        return [seconds(m.header.stamp) for m in poses]

    # A frame that is still being worked on when time jumps back is dropped: not every round shows the last one.
    wait_until(lambda: last in stamps(), 30.0, what="the last frame of the bag")
    wait_until(lambda: any(after < before for before, after in zip(stamps(), stamps()[1:])), 30.0, what="a second round")
    assert min(stamps()) >= 0 and max(stamps()) == last
    assert process.stop(signal.SIGINT, timeout=15.0) == 0, process.log


# ---------------------------------------------------------------- the command line


def test_replay_command_line(standins, colcon_install):
    """The player and the node, whose arguments go on to it."""
    arguments = ["bag:=a.mcap", "start:=3", "loop:=true", "pause_at_end:=false", "presets:=outdoor", "wait_for:="]
    node, player = show(standins(*arguments, options=["--show"], file=REPLAY))
    share = colcon_install / "flashreg/share/flashreg"
    words = [sys.executable, f"{share}/launch/play_bag.py", "a.mcap", "--rate", "1.0", "--start", "3", "--loop"]
    assert player["command"] == [*words, "--ros-args"]
    assert f"{share}/config/outdoor.yaml" in node["command"]
    ((_, text),) = node["made_files"].items()
    assert yaml.safe_load(text)["/flashreg"]["ros__parameters"]["use_sim_time"] is True
    # Of the inputs of the node, under the names that it was given.
    _, player = show(standins("bag:=a.mcap", "points_topic:=/lidar", options=["--show"], file=REPLAY))
    assert player["command"][-4:] == ["--wait-for", "/lidar", "correspondences_3d3d", "--ros-args"]
    result = run(standins(options=["--show"], file=REPLAY))
    assert result.returncode != 0 and "'bag' was not provided" in result.stderr


def test_command_line(standins, colcon_install, tmp_path):
    """Exactly as launch_ros makes it."""
    own = write_parameters(tmp_path / "own.yaml", {"frames.map": "earth"})
    arguments = ["namespace:=robot", "presets:=outdoor, jetson", f"params_file:={own}", "map_frame:=m"]
    arguments += ["correspondences_2d3d:=matches", "camera_info:=cam/camera_info", "log_level:=warn"]
    arguments += ["map_path:=/maps/house.pcd", "points_topic:=/lidar/points"]
    (node,) = show(standins(*arguments, options=["--show"]))
    prefix = colcon_install / "flashreg"
    config = prefix / "share/flashreg/config"
    ((made, text),) = node["made_files"].items()
    assert node["command"] == [
        *(f"{prefix}/lib/flashreg/flashreg_node", "--ros-args", "--log-level", "warn"),
        *("-r", "__node:=flashreg", "-r", "__ns:=/robot"),
        *("--params-file", f"{config}/localizer.yaml"),
        *("--params-file", f"{config}/outdoor.yaml", "--params-file", f"{config}/jetson.yaml"),
        *("--params-file", f"{own}"),
        *("--params-file", made),
        *("-r", "/tf:=tf", "-r", "/tf_static:=tf_static", "-r", "points:=/lidar/points", "-r", "map:=map"),
        *("-r", "correspondences_3d3d:=correspondences_3d3d"),
        *("-r", "correspondences_2d3d:=matches", "-r", "correspondences_2d2d:=correspondences_2d2d"),
        *("-r", "camera_info:=cam/camera_info"),
    ]
    parameters = {"use_sim_time": False, "map.path": "/maps/house.pcd", "frames.map": "m"}
    assert yaml.safe_load(text) == {"/robot/flashreg": {"ros__parameters": parameters}}


def test_rviz(standins, colcon_install, tmp_path):
    """rviz:=true starts RViz too, here a package of that name, with our configuration."""
    rviz = tmp_path / "ros/lib/rviz2/rviz2"
    marker = tmp_path / "ros/share/ament_index/resource_index/packages/rviz2"
    for file in (rviz, marker):
        file.parent.mkdir(parents=True)
        file.touch(mode=0o755)
    prefix = {"AMENT_PREFIX_PATH": tmp_path / "ros"}
    nodes = show(standins("rviz:=true", "namespace:=robot", options=["--show"], prepend=prefix))
    assert [pathlib.Path(node["command"][0]).name for node in nodes] == ["flashreg_node", "rviz2"]
    config = colcon_install / "flashreg/share/flashreg/config"
    assert nodes[1]["command"][:3] == [f"{rviz}", "-d", f"{config}/flashreg.rviz"]
    assert "__ns:=/robot" in nodes[1]["command"]


def test_displays_show_topics_of_the_node():
    """RViz and Foxglove: each topic is one that the README names."""
    readme = (ROOT / "README.md").read_text()
    displays = yaml.safe_load((ROOT / "config/flashreg.rviz").read_text())["Visualization Manager"]["Displays"]
    rviz = [display["Topic"]["Value"] for display in displays if "Topic" in display]
    layout = json.loads((ROOT / "config/foxglove.json").read_text())
    foxglove = [topic for panel in layout["configById"].values() for topic in panel.get("topics", {})]
    wanted = {"map_points", "aligned_points", "pose", "candidates"}
    for topics in (rviz, [topic.lstrip("/") for topic in foxglove]):
        assert wanted < set(topics)
        for topic in topics:
            assert re.search(rf"^\| (in|out) `{topic}` \|", readme, re.MULTILINE), topic
    panels = [layout["layout"]]
    named = set()
    while panels:
        panel = panels.pop()
        if isinstance(panel, str):
            named.add(panel)
        else:
            panels += [panel["first"], panel["second"]]
    assert named == set(layout["configById"])


@pytest.mark.parametrize(
    "argument, complaint",
    [
        ("rviz:=maybe", "'rviz' is 'maybe'"),
        ("use_sim_time:=yes", "'use_sim_time' is 'yes'"),
        ("log_level:=loud", "'log_level' is 'loud'"),
        ("presets:=indor", "indor.yaml' does not exist"),
        ("params_file:=/nowhere.yaml", "'/nowhere.yaml' does not exist"),
        ("namespce:=robot", "no argument namespce"),
    ],
)
def test_wrong_argument_is_refused(standins, argument, complaint):
    """With a message that names it."""
    result = run(standins(argument, options=["--show"]))
    assert result.returncode != 0
    assert complaint in result.stderr


# ---------------------------------------------------------------- the stand-ins are strict


@pytest.mark.parametrize(
    "good, bad, complaint",
    [
        ("package='flashreg'", "packge='flashreg'", r"TypeError: .*'packge'"),
        ("default_value='info'", "defualt_value='info'", r"TypeError: .*'defualt_value'"),
        ("OpaqueFunction(function=", "OpaqueFunction(func=", r"TypeError: .*'func'"),
        ("value_type=bool", "type=bool", r"TypeError: .*'type'"),
        ("ParameterValue(LaunchConfiguration('use_sim_time')", "ParameterValue('false'", r"TypeError: value='false' "),
        ("output='screen'", "output='sreen'", r"ValueError: .*'sreen'"),
        ("output='screen'", "respawn=True", r"NotImplementedError: .*respawn"),
        ("executable='flashreg_node'", "executable='flashreg_nod'", r"RuntimeError: .*'flashreg_nod'"),
        ("import IfCondition", "import IfConditon", r"ImportError: .*'IfConditon'"),
        ("from launch_ros.actions", "from launch_ros.action", r"ModuleNotFoundError: .*'launch_ros.action'"),
    ],
)
def test_mistake_in_a_launch_file_is_refused(in_install, tmp_path, good, bad, complaint):
    """Our launch file with a mistake in it; without one it passes, by the tests above."""
    text = (ROOT / FILE).read_text()
    assert good in text
    file = tmp_path / "wrong.launch.py"
    file.write_text(text.replace(good, bad))
    command = in_install(sys.executable, STANDINS / "run_launch.py", "--show", file, prepend={"PYTHONPATH": STANDINS})
    result = run(command)
    assert result.returncode != 0
    assert re.search(complaint, result.stderr), result.stderr
