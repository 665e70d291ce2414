"""Out-of-core features and edges: batches equal those of data in memory, also with workers and after killed processes.

Input errors are one line. Heterogeneous graphs, whose edges are several files, have all tests that plain graphs have.
"""

import hashlib
import itertools
import logging
import os
import signal
import threading
import time
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
from cases.batches import contents, same
from cases.hidden_edges import READ, hide_edges_from
from cases.mistakes import refused
from cases.out_of_core import BY, CITES, OF, WRITES, hetero_data, plain_data
from ranks import in_threads, run_ranks

from hoptrain.engine import Dataset, Graph, HeteroDataset
from hoptrain.samplers import HeteroSampler, HGTSampler, LaborSampler, NeighborSampler, PinSAGESampler, SampleLoader
from hoptrain.samplers.batch.minibatch import named


class Case(NamedTuple):
    """A saved data set whose edges do not fit in memory, or only its features."""

    data: str
    sampler: Any
    memory: str
    num_steps: int
    free: int | None = None
    """Bytes of the machine's free memory; with None, the edges fit."""
    files: tuple[str, ...] = ()
    """Names of the edge files that each sampler reads."""
    weights: tuple[str, ...] = ()
    """Names of those that a sampler by weight reads too."""


PLAIN, HETERO = NeighborSampler([3, 2]), HeteroSampler([3, 2], "paper")
CASES = {
    "features": Case("plain", PLAIN, "300KiB", 25),
    "edges": Case("plain", PLAIN, "500KiB", 25, 600 << 10, ("indices",)),
    "edges with features": Case("featured", PLAIN, "2MiB", 25, 600 << 10, ("indices", "edge_ids"), ("weights",)),
    "hetero edges": Case(
        "hetero",
        HETERO,
        "800KiB",
        20,
        900 << 10,
        (*(named("indices", relation) for relation in (CITES, WRITES, BY, OF)), named("edge_ids", WRITES)),
        (named("weights", CITES), named("weights", BY)),
    ),
}


def each_case(*names):
    return pytest.mark.parametrize("case", names, indirect=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with the data sets. "featured" has edge weights, some of them 0, and 16 bytes of features for each edge."""
    path, draw, plain = tmp_path_factory.mktemp("beyond"), np.random.default_rng(1), plain_data()
    plain.save(path / "plain")
    hetero_data().save(path / "hetero")
    arrays = plain.graph.arrays() | {"weights": np.maximum(draw.random(plain.graph.num_edges, dtype=np.float32) ** 8 - 0.1, 0)}
    rows = draw.random((plain.graph.num_edges, 4), dtype=np.float32)
    replace(plain, graph=Graph.from_arrays(arrays, plain.graph.is_sorted), edge_attr=rows).save(path / "featured")
    return path


@pytest.fixture
def case(request, memory_for_edges):
    """Return a case, and set the machine's free memory."""
    found = CASES[request.param]
    if found.free is not None:
        memory_for_edges(found.free)
    return found


@pytest.fixture
def data_of(case, folder):
    """Return a function that opens the data of the case."""
    return partial((HeteroDataset if case.data == "hetero" else Dataset).open, folder / case.data)


@pytest.fixture
def loader_of(case, data_of, opened):
    """Return a function that makes loaders, and close them after the test."""

    def make(sampler=None, data=None, **options):
        opened.append(SampleLoader(data or data_of(), sampler or case.sampler, **({"batch_size": 64, "seed": 5} | options)))
        return opened[-1]

    return make


FANOUTS = {"paper:cites:paper": [3, 2], "field:of:paper": [0, -1]}


@pytest.mark.parametrize(
    ("case", "num_workers", "sampler", "prefetch_steps"),
    [
        ("edges", 2, NeighborSampler([3, 2]), {}),
        ("edges", 0, NeighborSampler([3, 2]), {"prefetch_steps": 0}),
        ("edges", 0, NeighborSampler([4, -1], expand="new"), {}),
        ("edges", 1, LaborSampler([3, 2]), {}),
        ("edges", 0, LaborSampler([4, 3], importance_rounds=2), {}),
        ("edges with features", 1, NeighborSampler([3, 2]), {}),
        ("edges with features", 0, NeighborSampler([3, 2]), {"prefetch_steps": 0}),
        ("edges with features", 1, NeighborSampler([3, 2], weighted=True), {}),
        ("edges with features", 0, NeighborSampler([3, 0.5], weighted=True, expand="new"), {}),
        ("edges with features", 0, NeighborSampler([2, -1], weighted=True), {"prefetch_steps": 0}),
        ("edges with features", 0, LaborSampler([3, 2], weighted=True), {}),
        ("edges with features", 0, LaborSampler([2, 3], weighted=True, importance_rounds=1), {"prefetch_steps": 0}),
        ("hetero edges", 1, HeteroSampler([3, 2], "paper"), {}),
        ("hetero edges", 0, HeteroSampler([2, 2, 2], "paper", replace=True), {"prefetch_steps": 0}),
        ("hetero edges", 0, HeteroSampler(FANOUTS, "paper", default=[0.5, 3]), {}),
        ("hetero edges", 1, HeteroSampler([3, 2], "paper", weighted=True, replace=True, expand="new"), {}),
    ],
    indirect=["case"],
)
def test_batches_are_those_from_memory_and_nobody_looks_at_the_map(case, loader_of, num_workers, sampler, prefetch_steps):
    """Each kind of edges with and without workers and prefetching; ``test_edge_files.py`` draws with each option of the samplers."""
    cached, plain = loader_of(sampler, feature_cache=case.memory, num_workers=num_workers, **prefetch_steps), loader_of(sampler)
    hide_edges_from(cached, (*READ, "edge_ids"))
    for _ in range(2):
        assert same(cached, plain) == case.num_steps
    files = cached.task.edges.files
    assert set(files) == {*case.files, *(case.weights if getattr(sampler, "weighted", False) else ())}
    assert (cached.task.receiver is None) == bool(prefetch_steps)
    if prefetch_steps:
        assert min(file.num_reads for file in files.values()) > 0
    else:
        assert 0 < cached.feature_cache.filled.num_missed < cached.feature_cache.filled.num_used
    have_rows = [block.edge_attr is not None for block in next(iter(plain)).hops[0].values()]
    assert sum(have_rows) == len([name for name in case.files if "edge_ids" in name])


@each_case("hetero edges")
def test_relations_that_lie_in_memory_are_looked_up_there(loader_of, data_of):
    data = data_of().with_reverse()
    cached, plain = loader_of(data=data, feature_cache="2MiB"), loader_of(data=data)
    assert same(cached, plain) == 20
    assert len(data.graph.relations) == 8
    assert sorted(name for name in cached.task.edges.files if "rev_" in name) == []
    assert len(cached.task.edges.files) == 5


@each_case("features", "hetero edges")
def test_a_run_that_is_left_and_one_that_begins_in_the_middle(case, loader_of):
    cached, plain = loader_of(feature_cache=case.memory, num_workers=1), loader_of()
    for loader in (cached, plain):
        for _ in zip(range(3), loader):  # noqa: B905
            pass
    same(cached, plain)
    for loader in (cached, plain):
        loader.load_state_dict({"epoch": 1, "step": case.num_steps - 5})
    assert same(cached, plain) == 5
    cached.repeats = plain.repeats = True
    same(cached, plain)
    same(cached, plain)
    cached.close()
    same(cached, plain)


@each_case("features", "hetero edges")
def test_a_process_that_is_killed_costs_reads_and_no_batch(case, loader_of):
    """The process that fills the cache is killed twice within one epoch, and a worker once."""
    cached, plain = loader_of(feature_cache=case.memory, num_workers=2), loader_of()
    same(cached, plain)
    for number, (ours, theirs) in enumerate(zip(cached, plain, strict=True)):
        assert contents(ours) == contents(theirs)
        if number in (2, 6, 11):
            os.kill((cached if number == 6 else cached.feature_cache).pids()[0], signal.SIGKILL)
            time.sleep(0.05)
    same(cached, plain)


@each_case("edges")
def test_a_rank_may_be_a_run_behind(case, loader_of, as_rank):
    cached = [loader_of(feature_cache=case.memory, rank=rank, world_size=2) for rank in range(2)]
    plain, runs_on = loader_of(rank=1, world_size=2), threading.Event()

    def lead():
        as_rank(0)
        number = len(list(cached[0]))
        runs_on.set()
        return number + len(list(cached[0]))

    def follow():
        as_rank(1)
        number = 0
        for _ in range(2):
            for ours, theirs in zip(cached[1], plain, strict=True):
                assert contents(ours) == contents(theirs)
                number += 1
                if number == len(plain) - 1:
                    assert runs_on.wait(60)
                    time.sleep(0.5)  # time in which too many batches could be sent
        return number

    assert in_threads([lead, follow]) == [26, 26]


@each_case("features", "edges", "hetero edges")
def test_ranks_of_a_machine_share_one_cache_and_what_is_sampled(case, loader_of, as_rank):
    cached = [loader_of(feature_cache=case.memory, rank=rank, world_size=2, num_workers=rank) for rank in range(2)]
    plain = [loader_of(rank=rank, world_size=2) for rank in range(2)]

    def train(rank):
        as_rank(rank)
        return sum(same(cached[rank], plain[rank]) for _ in range(2))

    num_steps = 2 * -(-case.num_steps // 2)
    assert in_threads([partial(train, rank) for rank in range(2)]) == [num_steps, num_steps]
    assert all(loader.task.receiver is not None for loader in cached)
    first, second = (loader.feature_cache for loader in cached)
    assert [len(cache.pids()) for cache in (first, second)] == [1, 0]
    assert first.shared.path == second.shared.path


TRAINS = """
    import hashlib, os, signal
    from hoptrain.engine import Dataset
    from hoptrain.samplers import NeighborSampler, SampleLoader
    from hoptrain.samplers.loader.topology import edge_memory

    edge_memory.available_memory = lambda: 0
    found = []
    with SampleLoader(
        Dataset.open(f"{folder}/featured"), NeighborSampler([3, 2]), batch_size=64, seed=5, feature_cache="2MiB", num_workers=2 * rank
    ) as loader:
        for epoch in range(3):
            for step, batch in enumerate(loader):
                arrays = [*batch.arrays().values(), batch.x, batch.y, *(block.edge_attr for block in batch.blocks)]
                found.append(hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest())
                if rank == 0 and epoch == 1 and step == 2:
                    os.kill(loader.feature_cache.pids()[0], signal.SIGKILL)
        print(json.dumps([found, loader.feature_cache.shared.path]))
"""


@pytest.mark.usefixtures("forkserver")
def test_ranks_that_are_processes_get_equal_bits_though_the_process_that_reads_is_killed(folder):
    (first, second), _ = run_ranks(folder, TRAINS)
    assert first[1] == second[1]
    for rank, (found, _) in enumerate((first, second)):
        expected = []
        with SampleLoader(
            Dataset.open(folder / "featured"), NeighborSampler([3, 2]), batch_size=64, seed=5, rank=rank, world_size=2
        ) as loader:
            for batch in itertools.chain(loader, loader, loader):
                arrays = [*batch.arrays().values(), batch.x, batch.y, *(block.edge_attr for block in batch.blocks)]
                expected.append(hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest())
        assert found == expected
        assert len(found) == 3 * 13


@pytest.mark.parametrize(
    ("case", "size", "sampler"),
    [("edges", "0.2", PinSAGESampler([3, 2])), ("hetero edges", "0.3", HGTSampler([40, 20], "paper"))],
    indirect=["case"],
)
def test_where_edges_are_read_is_logged(case, loader_of, caplog, size, sampler):
    caplog.set_level(logging.INFO, "hoptrain")
    said = f"the graph's edges take {size} MiB, and 0.1 MiB are available: they"
    next(iter(loader_of(feature_cache=case.memory, prefetch_steps=0)))
    assert f"{said} are read from their file" in caplog.messages
    caplog.clear()
    loader = loader_of(sampler, feature_cache=case.memory, prefetch_steps=0)
    next(iter(loader))
    [line] = [line for line in caplog.messages if "edges take" in line]
    assert line == f"{said} stay mapped, since {type(sampler).__name__} accesses them itself"
    assert loader.task.edges is None


@each_case("edges", "hetero edges")
def test_edges_that_fit_stay_mapped(case, loader_of, memory_for_edges):
    memory_for_edges(1 << 30)
    loader = loader_of(feature_cache=case.memory, prefetch_steps=0)
    next(iter(loader))
    assert loader.task.edges is None


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize(("case", "file"), [("edges", "indices.npy"), ("hetero edges", "indices_0.npy")], indirect=["case"])
def test_a_file_that_is_cut_off_is_one_line(case, loader_of, data_of, tmp_path, file, num_workers):
    data = data_of()
    data.save(tmp_path / "data")
    data = type(data).open(tmp_path / "data")
    batches = iter(loader_of(data=data, feature_cache=case.memory, num_workers=num_workers, prefetch_steps=2))
    next(batches)
    os.truncate(tmp_path / "data" / file, 100_000)
    with refused(file, "ends 100,000 row cut off", "convert copy again"):
        list(batches)
