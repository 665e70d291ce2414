"""Samplers whose hops have no upper bound on edges: if a buffer is too small at first, the batches still equal the CPU's."""

import numpy as np
import pytest
from cuda_case import needs_cuda, to_host
from golden.golden_graphs import hetero_graph, small
from nodewise_cuda_case import on_cuda
from work_cuda_case import start_with_capacity_1

from hoptrain.samplers import HeteroSampler, LaborSampler, LinkSampler, NeighborSampler, TemporalSampler, VRGCNSampler

pytestmark = needs_cuda
CASES = {
    "all": NeighborSampler([3, -1]),
    "all, twice": NeighborSampler([-1, -1]),
    "new": NeighborSampler([2, -1, -1], expand="new"),
    "links": LinkSampler(NeighborSampler([-1], expand="new")),
    "temporal": TemporalSampler([-1], seed_times=np.full(40, 2**40)),
    "labor": LaborSampler([3, 2]),
    "labor, importance": LaborSampler([3], importance_rounds=1),
    "vrgcn": VRGCNSampler([2]),
    "hetero": HeteroSampler([-1, 2], "p"),
}


@pytest.mark.parametrize("kernel", ["sample", "transit"])
@pytest.mark.parametrize("name", CASES)
def test_a_bulk_is_queued_again_until_it_fits(name, kernel, monkeypatch):
    """A bulk that does not fit is queued again until it does: the first bulk has seeds with few edges, and the next one hubs."""
    sampler, workspace, graph = CASES[name], on_cuda(kernel), hetero_graph() if name == "hetero" else small()
    start_with_capacity_1(monkeypatch)
    capacities = []
    for bulk in ([[13], [12]], [[0, 4, 2], [1, 9]]):
        bulk = [np.array(seeds) for seeds in bulk]
        found = sampler.sample_bulk(graph, bulk, seed=5, workspace=workspace)
        for own, other in zip(found, sampler.sample_bulk(graph, bulk, seed=5), strict=True):
            for key, array in other.arrays().items():
                np.testing.assert_array_equal(to_host(own.arrays()[key]), array, err_msg=key)
        driver = workspace.on_device.driver
        capacities.append(dict(getattr(driver, "inner", driver).capacities))
    assert capacities[0] != capacities[1]
    assert max(capacities[1].values()) > 1
