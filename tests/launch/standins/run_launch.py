#!/usr/bin/env python3
"""run_launch.py [--show] FILE [ARGUMENT:=VALUE]...

What `ros2 launch` does, with the stand-ins beside this file: evaluates a launch file, starts its
nodes, passes SIGINT and SIGTERM on to them, and exits with the first exit code that is not 0.
With --show it starts nothing, and prints the nodes' command lines and the parameter files made for
them as JSON.
"""

import contextlib
import json
import os
import pathlib
import runpy
import signal
import subprocess
import sys

from launch import LaunchContext
from launch.actions import DeclareLaunchArgument
from launch_ros.actions import Node


def evaluate(description, context, nodes):
    """Executes the actions; appends the nodes to start."""
    waiting = list(description.entities)
    undeclared = set(context.launch_configurations)
    while waiting:
        action = waiting.pop(0)
        waiting[:0] = action.visit(context)
        if isinstance(action, DeclareLaunchArgument):
            undeclared.discard(action.name)
        if isinstance(action, Node) and action.command:
            nodes.append(action)
    if undeclared:
        raise SystemExit(f"the launch file declares no argument {', '.join(sorted(undeclared))}")


def run(nodes):
    """Starts the nodes and waits for their end; returns the exit code."""
    processes = []

    def pass_on(number, _frame):
        for process in processes:
            process.send_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, pass_on)
    for node in nodes:
        print("starting", *node.command, flush=True)
        # A session of its own: Ctrl-C on a terminal reaches the node once, through this program.
        processes.append(subprocess.Popen(node.command, start_new_session=True))
    codes = [process.wait() for process in processes]
    return next((code for code in codes if code), 0)


def main(arguments):
    """Runs the program."""
    show = arguments[:1] == ["--show"]
    file, *words = arguments[show:]
    values = dict(word.split(":=", 1) for word in words)
    description = runpy.run_path(file)["generate_launch_description"]()
    nodes = []
    try:
        evaluate(description, LaunchContext(values), nodes)
        if show:
            files = [{path: pathlib.Path(path).read_text() for path in node.parameter_files} for node in nodes]
            print(json.dumps([{"command": n.command, "made_files": f} for n, f in zip(nodes, files)]))
            return 0
        return run(nodes)
    finally:
        for node in nodes:
            for path in node.parameter_files:
                with contextlib.suppress(FileNotFoundError):
                    os.remove(path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
