"""A heterogeneous graph whose edges do not fit in memory: batches equal those in memory, also after faults; input errors are one line."""

import logging
import os
import signal
import time
from functools import partial

import numpy as np
import pytest
from cases.hidden_edges import READ, hide_edges_from
from cases.mistakes import refused
from ranks import in_threads

from hoptrain.engine import HeteroDataset, HeteroGraph
from hoptrain.engine.hetero_graph import relation_name
from hoptrain.samplers import HeteroSampler, HGTSampler, SampleLoader

MEMORY = "800KiB"
CITES, WRITES, BY, OF = ("paper", "cites", "paper"), ("author", "writes", "paper"), ("paper", "by", "author"), ("field", "of", "paper")
FANOUTS = {"paper:cites:paper": [3, 2], "field:of:paper": [0, -1]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with 0.6 MB of features and four relations of the same size, two with weights and one with features by edge id."""
    draw, num = np.random.default_rng(0), {"paper": 5000, "author": 900, "field": 12}
    sizes = {CITES: 40_000, WRITES: 9000, BY: 9000, OF: 9000}
    edges, weights = {}, {}
    for relation, size in sizes.items():
        sources = (num[relation[0]] * draw.random(size) ** 3).astype(np.int64)
        edges[relation] = sources, draw.integers(0, num[relation[2]], size)
    for relation in (CITES, BY):
        weights[relation] = np.maximum(draw.random(sizes[relation], dtype=np.float32) ** 8 - 0.1, 0)
    data = HeteroDataset(
        graph=HeteroGraph.from_edges(num, edges, weights=weights),
        seed_type="paper",
        x={"paper": draw.random((5000, 24), dtype=np.float32), "field": draw.random((12, 3), dtype=np.float32)},
        edge_attr={WRITES: draw.random((9000, 3), dtype=np.float32)},
        y=draw.integers(0, 3, 5000),
        splits={"train": np.arange(0, 5000, 4)},
    )
    path = tmp_path_factory.mktemp("typed") / "data"
    data.save(path)
    return path


@pytest.fixture
def small(memory_for_edges):
    """Pretend that the machine has no memory for the edges."""
    memory_for_edges(900 << 10)


@pytest.fixture
def loader_of(folder, opened):
    """Return a function that makes loaders, and close them after the test."""

    def make(sampler=None, data=None, **options):
        data = data or HeteroDataset.open(folder)
        opened.append(SampleLoader(data, sampler or HeteroSampler([3, 2], "paper"), **({"batch_size": 64, "seed": 5} | options)))
        return opened[-1]

    return make


def contents(batch):
    arrays = batch.arrays() | {f"x.{kind}": rows for kind, rows in batch.x.items()} | {"y": batch.y}
    arrays |= {f"edge_attr.{h}": hop[WRITES].edge_attr for h, hop in enumerate(batch.blocks)}
    return {name: (a.dtype, a.shape, a.tobytes()) for name, a in arrays.items()} | {"at": (batch.epoch, batch.batch, batch.num_step_seeds)}


def same(tiered, plain):
    """Check that one epoch of both loaders is the same, and return its number of steps."""
    number = 0
    for ours, theirs in zip(tiered, plain, strict=True):
        assert contents(ours) == contents(theirs)
        number += 1
    return number


@pytest.mark.parametrize(
    ("num_workers", "sampler", "prefetch_steps"),
    [
        (1, HeteroSampler([3, 2], "paper"), {}),
        (0, HeteroSampler([4, -1], "paper", expand="new"), {}),
        (0, HeteroSampler([2, 2, 2], "paper", replace=True), {"prefetch_steps": 0}),
        (0, HeteroSampler(FANOUTS, "paper", default=[0.5, 3]), {}),
        (0, HeteroSampler([3, 2], "paper", weighted=True), {}),
        (1, HeteroSampler([3, 2], "paper", weighted=True, replace=True, expand="new"), {}),
    ],
)
def test_batches_are_those_from_memory_and_nobody_looks_at_the_map(small, loader_of, num_workers, sampler, prefetch_steps):
    tiered, plain = loader_of(sampler, feature_cache=MEMORY, num_workers=num_workers, **prefetch_steps), loader_of(sampler)
    hide_edges_from(tiered, (*READ, "edge_ids"))
    for _ in range(2):
        assert same(tiered, plain) == 20
    files = tiered.task.edges.files
    expected = [f"indices.{relation_name(relation)}" for relation in (CITES, WRITES, BY, OF)] + [f"edge_ids.{relation_name(WRITES)}"]
    assert set(files) == {*expected, *(f"weights.{relation_name(relation)}" for relation in (CITES, BY) if sampler.weighted)}
    assert (tiered.task.receiver is None) == bool(prefetch_steps)
    if prefetch_steps:
        assert min(file.num_reads for file in files.values()) > 0
    else:
        assert 0 < tiered.tier.filled.num_missed < tiered.tier.filled.num_used


def test_relations_that_lie_in_memory_are_looked_up_there(small, loader_of, folder):
    data = HeteroDataset.open(folder).with_reverse()
    tiered, plain = loader_of(data=data, feature_cache="2MiB"), loader_of(data=data)
    assert same(tiered, plain) == 20
    assert len(data.graph.relations) == 8
    assert sorted(name for name in tiered.task.edges.files if "rev_" in name) == []
    assert len(tiered.task.edges.files) == 5


def test_a_filler_that_is_killed_costs_reads_and_no_batch(small, loader_of):
    tiered, plain = loader_of(feature_cache=MEMORY, num_workers=1), loader_of()
    for number, (ours, theirs) in enumerate(zip(tiered, plain, strict=True)):
        assert contents(ours) == contents(theirs)
        if number in (2, 11):
            os.kill(tiered.tier.pids()[0], signal.SIGKILL)
            time.sleep(0.05)
    same(tiered, plain)


def test_ranks_of_a_machine_share_what_is_sampled(small, loader_of, meet):
    tiered = [loader_of(feature_cache=MEMORY, rank=rank, world_size=2, num_workers=rank) for rank in range(2)]
    plain = [loader_of(rank=rank, world_size=2) for rank in range(2)]

    def train(rank):
        meet(rank)
        return sum(same(tiered[rank], plain[rank]) for _ in range(2))

    assert in_threads([partial(train, rank) for rank in range(2)]) == [20, 20]
    assert all(loader.task.receiver is not None for loader in tiered)
    assert [len(loader.tier.pids()) for loader in tiered] == [1, 0]


def test_a_sampler_that_looks_at_the_map_says_so(small, loader_of, caplog):
    caplog.set_level(logging.INFO, "hoptrain")
    loader = loader_of(HGTSampler([40, 20], "paper"), feature_cache=MEMORY, prefetch_steps=0)
    next(iter(loader))
    [said] = [line for line in caplog.messages if "edges take" in line]
    assert said == "the graph's edges take 0.3 MiB, and 0.1 MiB are available: they stay mapped, since HGTSampler accesses them itself"
    assert loader.task.edges is None


def test_where_edges_are_read_is_said(small, loader_of, caplog):
    caplog.set_level(logging.INFO, "hoptrain")
    next(iter(loader_of(feature_cache=MEMORY, prefetch_steps=0)))
    assert "the graph's edges take 0.3 MiB, and 0.1 MiB are available: they are read from their file" in caplog.messages


def test_edges_that_have_room_stay_mapped(loader_of):
    loader = loader_of(feature_cache=MEMORY, prefetch_steps=0)
    next(iter(loader))
    assert loader.task.edges is None


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_file_that_is_cut_off_is_one_line(small, folder, loader_of, tmp_path, num_workers):
    HeteroDataset.open(folder).save(tmp_path / "data")
    loader = loader_of(data=HeteroDataset.open(tmp_path / "data"), feature_cache=MEMORY, num_workers=num_workers, prefetch_steps=2)
    batches = iter(loader)
    next(batches)
    os.truncate(tmp_path / "data" / "indices_0.npy", 100_000)
    with refused("indices_0.npy", "ends 100,000 row cut off", "convert copy again"):
        list(batches)
