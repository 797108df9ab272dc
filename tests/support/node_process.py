"""A ROS node as a process of its own, and ROS domains that no other test uses."""

import contextlib
import os
import pathlib
import random
import signal
import socket
import subprocess
import time

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
EXECUTABLE = TARGET / "release" / "flashreg_node"


@contextlib.contextmanager
def ros_domain():
    """Yields a ROS domain id that no other test on this machine uses meanwhile.

    The claim is a bound port, which the system frees however this process ends. Ids above 101
    collide with the ports that Linux gives to clients.
    """
    ids = list(range(1, 102))
    random.shuffle(ids)
    for domain in ids:
        with socket.socket() as claim:
            try:
                claim.bind(("127.0.0.1", 21000 + domain))
            except OSError:
                continue
            yield domain
            return
    raise RuntimeError("all ROS domains are in use by tests")


def write_parameters(path, parameters):
    """Writes a ROS parameter file for any node."""
    path.write_text(yaml.safe_dump({"/**": {"ros__parameters": parameters}}))
    return path


class NodeProcess:
    """A started program, its log, and its proper end."""

    def __init__(self, command, domain, log):
        self.command = [str(part) for part in command]
        self._log = pathlib.Path(log)
        self.exit_code = None
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "ROS_DOMAIN_ID": str(domain)},
            )

    @property
    def pid(self):
        """Process id."""
        return self._process.pid

    @property
    def running(self):
        """Whether the program has not ended."""
        return self._process.poll() is None

    @property
    def log(self):
        """What the program has printed so far."""
        return self._log.read_text(errors="replace")

    def wait_for_log(self, text, timeout=5.0):
        """Waits until the program has printed the text."""
        end = time.monotonic() + timeout
        while text not in self.log:
            assert time.monotonic() < end, f"not in the log after {timeout} s: {text!r}; the log:\n{self.log}"
            time.sleep(0.02)

    def wait(self, timeout=5.0):
        """Waits for the program to end by itself; returns its exit code."""
        try:
            self.exit_code = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout} s; the log:\n{self.log}") from None
        return self.exit_code

    def stop(self, number=signal.SIGINT, timeout=5.0):
        """Sends the signal and returns the exit code."""
        self._process.send_signal(number)
        return self.wait(timeout)

    def close(self):
        """At the end of a test: stops the program if nobody did, and demands exit code 0 then."""
        if self.exit_code is not None:
            return
        ended = not self.running
        try:
            code = self.wait(0) if ended else self.stop()
        finally:
            if self.running:
                self._process.kill()
                self._process.wait()
        assert not ended, f"ended by itself with exit code {code}; the log:\n{self.log}"
        assert code == 0, f"exit code {code} on SIGINT; the log:\n{self.log}"
