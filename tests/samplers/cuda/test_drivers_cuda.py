"""The table of drivers: the CUDA driver of each sampler class, and the time for which a workspace keeps a driver."""

import inspect

import numpy as np
from cases.mistakes import refused
from conftest import make_graph
from cuda_case import needs_cuda
from nodewise_cuda_case import on_cuda

from hoptrain import samplers
from hoptrain.samplers import LinkSampler, MVSSampler, NeighborSampler, Sampler
from hoptrain.samplers.cuda.drivers import DRIVERS, driver_for
from hoptrain.samplers.subgraphs.unweighted import BySources, BySumOfDegrees

pytestmark = needs_cuda


class Renamed(NeighborSampler):
    """A subclass that samples as its parent does."""


class Another(NeighborSampler):
    def sample_on_cpu(self, graph, seeds, address, workspace):
        raise AssertionError


ON_CPU = {samplers.HGTSampler, samplers.HeteroLaborSampler, samplers.HeteroLinkSampler, samplers.HeteroTemporalSampler}
"""Samplers without CUDA kernels."""


def test_every_sampler_has_a_driver():
    public = [kind for name in samplers.__all__ if inspect.isclass(kind := getattr(samplers, name)) and issubclass(kind, Sampler)]
    concrete = [kind for kind in public if not inspect.isabstract(kind)]
    assert len(concrete) > 15
    assert {kind for kind in concrete if not any(parent in DRIVERS for parent in kind.__mro__)} == ON_CPU


def test_subclasses():
    """A subclass without sampling code of its own has its parent's driver; a subclass that overrides sampling is rejected on CUDA."""
    graph, workspace = make_graph(9, 20), on_cuda()
    assert type(driver_for(graph, Renamed([2]), workspace)) is type(driver_for(graph, NeighborSampler([2]), workspace))
    with refused('device="cuda"', "Another no kernels CUDA", 'device="cpu"'):
        Another([2]).sample(graph, np.array([1]), workspace=workspace)
    with refused('device="cuda"', "Another no kernels CUDA", 'device="cpu"'):
        MVSSampler(Another([2]), 3).sample(graph, np.array([1]), workspace=workspace)


def test_a_workspace_keeps_the_driver_of_one_graph_and_sampler():
    graph, workspace, sampler = make_graph(9, 20), on_cuda(), NeighborSampler([2])
    first = driver_for(graph, sampler, workspace)
    assert driver_for(graph, sampler, workspace) is first
    assert driver_for(make_graph(9, 20), sampler, workspace) is not first
    links = LinkSampler(sampler, exclude="none")
    around = driver_for(graph, links, workspace)
    assert driver_for(graph, links, workspace) is around
    links.sampler = NeighborSampler([3])
    assert driver_for(graph, links, workspace) is not around


def test_draws_of_another_distribution_have_no_driver():
    """`BySumOfDegrees` has no driver, since it draws from tables of edges; `BySources`, which draws nodes, has its parent's."""
    graph, options = make_graph(9, 20), {"normalise": False, "num_subgraphs": 1}
    assert driver_for(graph, BySources(3, 2, **options).prepare(graph, np.arange(9)), on_cuda())
    with refused('device="cuda"', "BySumOfDegrees no kernels CUDA", 'device="cpu"'):
        driver_for(graph, BySumOfDegrees(3, 2, **options).prepare(graph, np.arange(9)), on_cuda())
