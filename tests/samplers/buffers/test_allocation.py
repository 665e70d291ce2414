"""A sampler allocates nothing in a steady state: it reuses the arrays of the previous call."""

import threading
import tracemalloc

import numpy as np
import pytest

from hoptrain.engine import Graph
from hoptrain.samplers import NeighborSampler, Workspace
from hoptrain.samplers.base import run_bulk


def addresses(batches):
    return [array.ctypes.data for batch in batches for array in batch.arrays().values()]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("options", [{}, {"replace": True}, {"expand": "new"}], ids=str)
def test_a_bulk_after_the_first_allocates_no_array(options, threads):
    rng = np.random.default_rng(0)
    graph = Graph.from_edges(*rng.integers(0, 20_000, (2, 300_000)), 20_000)
    sampler, workspace = NeighborSampler([10, 10], **options), Workspace(threads)
    seeds = [rng.choice(graph.num_nodes, 500, replace=False) for _ in range(8)]
    first = addresses(sampler.sample_bulk(graph, seeds, workspace=workspace))
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        batches = sampler.sample_bulk(graph, seeds, workspace=workspace)
        _, peak = tracemalloc.get_traced_memory()
        snapshot = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    assert addresses(batches) == first
    arrays = snapshot.filter_traces([tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)]).traces
    assert sum(trace.size for trace in arrays) == 0
    views_and_tuples = 8 * 8192  # upper bound of Python's memory for the mini-batches themselves
    assert peak - before < views_and_tuples < sum(array.nbytes for batch in batches for array in batch.arrays().values()) / 10


@pytest.mark.parametrize(("threads", "number", "working"), [(1, 3, 1), (2, 2, 2), (2, 9, 2), (3, 9, 3), (4, 3, 3)])
def test_every_thread_has_a_batch_of_the_first_bulk(threads, number, working):
    made_by = run_bulk(Workspace(threads), number, lambda i, part: (i, threading.get_ident(), id(part.table)))
    assert [i for i, _, _ in made_by] == list(range(number))
    assert len({table for _, _, table in made_by}) == working
    assert len({(thread, table) for _, thread, table in made_by}) == working, "a table belongs to one thread"
