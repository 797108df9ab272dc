"""Fixtures for tests with real ROS processes. Source .ros/env.sh first, or run tools/test.

Each test has a ROS domain of its own: `domain`. `peer` is a ros_peer.Peer in it, and
`start_node` starts flashreg_node in it.
"""

import signal

import pytest
from node_process import EXECUTABLE, NodeProcess, ros_domain, write_parameters
from ros_peer import Peer, wait_until

# What is started in the background by a shell ignores SIGINT, and so would all that the tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def domain():
    """ROS domain id of this test."""
    with ros_domain() as number:
        yield number


@pytest.fixture
def peer(domain):
    """The other side of the node under test."""
    peer = Peer(domain)
    yield peer
    peer.close()


@pytest.fixture
def processes(domain, tmp_path):
    """Starts programs: `processes(command)` returns a NodeProcess.

    At the end of the test those that still run are stopped by SIGINT and have to exit with 0; one
    that has ended by itself fails the test, unless the test has waited for that or stopped it.
    """
    started = []

    def start(command):
        process = NodeProcess(command, domain, tmp_path / f"process{len(started)}.log")
        started.append(process)
        return process

    yield start
    failures = []
    for process in started:
        try:
            process.close()
        except AssertionError as failure:
            failures.append(str(failure))
    assert not failures, "\n\n".join(failures)


@pytest.fixture
def start_node(peer, processes, tmp_path):
    """Starts flashreg_node and waits until it is in the graph; returns its NodeProcess.

    parameters: {name: value}, applied after params_files. remaps: {from: to}.
    arguments: further words after --ros-args. wait=False: for a node that is to refuse its start.
    """

    def start(parameters=None, params_files=(), remaps=None, arguments=(), name="flashreg", namespace="/", wait=True):
        command = [EXECUTABLE, "--ros-args"]
        for file in params_files:
            command += ["--params-file", file]
        if parameters:
            command += ["--params-file", write_parameters(tmp_path / f"{name}.yaml", parameters)]
        for rule in {"__node": name, "__ns": namespace, **(remaps or {})}.items():
            command += ["-r", ":=".join(rule)]
        process = processes([*command, *arguments])
        if wait:
            full_name = f"{namespace.rstrip('/')}/{name}"
            wait_until(lambda: full_name in peer.node_names() or not process.running, 15.0, f"node {full_name}")
            assert process.running, f"the node has ended; its log:\n{process.log}"
            peer.wait_for_node(full_name)
        return process

    return start
