"""The compiled CUDA kernels, interpreted on a CPU: results equal the CPU kernels', without races or accesses out of bounds.

Numba chooses the simulator at import, so each group of tests runs in its own pytest process with the interpreter as device.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cuda_case import needs_cuda

pytestmark = [needs_cuda, pytest.mark.timeout(1200)]
TESTS = Path(__file__).parents[1]
KERNELS = [
    "tests/kernels/cuda",
    "--ignore=tests/kernels/cuda/test_resources.py",
    "--ignore=tests/kernels/cuda/native",
]  # such tests are interpreted anyway
BULKS = "tests/golden/test_bulks_cuda.py"
GOLDEN = "tests/golden/test_golden_cuda.py"
QUICK = {
    "the machine": (["tests/ptx/machine_faults.py"], {}),
    "kernels": ([*KERNELS, "-m", "not long"], {"seed": 1}),
}
LONG = {
    "a bulk of every sampler": ([BULKS, "-m", "promise"], {"seed": 2}),
    "bytes": (["tests/ptx/counted_bytes.py"], {"seed": 1}),
    "samplers": ([*KERNELS, "tests/samplers/cuda", GOLDEN, BULKS, "-k", "not thousand_nodes"], {"seed": 3}),
    "large cases": ([BULKS, "-k", "thousand_nodes"], {"seed": 8}),
    "parts of make gpu": (["tests/benchmarks/device/test_parts.py"], {"seed": 9}),
    "sm_90a, blocks of 256": (
        [*KERNELS, GOLDEN, "-k", "not around_the_tile"],
        {"seed": 6, "capability": "9.0", "HOPTRAIN_TEST_BLOCK": "256"},
    ),
    "sm_100a": ([*KERNELS, GOLDEN], {"seed": 7, "capability": "10.0"}),
}
"""Arguments of pytest with options of ``run_interpreted`` (seed, device, variables). NVVM compiles for sm_100a with another optimiser than
for the others."""


def run_interpreted(arguments, *, seed=0, capability="8.0", before="", **environment):
    """Run pytest on the interpreter, and return the finished process; modules in ``before`` precede all others."""
    options = ["-p", "ptx.plugin", "-p", "no:cacheprovider", "--tb=short", "--durations=0", "--durations-min=5"]
    command = [sys.executable, "-P", "-m", "pytest", *options, f"--ptx-seed={seed}", f"--ptx-capability={capability}", *arguments]
    variables = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST_XDIST", "PYTEST_CURRENT", "NUMBA_", "HOPTRAIN_TEST_"))
    }
    variables |= {"PYTHONPATH": f"{before or TESTS}:{TESTS}"} | environment
    return subprocess.run(command, cwd=TESTS.parent, env=variables, capture_output=True, text=True, timeout=1190)


def check(arguments, **options):
    """Check that all tests passed, launches were interpreted, and no test was skipped for lack of a device."""
    done = run_interpreted(arguments, **options)
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr[-2000:]
    assert re.search(r"^PTX: [1-9][\d,]* launches", done.stdout, re.MULTILINE), done.stdout[-2000:]
    assert re.search(r"^[1-9]\d* passed", done.stdout, re.MULTILINE), done.stdout[-2000:]


@pytest.mark.promise
@pytest.mark.parametrize("group", QUICK)
def test_quick(group):
    arguments, options = QUICK[group]
    check(arguments, **options)


@pytest.mark.long  # even if its duration is not recorded
@pytest.mark.parametrize("group", LONG)
def test_long(group):
    arguments, options = LONG[group]
    check(arguments, **options)
