"""No kernel spills registers, uses local memory or double precision, or takes too much of an SM, on any architecture.

The compilers are libraries that need no device; they run in one process without the simulator. If they were installed as wheels, no
compiler of the machine is used.
"""

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cuda_case import needs_cuda
from usage import ARCHITECTURES, LIMITS, excesses

from hoptrain.kernels.cuda import KERNELS

pytestmark = [needs_cuda, pytest.mark.timeout(620), pytest.mark.long]  # the fixture compiles all kernels

SCRIPT = Path(__file__).with_name("resources.py")
PACKAGE = "hoptrain.kernels.cuda"
CONTROL = "wasteful"  # a module in this folder, like the others; it cannot be imported in the simulator
COMPILERS = {"nvidia-cuda-nvrtc", "nvidia-nvjitlink", "nvidia-nvvm"}
LIMITS_OF = {
    PACKAGE: LIMITS,
    "wide_offsets": LIMITS,
    "programs": LIMITS | {"stack": 32, "spills": 320, "float64": 20},  # the limits do not apply to a user's ``next``, here Node2Vec's
}


@pytest.fixture(scope="module")
def reports():
    """Return the reports on the package, on other kernels, and on wasteful kernels as a control."""
    environment = os.environ | {"NUMBA_ENABLE_CUDASIM": "0"}
    if {distribution.name for distribution in importlib.metadata.distributions()} >= COMPILERS:
        environment = {name: value for name, value in environment.items() if name not in ("CUDA_HOME", "CUDA_PATH")} | {"PATH": ""}
    command = [sys.executable, "-W", "error", str(SCRIPT), *LIMITS_OF, CONTROL]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("module", LIMITS_OF)
def test_kernels_stay_within_the_limits(reports, module):
    records, limits = reports[module]["records"], LIMITS_OF[module]
    over = [f"{r['kernel']} on {r['arch']}, {r['signature']}: {excesses(r, limits)}" for r in records if excesses(r, limits)]
    assert not over, "\n".join([f"limits: {limits}", *over])


def test_every_kernel_is_compiled_for_every_architecture(reports):
    done = {(r["kernel"], r["arch"]) for r in reports[PACKAGE]["records"]}
    assert done == {(name, arch) for name in KERNELS for arch in ARCHITECTURES}
    assert reports[PACKAGE]["unlisted"] == []


@pytest.mark.parametrize(
    ("module", "some"), [("programs", {"node2vec", "metapath", "collective program"}), ("wide_offsets", {"sample_requests"})]
)
def test_other_kernels_are_compiled_for_every_architecture(reports, module, some):
    done = {(r["kernel"], r["arch"]) for r in reports[module]["records"]}
    names = {name for name, _ in done}
    assert some <= names
    assert done == {(name, arch) for name in names for arch in ARCHITECTURES}


def test_kernels_that_break_a_limit_are_found(reports):
    records = reports[CONTROL]["records"]
    assert {(r["kernel"], r["arch"]) for r in records} == {(name, arch) for name in LIMITS for arch in ARCHITECTURES}
    for record in records:
        assert record["kernel"] in excesses(record), record
    assert reports[CONTROL]["unlisted"] == ["is_not_listed"]
