"""Out-of-core edges: batches equal those of edges in memory, also with workers and after killed processes; input errors are one line."""

import hashlib
import itertools
import logging
import os
import signal
import threading
import time
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from cases.hidden_edges import READ, hide_edges_from
from cases.mistakes import refused
from ranks import in_threads, run_ranks

from hoptrain.engine import Dataset, Graph
from hoptrain.samplers import LaborSampler, NeighborSampler, PinSAGESampler, SampleLoader

MEMORY = "500KiB"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with 1 MB of features, 16 bytes a node, and 240 kB of edges."""
    draw = np.random.default_rng(0)
    number, skewed = 8000, (8000 * draw.random(60_000) ** 3).astype(np.int64)
    edges = np.stack([skewed, draw.integers(0, number, 60_000)])
    x, y = draw.random((number, 32), dtype=np.float32), draw.integers(0, 3, number)
    path = tmp_path_factory.mktemp("beyond") / "data"
    Dataset(x=x, y=y, edge_index=edges, splits={"train": np.arange(0, number, 5)}).save(path)
    return path


@pytest.fixture(scope="module")
def featured(folder):
    """Return the same data with edge weights, some of them 0, and 16 bytes of features for each edge."""
    data, path, draw = Dataset.open(folder), folder.parent / "featured", np.random.default_rng(1)
    arrays = data.graph.arrays() | {"weights": np.maximum(draw.random(data.graph.num_edges, dtype=np.float32) ** 8 - 0.1, 0)}
    rows = draw.random((data.graph.num_edges, 4), dtype=np.float32)
    replace(data, graph=Graph.from_arrays(arrays, data.graph.is_sorted), edge_attr=rows).save(path)
    return path


@pytest.fixture
def small(memory_for_edges):
    """Pretend that the machine has no memory for the edges."""
    memory_for_edges(600 << 10)


@pytest.fixture
def loader_of(folder, opened):
    """Return a function that makes loaders, and close them after the test."""

    def make(sampler=None, **options):
        opened.append(SampleLoader(Dataset.open(folder), sampler or NeighborSampler([3, 2]), **({"batch_size": 64, "seed": 5} | options)))
        return opened[-1]

    return make


def contents(batch):
    arrays = batch.arrays() | {"x": batch.x, "y": batch.y}
    return {name: (a.dtype, a.shape, a.tobytes()) for name, a in arrays.items()} | {"at": (batch.epoch, batch.batch, batch.num_step_seeds)}


def same(tiered, plain):
    """Check that one epoch of both loaders is the same, and return its number of steps."""
    number = 0
    for ours, theirs in zip(tiered, plain, strict=True):
        assert contents(ours) == contents(theirs)
        number += 1
    return number


@pytest.mark.parametrize(
    ("num_workers", "sampler"),
    [
        (2, NeighborSampler([3, 2])),
        (0, NeighborSampler([4, -1], expand="new")),
        (0, NeighborSampler([2, 2, 2], replace=True)),
        (0, NeighborSampler([0.5, 3, 0.2])),
        (1, LaborSampler([3, 2])),
        (0, LaborSampler([2, 2, 2])),
        (0, LaborSampler([0.5, -1])),
        (0, LaborSampler([4, 3], importance_rounds=2)),
    ],
)
def test_batches_are_those_from_memory(small, loader_of, num_workers, sampler):
    tiered, plain = loader_of(sampler, feature_cache=MEMORY, num_workers=num_workers), loader_of(sampler)
    for _ in range(3):
        assert same(tiered, plain) == 25
    assert tiered.task.receiver is not None
    assert 0 < tiered.tier.filled.num_missed < tiered.tier.filled.num_used


@pytest.mark.parametrize(
    ("num_workers", "sampler", "prefetch_steps"),
    [
        (0, NeighborSampler([3, 2], expand="new"), {}),
        (1, NeighborSampler([3, 2]), {}),
        (0, NeighborSampler([3, 2]), {"prefetch_steps": 0}),
        (1, NeighborSampler([3, 2], weighted=True), {}),
        (0, NeighborSampler([3, 0.5], weighted=True, expand="new"), {}),
        (0, NeighborSampler([2, -1], weighted=True), {"prefetch_steps": 0}),
        (0, NeighborSampler([3, 0.2, 2], weighted=True, replace=True), {}),
        (0, LaborSampler([3, 2]), {}),
        (0, LaborSampler([3, 2], weighted=True), {}),
        (0, LaborSampler([2, 3], weighted=True, importance_rounds=1), {"prefetch_steps": 0}),
    ],
)
def test_weights_and_features_of_edges_by_their_ids(small, featured, num_workers, sampler, prefetch_steps):
    data, plain = Dataset.open(featured), Dataset.open(featured)
    assert data.graph.edge_ids is not None
    own = {"batch_size": 64, "seed": 5}
    with SampleLoader(data, sampler, feature_cache="2MiB", num_workers=num_workers, **own, **prefetch_steps) as tiered:
        hide_edges_from(tiered, (*READ, "edge_ids"))
        for ours, theirs in zip(tiered, SampleLoader(plain, sampler, **own), strict=True):
            assert contents(ours) == contents(theirs)
            for block, other in zip(ours.blocks, theirs.blocks, strict=True):
                assert block.edge_attr.tobytes() == other.edge_attr.tobytes()
                assert len(block.edge_attr)
        assert set(tiered.task.edges.files) == {"indices", "edge_ids", *(["weights"] if sampler.weighted else [])}
        assert (tiered.task.receiver is None) == bool(prefetch_steps)


def test_nobody_looks_at_the_map(small, loader_of):
    tiered, plain = loader_of(feature_cache=MEMORY), loader_of()
    hide_edges_from(tiered, (*READ, "edge_ids"))
    assert same(tiered, plain) == 25


def test_without_lookahead_each_batch_reads_its_own(small, loader_of):
    tiered = loader_of(feature_cache=MEMORY, prefetch_steps=0)
    assert same(tiered, loader_of()) == 25
    assert tiered.task.receiver is None
    assert tiered.task.edges.files["indices"].num_reads > 0


def test_a_run_that_is_left_and_one_that_begins_in_the_middle(small, loader_of):
    tiered, plain = loader_of(feature_cache=MEMORY, num_workers=1), loader_of()
    for loader in (tiered, plain):
        for _ in zip(range(3), loader):  # noqa: B905
            pass
    same(tiered, plain)
    for loader in (tiered, plain):
        loader.load_state_dict({"epoch": 1, "step": 20})
    assert same(tiered, plain) == 5
    tiered.repeats = plain.repeats = True
    same(tiered, plain)
    tiered.close()
    same(tiered, plain)


def test_a_process_that_is_killed_costs_reads_and_no_batch(small, loader_of):
    """One process of each kind is killed within one epoch."""
    tiered, plain = loader_of(feature_cache=MEMORY, num_workers=2), loader_of()
    same(tiered, plain)
    for number, (ours, theirs) in enumerate(zip(tiered, plain, strict=True)):
        assert contents(ours) == contents(theirs)
        if number in (2, 11):
            os.kill((tiered.tier if number == 2 else tiered).pids()[0], signal.SIGKILL)
            time.sleep(0.05)
    same(tiered, plain)


def test_a_rank_may_be_a_run_behind(small, loader_of, meet):
    tiered = [loader_of(feature_cache=MEMORY, rank=rank, world_size=2) for rank in range(2)]
    plain, runs_on = loader_of(rank=1, world_size=2), threading.Event()

    def lead():
        meet(0)
        number = len(list(tiered[0]))
        runs_on.set()
        return number + len(list(tiered[0]))

    def follow():
        meet(1)
        number = 0
        for _ in range(2):
            for ours, theirs in zip(tiered[1], plain, strict=True):
                assert contents(ours) == contents(theirs)
                number += 1
                if number == len(plain) - 1:
                    assert runs_on.wait(60)
                    time.sleep(0.5)  # time in which too many batches could be sent
        return number

    assert in_threads([lead, follow]) == [26, 26]


def test_ranks_of_a_machine_share_what_is_sampled(small, loader_of, meet):
    tiered = [loader_of(feature_cache=MEMORY, rank=rank, world_size=2, num_workers=rank) for rank in range(2)]
    plain = [loader_of(rank=rank, world_size=2) for rank in range(2)]

    def train(rank):
        meet(rank)
        return sum(same(tiered[rank], plain[rank]) for _ in range(2))

    assert in_threads([partial(train, rank) for rank in range(2)]) == [26, 26]
    assert all(loader.task.receiver is not None for loader in tiered)
    assert [len(loader.tier.pids()) for loader in tiered] == [1, 0]


TRAINS = """
    import hashlib, os, signal
    from hoptrain.engine import Dataset
    from hoptrain.samplers import NeighborSampler, SampleLoader
    from hoptrain.samplers.loader.topology import room

    room.available_memory = lambda: 0
    found = []
    with SampleLoader(
        Dataset.open(f"{folder}/featured"), NeighborSampler([3, 2]), batch_size=64, seed=5, feature_cache="2MiB", num_workers=2 * rank
    ) as loader:
        for epoch in range(3):
            for step, batch in enumerate(loader):
                arrays = [*batch.arrays().values(), batch.x, batch.y, *(block.edge_attr for block in batch.blocks)]
                found.append(hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest())
                if rank == 0 and epoch == 1 and step == 2:
                    os.kill(loader.tier.pids()[0], signal.SIGKILL)
        print(json.dumps([found, loader.tier.shared.path]))
"""


def test_ranks_that_are_processes_get_equal_bits_though_the_process_that_reads_is_killed(featured):
    (first, second), _ = run_ranks(featured.parent, TRAINS)
    assert first[1] == second[1]
    for rank, (found, _) in enumerate((first, second)):
        expected = []
        with SampleLoader(Dataset.open(featured), NeighborSampler([3, 2]), batch_size=64, seed=5, rank=rank, world_size=2) as loader:
            for batch in itertools.chain(loader, loader, loader):
                arrays = [*batch.arrays().values(), batch.x, batch.y, *(block.edge_attr for block in batch.blocks)]
                expected.append(hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest())
        assert found == expected
        assert len(found) == 3 * 13


def test_where_edges_are_read_is_said(small, loader_of, caplog):
    caplog.set_level(logging.INFO, "hoptrain")
    next(iter(loader_of(feature_cache=MEMORY)))
    assert "the graph's edges take 0.2 MiB, and 0.1 MiB are available: they are read from their file" in caplog.messages
    loader = loader_of(PinSAGESampler([3, 2]), feature_cache=MEMORY)
    next(iter(loader))
    assert (
        "the graph's edges take 0.2 MiB, and 0.1 MiB are available: they stay mapped, since PinSAGESampler accesses them itself"
        in caplog.messages
    )
    assert loader.task.edges is None


def test_edges_that_have_room_stay_mapped(loader_of):
    loader = loader_of(feature_cache=MEMORY)
    next(iter(loader))
    assert loader.task.edges is None


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_file_that_is_cut_off_is_one_line(small, folder, tmp_path, num_workers):
    Dataset.open(folder).save(tmp_path / "data")
    data = Dataset.open(tmp_path / "data")
    loader = SampleLoader(data, NeighborSampler([3, 2]), batch_size=64, feature_cache=MEMORY, num_workers=num_workers, prefetch_steps=4)
    with loader:
        batches = iter(loader)
        next(batches)
        os.truncate(tmp_path / "data" / "indices.npy", 100_000)
        with refused("indices.npy", "ends 100,000 row cut off", "convert copy again"):
            list(batches)
