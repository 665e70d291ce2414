"""The native kernels keep the resource limits of Numba's kernels (see ``usage``)."""

import re

import pytest
from cpp.nvrtc import FOLDER, compile_source, kernels_of, text_of
from cuda_case import needs_cuda
from usage import ARCHITECTURES, LIMITS, count_float64, excesses, read_report

pytestmark = needs_cuda
SOURCES = sorted(path.stem for path in FOLDER.glob("*.cu"))
WASTEFUL = """
extern "C" __global__ void keeps_an_array(int* x, int n) {
    int kept[100];
    for (int i = 0; i < 100; i++) kept[i] = x[i];
    for (int i = 0; i < n; i++) x[i] = kept[x[i + 100]];
}
extern "C" __global__ void computes_in_double_precision(double* x) { x[0] *= 3.5; }
"""


def records(name, arch, source=None):
    """Return the resources used by each kernel."""
    ptx, log = compile_source(name, arch, source)
    parts = re.split(r"(?=ptxas info\s*: Compiling entry function)", log)[1:]
    if not parts:
        pytest.skip("the NVRTC that is installed reports nothing of its assembler")
    reports = {re.search(r"entry function '(\S+)'", part)[1]: part for part in parts}
    assert sorted(reports) == sorted(kernels_of(ptx))
    return {k: read_report(part, k) | {"float64": count_float64(text_of(ptx, k), k)} for k, part in reports.items()}


def limits_of(kernel):
    """Return the limits of a kernel. Only kernels for float64 rows may use double precision."""
    return {name: limit for name, limit in LIMITS.items() if name != "float64" or "_double" not in kernel}


@pytest.mark.parametrize("arch", sorted(ARCHITECTURES))
@pytest.mark.parametrize("name", SOURCES)
def test_kernels_stay_within_the_limits(name, arch):
    found = records(name, arch)
    assert found
    assert {kernel: over for kernel, record in found.items() if (over := excesses(record, limits_of(kernel)))} == {}


@pytest.mark.parametrize("arch", sorted(ARCHITECTURES))
def test_kernels_that_break_a_limit_are_found(arch):
    found = records("gather", arch, WASTEFUL)
    assert {kernel: set(excesses(record)) for kernel, record in found.items()} == {
        "keeps_an_array": {"stack"},
        "computes_in_double_precision": {"float64"},
    }


def test_what_nvrtc_refuses_is_an_error():
    with pytest.raises(RuntimeError, match="error: "):
        compile_source("gather", "sm_80", "no C++")
