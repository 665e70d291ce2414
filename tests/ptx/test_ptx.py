"""The CUDA kernels as they are compiled, instruction by instruction on a CPU: equal to the CPU's, without races, and within their arrays.

The simulator is chosen before Numba is imported, so each group of tests runs in a pytest of its own that has the interpreter for a device.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cuda_case import needs_cuda

pytestmark = [needs_cuda, pytest.mark.timeout(600)]
TESTS = Path(__file__).parents[1]
KERNELS = ["tests/kernels/cuda", "--ignore=tests/kernels/cuda/test_resources.py"]
SAMPLERS = ["tests/samplers/cuda", "tests/golden/test_golden_cuda.py"]
QUICK = {
    "the machine": (["tests/ptx/machine_faults.py"], {}),
    "kernels": (KERNELS, {"seed": 1}),
    "golden batches": (["tests/golden/test_golden_cuda.py"], {"seed": 2}),
}


def run_interpreted(arguments, *, seed=0, capability="8.0", **environment):
    """A pytest on the interpreter: whether all passed, and what it printed."""
    options = ["-p", "ptx.plugin", "-p", "no:cacheprovider", "--tb=short", "--durations=0", "--durations-min=5"]
    command = [sys.executable, "-m", "pytest", *options, f"--ptx-seed={seed}", f"--ptx-capability={capability}", *arguments]
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "NUMBA_", "HOPTRAIN_TEST_"))}
    variables |= {"PYTHONPATH": str(TESTS)} | environment
    return subprocess.run(command, cwd=TESTS.parent, env=variables, capture_output=True, text=True, timeout=590)


def check(arguments, **options):
    done = run_interpreted(arguments, **options)
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr[-2000:]


@pytest.mark.parametrize("group", QUICK)
def test_quick(group):
    arguments, options = QUICK[group]
    check([*arguments, "-m", "not long"], **options)
