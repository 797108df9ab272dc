"""What `colcon build` installs, and that it runs from there."""

import os

from node_process import ROOT


def test_files_are_in_their_places(colcon_install):
    """Where ros2 run, ros2 launch and the ament index look for them."""
    prefix = colcon_install / "flashreg"
    for executable in ("flashreg", "flashreg_node"):
        assert os.access(prefix / "lib/flashreg" / executable, os.X_OK)
    share = prefix / "share"
    assert (share / "ament_index/resource_index/packages/flashreg").is_file()
    assert (share / "flashreg/package.xml").read_bytes() == (ROOT / "package.xml").read_bytes()
    for folder in ("launch", "config"):
        expected = {path.name: path.read_bytes() for path in (ROOT / folder).iterdir() if path.is_file()}
        assert expected == {path.name: path.read_bytes() for path in (share / "flashreg" / folder).iterdir()}


def test_installed_node_starts(in_install, processes, peer):
    """As `ros2 run flashreg flashreg_node` does: by the prefix in the ament index."""
    find = "from ament_index_python.packages import get_package_prefix as p; print(p('flashreg'))"
    script = f'exec "$(python3 -c "{find}")/lib/flashreg/flashreg_node"'
    processes(in_install("bash", "-c", script))
    peer.wait_for_node("/flashreg")
