"""launch/flashreg.service: its command starts the installed node, and mistakes are not tried again."""

import re
import shlex
import string

import pytest
from node_process import ROOT
from ros_peer import wait_until

UNIT = (ROOT / "launch" / "flashreg.service").read_text().replace("\\\n", " ")


@pytest.fixture
def command(colcon_install):
    """The command of the unit as systemd expands it, with settings of its environment changed."""

    def expand(**changes):
        settings = dict(re.findall(r'^Environment="?(\w+)=(.*?)"?$', UNIT, re.MULTILINE))
        # ROS is sourced already where the tests run.
        settings |= {"ROS_SETUP": "/dev/null", "FLASHREG": str(colcon_install / "flashreg")} | changes
        (line,) = re.findall(r"^ExecStart=(.*)$", UNIT, re.MULTILINE)
        return shlex.split(string.Template(line).substitute(settings))

    return expand


@pytest.mark.parametrize("place, tau", [("outdoor", 0.1), ("indoor", 0.012)])
def test_the_service_starts_the_node(command, processes, peer, place, tau):
    """With the preset of the place, that of the Jetson, and its end on the signal of the unit."""
    assert "KillSignal=SIGINT\n" in UNIT
    processes(command(FLASHREG_PLACE=place))
    peer.wait_for_node("/flashreg")
    wait_until(lambda: peer.list_parameters(), what="parameters")
    expected = {"registration.tau": tau, "registration.max_correspondences": 8192, "backend.on_fault": "exit"}
    assert {name: peer.get_parameter(name) for name in expected} == expected


def test_a_wrong_parameter_is_not_tried_again(command, processes):
    """The exit code is the one that the unit names."""
    process = processes(command(FLASHREG_ARGUMENTS="-p registration.tua:=1.0"))
    code = process.wait(10.0)
    assert "registration.tau" in process.log
    assert f"RestartPreventExitStatus={code}\n" in UNIT and "Restart=on-failure\n" in UNIT
