"""The golden batches on CUDA (``test_golden.py``)."""

import inspect

import pytest
from cuda_case import needs_cuda, to_host
from golden_batches import check, digests, read
from golden_samplers import ADDRESSES, ON_CPU, SAMPLED, one_of_each
from large_cases import LARGE, SyntheticProducts
from nodewise_cuda_case import on_cuda

from hoptrain.samplers.cuda.device_sampler import DeviceSampler
from hoptrain.samplers.cuda.drivers import DRIVERS, driver_for

pytestmark = needs_cuda
GOLDEN = read()
SMALL = [name for name in SAMPLED if "large" not in name and name not in ON_CPU]


@pytest.mark.parametrize("name", [pytest.param(name, marks=one_of_each(name)) for name in SMALL])
def test_a_sampler(name):
    """The last bulk, which has the largest address, has the golden digests on CUDA; the simulator is too slow for all bulks."""
    if name == "cluster, METIS":
        pytest.importorskip("pymetis")
    case = SAMPLED[name]()
    expected = dict(list(GOLDEN[name].items())[-len(case.bulk) :])
    check(name, digests(case.in_bulks(on_cuda(), ADDRESSES[-1:], to_host)), expected)


def _kinds_below(kind):
    return {kind, *(each for below in kind.__subclasses__() for each in _kinds_below(below))}


def test_every_driver_has_a_large_case():
    """Each CUDA driver, including those that depend on a sampler's options, has a case in ``large_cases.py``."""
    products, asked, made = SyntheticProducts.of(0.0005), set(), set()
    for make in LARGE.values():
        work = make(products)
        asked.add(next(kind for kind in type(work.sampler).__mro__ if kind in DRIVERS))
        made.add(type(driver_for(work.graph, work.sampler, on_cuda())))
    assert asked == DRIVERS.keys()
    named = {
        kind for kind in _kinds_below(DeviceSampler) if kind.__name__.startswith("Cuda")
    }  # the other classes are base classes of these
    assert {kind for kind in named if not inspect.isabstract(kind)} <= made
