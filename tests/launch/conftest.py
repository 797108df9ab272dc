"""The package as colcon installs it, once for all tests of this folder."""

import os
import shutil
import subprocess

import pytest
from node_process import ROOT, TARGET

COLCON = ROOT / ".ros" / "colcon"


@pytest.fixture(scope="session")
def colcon_install():
    """Builds the package with colcon, from nothing but cargo's target folder; returns the install folder."""
    shutil.rmtree(COLCON, ignore_errors=True)
    build, install = COLCON / "build", COLCON / "install"
    build.mkdir(parents=True)
    # colcon gives cargo a target folder of its own, build/flashreg, and r2r takes minutes to
    # compile. The environment is the same as cargo's here, so cargo finds everything done.
    TARGET.mkdir(exist_ok=True)
    (build / "flashreg").symlink_to(TARGET)
    command = ["colcon", "--log-base", COLCON / "log", "build", "--base-paths", ROOT]
    command += ["--build-base", build, "--install-base", install, "--event-handlers", "console_direct+"]
    before = sorted(os.listdir(ROOT))
    # colcon-ros-cargo writes .cargo/config.toml into the current folder: not into the repository
    result = subprocess.run(
        [*command, "--cargo-args", "--release", "--locked"],
        cwd=COLCON,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout
    assert sorted(os.listdir(ROOT)) == before
    return install


@pytest.fixture
def in_install(colcon_install, tmp_path):
    """Wraps a command: it runs in an empty folder with the installed package sourced."""

    def wrap(*command, prepend=None):
        """prepend: {environment variable: folder to put in front of it}."""
        settings = [
            f"{name}={':'.join(filter(None, [str(folder), os.environ.get(name)]))}"
            for name, folder in (prepend or {}).items()
        ]
        script = 'set +u; source "$0/setup.bash"; cd "$1"; shift; exec "$@"'
        return ["env", *settings, "bash", "-c", script, colcon_install, tmp_path, *command]

    return wrap
