"""Parameters: what starts, what does not, and what changes while the node runs."""

import pytest
from node_process import ROOT
from rcl_interfaces.msg import ParameterEvent, ParameterType
from rcl_interfaces.srv import DescribeParameters, GetParameterTypes, ListParameters, SetParametersAtomically
from rclpy.parameter import Parameter
from ros_peer import wait_until
from scene import FAST, Diagnostics, Scene

OTHERS = {"localizer.yaml", "simulation.yaml"}
PRESETS = sorted({path.name for path in (ROOT / "config").glob("*.yaml")} - OTHERS)


@pytest.mark.parametrize(
    "argument, said",
    [
        ("registration.tua:=1.0", "unknown parameter 'registration.tua'; did you mean 'registration.tau'?"),
        ("tau:=1.0", "did you mean 'registration.tau'?"),
        ("registration.tau:=abc", "parameter 'registration.tau' must be of type number, got string abc"),
        ("registration.tau:=-1.0", "parameter 'registration.tau' = -1.0 is out of range"),
        ("registration.tau:=.nan", "parameter 'registration.tau' = NaN is out of range"),
        ("registration.tau:=.inf", "parameter 'registration.tau' = inf is out of range"),
        ("registration.pivots:=1.5", "parameter 'registration.pivots' must be of type integer, got number 1.5"),
        ("registration.pivots:=[1, 2]", "parameter 'registration.pivots' must be a single value"),
        ("tf.mode:=odom_map", "parameter 'tf.mode' = odom_map is out of range: map_odom, map_base, none"),
        ("frames.map:=''", "parameter 'frames.map'"),
        ("frames.map:=odom", "must be three different frames"),
        ("registration.triples_per_pivot:=8", "parameter 'registration.bounded_thread_candidates'"),
        ("use_sim_time:=7", "parameter 'use_sim_time' must be of type bool"),
    ],
)
def test_a_wrong_parameter_refuses_the_start(start_node, argument, said):
    """Exit code 2, and the name in the text."""
    process = start_node(arguments=["-p", argument], wait=False)
    assert process.wait() == 2, process.log
    assert said in process.log


def test_a_wrong_file_refuses_the_start(start_node, tmp_path):
    """A misspelt group, a file that is not there, one that is not YAML."""
    misspelt = tmp_path / "misspelt.yaml"
    misspelt.write_text("/**:\n  ros__parameters:\n    registraton: {tau: 0.1}\n")
    process = start_node(params_files=[misspelt], wait=False)
    assert process.wait() == 2 and "did you mean 'registration.tau'" in process.log
    process = start_node(params_files=[tmp_path / "absent.yaml"], wait=False)
    assert process.wait() == 2 and "absent.yaml" in process.log
    garbage = tmp_path / "garbage.yaml"
    garbage.write_text("{[}")
    assert start_node(params_files=[garbage], wait=False).wait() == 2


def test_an_argument_that_nobody_reads_refuses_the_start(processes):
    """Such as --params-file before --ros-args."""
    from node_process import EXECUTABLE

    process = processes([EXECUTABLE, "--params-file", "x.yaml"])
    assert process.wait() == 2 and "unexpected argument '--params-file'" in process.log


@pytest.mark.parametrize("preset", [name for name in PRESETS if name != "jetson.yaml"])
def test_presets_start_and_override(start_node, peer, preset):
    """A later file overrides an earlier one, and the command line both."""
    files = [ROOT / "config/localizer.yaml", ROOT / "config" / preset]
    start_node(params_files=files, arguments=["-p", "tf.hold_sec:=3"])
    changed = {"indoor.yaml": ("registration.tau", 0.012), "outdoor.yaml": ("registration.tau", 0.1)}
    name, value = {**changed, "camera.yaml": ("covariance.min_translation_std", 0.05)}[preset]
    assert peer.get_parameter(name) == value
    assert peer.get_parameter("tf.hold_sec") == 3.0
    assert peer.get_parameter("registration.pivots") == 1000


def test_an_explicit_cuda_that_is_not_there_refuses_the_start(start_node, peer):
    """No silent fall-back; with auto it starts and says why."""
    diagnostics = Diagnostics(peer)
    process = start_node(parameters={"backend.kind": "cuda"}, wait=False)
    try:
        assert process.wait(5.0) == 2 and "backend.kind is cuda" in process.log
    except AssertionError:
        assert process.running, process.log
        assert wait_until(diagnostics.latest, 10.0)["backend"] == "cuda"


def test_names_of_ros_are_not_refused(start_node, peer):
    """Launch files and bags set them for every node."""
    start_node(
        arguments=["-p", "use_sim_time:=false", "-p", "qos_overrides./tf.publisher.depth:=5", "-p", "start_type_description_service:=true"]
    )
    assert peer.get_parameter("use_sim_time") is False


def test_parameters_are_described(start_node, peer):
    """Every one with its meaning, unit and range; whole numbers become real ones at start."""
    start_node(parameters={"registration.tau": 1})
    names = peer.list_parameters()
    assert len(names) > 35 and {"registration.tau", "use_sim_time"} <= names
    assert peer.get_parameter("registration.tau") == 1.0
    ask = lambda kind, **fields: peer.call(kind, f"/flashreg/{snake(kind)}", kind.Request(**fields))
    tau, mode, pivots, unknown = ask(
        DescribeParameters, names=["registration.tau", "tf.mode", "registration.pivots", "nonsense"]
    ).descriptors
    assert tau.type == ParameterType.PARAMETER_DOUBLE and tau.description.endswith("[m]") and not tau.read_only
    assert (tau.floating_point_range[0].from_value, tau.floating_point_range[0].to_value) == (1e-6, 100.0)
    assert mode.type == ParameterType.PARAMETER_STRING and mode.read_only
    assert mode.additional_constraints == "map_odom, map_base, none"
    assert (pivots.integer_range[0].from_value, pivots.integer_range[0].to_value) == (1, 100000)
    assert unknown.type == ParameterType.PARAMETER_NOT_SET
    types = ask(GetParameterTypes, names=["registration.tau", "input.force_little_endian", "nonsense"]).types
    assert list(types) == [3, 1, 0]
    listed = ask(ListParameters, prefixes=["frames"], depth=2).result
    assert set(listed.names) == {"frames.map", "frames.odom", "frames.base"} and listed.prefixes == ["frames"]
    assert set(ask(ListParameters, depth=1).result.names) == {"use_sim_time"}


def snake(kind):
    """SetParameters -> set_parameters."""
    name = kind.__name__
    return "".join("_" + c.lower() if c.isupper() else c for c in name).lstrip("_")


def test_changes_at_run_time(start_node, peer):
    """Taken or refused with the reason; the values stay as they were if refused."""
    start_node()
    events = peer.collect(ParameterEvent, "/parameter_events")
    for values, reason in [
        ({"registration.tau": 0.5}, None),
        ({"registration.tau": 2}, None),
        ({"frames.map": "map"}, None),
        ({"registration.tau": 1000.0}, "out of range"),
        ({"registration.tau": float("nan")}, "out of range"),
        ({"registration.tau": "x"}, "must be of type number"),
        ({"registration.pivots": 2.0}, "must be of type integer"),
        ({"registration.pivots": [1, 2]}, "single value"),
        ({"frames.map": "world"}, "read at start"),
        ({"registration.max_correspondences": 100}, "read at start"),
        ({"no.such": 1}, "unknown parameter 'no.such'"),
        ({"registration.triples_per_pivot": 8}, "less than registration.triples_per_pivot"),
        ({"use_sim_time": 1}, "must be of type bool"),
    ]:
        (result,) = peer.set_parameters(values)
        assert result.successful == (reason is None), (values, result)
        assert (reason or "") in result.reason
    assert peer.get_parameter("registration.tau") == 2.0
    assert peer.get_parameter("frames.map") == "map"
    wait_until(lambda: any(p.name == "registration.tau" for e in list(events) for p in e.changed_parameters))


def test_all_or_none(start_node, peer):
    """set_parameters_atomically; values that belong together can be changed together."""
    start_node()

    def set_all(values):
        parameters = [Parameter(name, value=value).to_parameter_msg() for name, value in values.items()]
        request = SetParametersAtomically.Request(parameters=parameters)
        return peer.call(SetParametersAtomically, "/flashreg/set_parameters_atomically", request).result

    both = {"registration.triples_per_pivot": 8, "registration.bounded_thread_candidates": 8}
    assert set_all(both).successful
    assert peer.get_parameter("registration.triples_per_pivot") == 8
    assert not set_all({"registration.tau": 0.3, "frames.map": "world"}).successful
    assert peer.get_parameter("registration.tau") == 0.012


def test_a_change_takes_effect_with_the_next_message(start_node, peer):
    """transform_tolerance shows in the stamp, min_inliers in the status."""
    scene = Scene(peer)
    diagnostics = scene.diagnostics
    start_node(parameters=FAST)
    scene.connect()
    stamp, _ = scene.send()
    scene.transform_at(stamp, tolerance=0.1)
    assert peer.set_parameters({"tf.transform_tolerance": 0.25})[0].successful
    stamp, _ = scene.send()
    scene.transform_at(stamp, tolerance=0.25)
    diagnostics.wait(category="ok", accepted=2)
    assert peer.set_parameters({"acceptance.min_inliers": 5000})[0].successful
    scene.send()
    diagnostics.wait(category="low_inliers", rejected__low_inliers=1)
    assert peer.set_parameters({"acceptance.min_inliers": 8})[0].successful
    scene.localize()
