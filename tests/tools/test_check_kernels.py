"""tools/check-kernels: a kernel that spills, and one that does not compile, make it fail."""

import subprocess
from pathlib import Path

CHECK = Path(__file__).resolve().parents[2] / "tools" / "check-kernels"

GOOD = 'extern "C" __global__ void good(float *p) { p[threadIdx.x] *= 2.0f; }\n'
# 100 values alive at once in a kernel that may use 32 registers.
SPILLS = """
extern "C" __global__ void __launch_bounds__(1024, 2) spills(float *p) {
  float v[100];
#pragma unroll
  for (int i = 0; i < 100; i++) v[i] = p[i * 1024 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 100; i++) p[i * 1024 + threadIdx.x] = v[99 - i] * v[(i * 37) % 100];
}
"""


def check(folder, text):
    """Exit code, stdout, stderr of the check of a file with this text."""
    source = folder / "made_up.cu"
    source.write_text(text)
    done = subprocess.run([CHECK, source, "75", "87"], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_a_spill_fails(tmp_path):
    code, out, err = check(tmp_path, GOOD + SPILLS)
    assert code == 1, out + err
    assert "spills spills for sm_75" in err and "spills spills for sm_87" in err, err
    assert "good spills" not in err, err
    rows = [line.split() for line in out.splitlines() if line.startswith(("good ", "spills "))]
    assert {row[0] for row in rows if int(row[-1]) > 0} == {"spills"}, out
    assert {row[0] for row in rows if int(row[-1]) == 0} == {"good"}, out


def test_what_does_not_compile_fails(tmp_path):
    code, out, err = check(tmp_path, GOOD + "nonsense;\n")
    assert code == 1 and "nonsense" in err and "does not compile for sm_75" in err, out + err


def test_a_file_without_kernels_fails(tmp_path):
    code, out, err = check(tmp_path, "// nothing\n")
    assert code == 1 and "not understood" in err, out + err
