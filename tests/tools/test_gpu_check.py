"""tools/gpu-check with made-up programs: what fails makes it fail, and what cannot be checked is no success."""

import json
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

CHECK = Path(__file__).resolve().parents[2] / "tools" / "gpu-check"
DOCTOR = """
[ $1 = kernels ] && { mkdir "$2"; echo "sm_90 for $4"; exit; }
[ $1 = bench ] && { echo "planted ok 50"; exit; }
backend="cpu (there are no kernels made ahead for sm_90, and FLASHREG_NVRTC=$FLASHREG_NVRTC)"
[ -z "$FLASHREG_KERNELS" ] || backend="cuda (a card; kernels %s)"
echo '{"checks": [{"name": "CUDA device", "found": "a card, compute capability 9.0"},
  {"name": "backend", "found": "'"$backend"'"}]}'
"""


@pytest.fixture
def check(tmp_path):
    """Runs a packed gpu-check with these programs, {name: text of a shell script}."""

    def run(programs, *arguments, pairs=()):
        made = tmp_path / "made"
        (made / "programs").mkdir(parents=True)
        for name, text in programs.items():
            path = made / "programs" / name
            path.write_text(f"#!/bin/sh\n{text}\n")
            path.chmod(0o755)
        if pairs:
            (made / "data").mkdir()
            truth = {pair: {"outdoor": False, "correspondences": {"given": {}}} for pair in pairs}
            (made / "data" / "truth.json").write_text(json.dumps(truth))
        packed = tmp_path / "packed"
        packed.mkdir()
        with tarfile.open(packed / "programs.tar.xz", "w:xz") as archive:
            archive.add(made, arcname=".")
        shutil.copy2(CHECK, packed)
        command = [packed / "gpu-check", *arguments, "--logs", tmp_path / "logs"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    return run


@pytest.mark.parametrize(
    "parity, verdict, code",
    [("true", "ok", 0), ("echo wrong; exit 3", "FAILED", 1), ("echo skipped: no CUDA device", "skipped", 0)],
)
def test_a_failure_is_told(check, parity, verdict, code):
    got, out = check({"unit": "true", "parity_gpu": parity, "gpu_memory": "true"}, "--only", "parity")
    assert got == code, out
    line = next(line for line in out.splitlines() if line.startswith("parity, 300 random cases"))
    assert verdict in line, out
    assert ("  wrong" in out) == bool(code), out


@pytest.mark.parametrize("origin, code", [("made ahead, $FLASHREG_KERNELS/sm_90.kernels", 0), ("from the cache", 1)])
def test_kernels_have_to_come_from_their_folder(check, origin, code):
    got, out = check({"flashreg": DOCTOR % origin}, "--only", "bundle")
    assert got == code, out
    assert "sm_90 for 90" in out, out
    assert ("taken from their folder                      FAILED" in out) == bool(code), out


@pytest.mark.parametrize("overwritten, code", [(0, 0), (1, 1)])
def test_a_dropped_message_fails_the_node(check, overwritten, code):
    ranks = ("p50", "p95", "p99", "max")
    series = {f"latency_us.{name}.{rank}": "1500.0" for name in ("total", "age") for rank in ranks}
    said = {"backend": "cpu", "backend_why": "", "received": "7", "accepted": "7", "overwritten": str(overwritten)}
    trip = dict.fromkeys(ranks, 2.0)
    report = {"rows": 12, "sent": 7, "answered": 7, "round_trip_ms": trip, "node": {**said, **series}}
    programs = {
        "flashreg_node": "trap 'exit 0' INT; while :; do sleep 0.05; done",
        "flashreg_replay": f"sleep 0.2; echo '{json.dumps(report)}'",
    }
    got, out = check(programs, "--only", "node", "--backends", "cpu", pairs=["hall/1_2"])
    assert got == code, out
    assert "hall/1_2 given                          12    1.500" in out, out
    assert ("'overwritten': 1" in out) == bool(code), out


def test_unknown_parts_are_refused(check):
    got, out = check({}, "--only", "parity,speed")
    assert got == 2 and "speed: not one of parity, fault" in out, out
