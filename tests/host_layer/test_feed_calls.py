"""Driver calls of an epoch with a sampler on CUDA, after similar epochs have run."""

import gc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_graph
from cuda_case import tested_blocks  # noqa: F401

from hoptrain.engine import Dataset
from hoptrain.samplers import NeighborSampler, SampleLoader
from hoptrain.samplers.loader.device_feed import MOST_AHEAD
from host_layer.record import Record, recorded

pytestmark = pytest.mark.usefixtures("tested_blocks")

RUN_WAITS = 2
"""Number of waits at the start of an epoch: for both streams, so that it cannot overwrite what the previous epoch still uses."""
PASSED = 9
"""Number of arrays of a batch that the training stream reads: node ids, three for each hop, features and labels.

Each is copied from the bulk or gathered, and torch's allocator records an event when it is freed.
"""
GATHERED = 2
"""Number of these arrays that are gathered: features and labels."""
EXPANDS = ["all", "new"]


@pytest.fixture(scope="module")
def data() -> Dataset:
    graph, rng = make_graph(40, 200), np.random.default_rng(1)
    return Dataset(
        name="random",
        graph=graph,
        x=rng.random((graph.num_nodes, 7), dtype=np.float32),
        y=rng.integers(0, 3, graph.num_nodes),
        splits={"train": np.arange(40)},
        num_classes=3,
    )


def loader_of(data: Dataset, expand: str = "all", **options: Any) -> SampleLoader:
    """Return a loader with 40 batches."""
    return SampleLoader(data, NeighborSampler([3, 2], expand=expand), batch_size=1, device="cuda", **options)


def steady_epoch(loader: SampleLoader) -> tuple[Record, int]:
    """Return the record of the fourth epoch, and the epoch's number of batches."""
    torch.zeros(1, device="cuda")  # from now on torch allocates device memory
    for _ in range(3):
        for _batch in loader:
            pass
    gc.collect()
    with recorded() as record:
        number = sum(1 for _ in loader)
    return record, number


@pytest.fixture(params=[4, 8])
def bulk(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.mark.parametrize("expand", EXPANDS)
def test_an_epoch_waits_once_a_bulk(data, expand, bulk):
    """An epoch waits once per bulk for samples, and once per batch for the training ``MOST_AHEAD`` steps before, which has finished."""
    record, number = steady_epoch(loader_of(data, expand=expand, bulk=bulk))
    bulks = -(-number // bulk)
    assert record.of("wait") == {"cuStreamSynchronize": bulks + RUN_WAITS, "cuEventSynchronize": number}
    assert record.calls("cuGraphLaunch") == bulks
    assert record.of("pageable") == {}
    assert record.memory == 0


@pytest.mark.parametrize("expand", EXPANDS)
def test_a_batch_asks_for_little(data, expand, bulk):
    """A batch copies its arrays from the bulk and gathers rows; one event per batch starts the training, and one per bulk the next bulk."""
    record, number = steady_epoch(loader_of(data, expand=expand, bulk=bulk))
    bulks = -(-number // bulk)
    assert record.launches <= GATHERED * number
    assert record.copies <= (PASSED - GATHERED) * number
    assert record.calls("cuStreamWaitEvent") == number + bulks
    assert record.calls("cuEventRecord") <= (PASSED + 2) * (number + 1) + bulks


def test_without_capture_a_bulk_still_waits_once(data):
    record, number = steady_epoch(loader_of(data, bulk=8, cuda_graphs=False))
    bulks = -(-number // 8)
    assert record.of("wait") == {"cuStreamSynchronize": bulks + RUN_WAITS, "cuEventSynchronize": number}
    assert record.calls("cuGraphLaunch") == 0
    assert record.launches == 22 * bulks + GATHERED * number
    assert (record.of("pageable"), record.memory) == ({}, 0)


@pytest.mark.parametrize("placement", ["pinned", "device"])
def test_features_are_gathered_from_where_they_lie(data, placement):
    loader = loader_of(data, graph_placement=placement, feature_placement=placement)
    record, _ = steady_epoch(loader)
    assert (record.of("pageable"), record.memory) == ({}, 0)


def test_a_device_cache_reads_its_counter_once_an_epoch(data):
    loader = loader_of(data, bulk=8, gpu_cache=0.3)
    record, number = steady_epoch(loader)
    assert (
        sum(record.of("wait").values()) <= number + -(-number // 8) + RUN_WAITS + 2 * 2
    )  # the counter is read and reset at the start and end of an epoch
    assert record.memory == 0


def test_rows_of_few_batches_are_in_memory_at_once(data):
    """At most ``MOST_AHEAD`` + 3 gathered batches are in memory, although here only the loader waits for the training."""
    wide = replace(data, x=np.zeros((data.graph.num_nodes, 4096), np.float32))
    loader = loader_of(wide, bulk=40)
    steady_epoch(loader)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_stats()["active_bytes.all.current"]
    largest = max(batch.x.nbytes for batch in loader)
    rows = (torch.cuda.memory_stats()["active_bytes.all.peak"] - before) / largest
    assert rows <= MOST_AHEAD + 3  # the requested batch, the one in use, and one being made
