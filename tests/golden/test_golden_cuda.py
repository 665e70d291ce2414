"""The golden batches on CUDA; see ``test_golden.py``."""

import pytest
from cuda_case import _quick_simulator, needs_cuda, to_host  # noqa: F401
from golden_batches import check, digests, read
from golden_samplers import ADDRESSES, ON_CPU, SAMPLED
from nodewise_cuda_case import on_cuda

pytestmark = needs_cuda
GOLDEN = read()
SMALL = [name for name in SAMPLED if "large" not in name and name not in ON_CPU]


@pytest.mark.parametrize("name", SMALL)
def test_a_sampler(name):
    """The last bulk alone, whose address is the largest: the simulator is slow."""
    if name == "cluster, METIS":
        pytest.importorskip("pymetis")
    case = SAMPLED[name]()
    expected = dict(list(GOLDEN[name].items())[-len(case.bulk) :])
    check(name, digests(case.in_bulks(on_cuda(), ADDRESSES[-1:], to_host)), expected)
