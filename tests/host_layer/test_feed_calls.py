"""What an epoch of a loader with a sampler on CUDA asks of the driver, once epochs like it were there before."""

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
"""A new run waits for both streams, lest it overwrite what a run before it had under way."""
HANDED = 9
"""Arrays of a batch that the training's stream reads: node ids, three of each hop, features and labels. Each is copied out of the bulk or gathered, and
torch's allocator records an event when it is given back."""
GATHERED = 2
"""Of these, features and labels."""
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
    """Return what the fourth epoch asks for, and its number of batches."""
    torch.zeros(1, device="cuda")  # from then on device memory is torch's
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
    """And for the training of the batch that is ``MOST_AHEAD`` back, which is done where the device keeps up."""
    record, number = steady_epoch(loader_of(data, expand=expand, bulk=bulk))
    bulks = -(-number // bulk)
    assert record.of("wait") == {"cuStreamSynchronize": bulks + RUN_WAITS, "cuEventSynchronize": number}
    assert record.calls("cuGraphLaunch") == bulks
    assert record.of("pageable") == {}
    assert record.memory == 0


@pytest.mark.parametrize("expand", EXPANDS)
def test_a_batch_asks_for_little(data, expand, bulk):
    """Its arrays are copied out of the bulk, its rows gathered; one event a batch lets the training begin, one a bulk its successor."""
    record, number = steady_epoch(loader_of(data, expand=expand, bulk=bulk))
    bulks = -(-number // bulk)
    assert record.launches <= GATHERED * number
    assert record.copies <= (HANDED - GATHERED) * number
    assert record.calls("cuStreamWaitEvent") == number + bulks
    assert record.calls("cuEventRecord") <= (HANDED + 2) * (number + 1) + bulks


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
    )  # it is read, and set to zero, at a run's start and end
    assert record.memory == 0


def test_rows_of_few_batches_are_in_memory_at_once(data):
    """However large a bulk, and however far behind the training is: here nothing but the loader ever waits for it."""
    wide = replace(data, x=np.zeros((data.graph.num_nodes, 4096), np.float32))
    loader = loader_of(wide, bulk=40)
    steady_epoch(loader)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_stats()["active_bytes.all.current"]
    largest = max(batch.x.nbytes for batch in loader)
    rows = (torch.cuda.memory_stats()["active_bytes.all.peak"] - before) / largest
    assert rows <= MOST_AHEAD + 3  # the one that is asked for, the one that is in use, and what else a batch is
