"""Partitioned features on several machines equal those of one machine. Machines are threads here, with their own cache processes."""

import os
import signal
import threading

import numpy as np
import pytest
import torch
from cases.batches import same
from cases.mistakes import Mistake, each_of, refused
from ranks import in_threads

from hoptrain.engine import Dataset, WorkerError
from hoptrain.engine.gpu_memory.meeting import Meeting
from hoptrain.engine.partition import rows
from hoptrain.engine.partition.comm_process_exchange import CommProcessExchange, carry
from hoptrain.engine.partition.exchange import LocalExchange
from hoptrain.engine.partition.folder import write_partition
from hoptrain.engine.partition.rows import CommGroups, open_partitioned
from hoptrain.engine.queue.message_slot import SharedMessageSlot
from hoptrain.samplers import MVSSampler, NeighborSampler, PinSAGESampler, SampleLoader
from hoptrain.samplers.loader import feature_cache

NUMBER, SMALL = 3000, "120KiB"


@pytest.fixture(scope="module")
def plain():
    draw = np.random.default_rng(0)
    edges = np.stack([(NUMBER * draw.random(20_000) ** 3).astype(np.int64), draw.integers(0, NUMBER, 20_000)])
    x, y = draw.random((NUMBER, 16), dtype=np.float32), draw.integers(0, 3, NUMBER)
    return Dataset(x=x, y=y, edge_index=edges, splits={"train": np.arange(0, NUMBER, 2)})


@pytest.fixture(scope="module")
def parts(plain, tmp_path_factory):
    folder = tmp_path_factory.mktemp("machines")
    for method in ("range", "stream"):
        write_partition(plain, folder / method, 2, method)
    write_partition(plain, folder / "partitioned graph", 2, "stream", graph="partitioned")
    return folder


@pytest.fixture
def machines(parts, monkeypatch):
    """Return a function that runs a test on the loaders of two machines, in threads.

    The function returns the results, and all processes end after the test.
    """
    store, local, numbers = torch.distributed.HashStore(), threading.local(), iter(range(9))
    made, letters, exchanged = [], [], []
    monkeypatch.setattr(feature_cache, "meeting_of", lambda _: local.meeting)
    monkeypatch.setattr(rows, "machine", lambda: local.machine)
    monkeypatch.setattr(feature_cache, "machine", lambda: local.machine)

    def links():
        exchanges = [LocalExchange.among(2) for _ in range(3)]
        exchanged.extend(pair[0] for pair in exchanges)
        opened = [iter(exchanges), iter(exchanges)]

        def connect(x):
            to, answers = SharedMessageSlot.make(), SharedMessageSlot.make()
            letters.append(to)
            threading.Thread(target=carry, args=(to, answers, next(opened[x.machine])[x.machine]), daemon=True).start()
            return CommProcessExchange(x.machine, 2, to, answers, os.getpid(), 30.0)

        return CommGroups(machines=connect, ranks=lambda: None)

    def run(work, method="range", **options):
        shared, number = links(), next(numbers)

        def one(rank):
            local.machine = f"machine {rank}"
            local.meeting = Meeting(store, rank, 2, name=f"of run {number}")
            data = open_partitioned(parts / method, shared)
            own = {"batch_size": 50} | options
            if isinstance(feature_cache := own["feature_cache"], tuple):
                own["feature_cache"] = feature_cache[rank]
            loader = SampleLoader(data, NeighborSampler([3, 2]), seed=5, rank=rank, world_size=2, **own)
            made.append(loader)
            return work(loader, rank)

        return in_threads([lambda rank=rank: one(rank) for rank in range(2)])

    yield run
    for loader in made:
        loader.close()
    for exchange in exchanged:
        exchange.abort()
    for box in letters:
        box.put(-1, [np.empty(0, np.uint8)] * 2)  # an invalid message ends the thread


def beside(plain, rank):
    return SampleLoader(plain, NeighborSampler([3, 2]), seed=5, rank=rank, world_size=2, batch_size=50)


@pytest.mark.parametrize(
    ("feature_cache", "method", "num_workers", "windows"),
    [(SMALL, "stream", 1, 15), ("4MiB", "range", 0, 4), (("4MiB", SMALL), "range", 0, 15)],  # 15 steps, in windows of 1 or 4
)
def test_batches_are_those_of_one_machine(machines, plain, feature_cache, method, num_workers, windows):
    """Batches equal those of one machine; the machine with the least memory decides how many steps exchange rows together."""

    def work(loader, rank):
        other = beside(plain, rank)
        assert [same(loader, other) for _ in range(2)] == [15, 15]
        return loader.feature_cache.filled

    results = machines(work, method, feature_cache=feature_cache, num_workers=num_workers, prefetch_steps=128)
    for filled in results:
        assert filled.num_rounds == 2 * (windows + 1)
        assert 0 < filled.num_fetched <= filled.num_missed
        assert filled.num_bytes == 0  # own rows are not read into the cache
    if feature_cache == "4MiB":
        assert sum(filled.num_fetched for filled in results) < NUMBER  # each row of other machines is fetched at most once


@pytest.mark.parametrize(
    ("feature_cache", "num_workers", "samples", "rows"),
    [
        ("4MiB", 0, 5, 9),  # 15 steps, in windows of 2: 8 are sampled first, then 2, 2, 2 and 1; rows: one round per window, and a last one
        (SMALL, 1, 8, 16),  # 15 steps, in windows of 1: 8 are sampled first, then one at a time
    ],
)
def test_the_graph_in_parts_too(machines, plain, feature_cache, num_workers, samples, rows):
    def work(loader, rank):
        other = beside(plain, rank)
        assert [same(loader, other) for _ in range(2)] == [15, 15]
        return loader.feature_cache.filled

    for filled in machines(work, "partitioned graph", feature_cache=feature_cache, num_workers=num_workers, prefetch_steps=8):
        assert filled.num_rounds == 2 * (2 * 2 * samples + rows)


@pytest.mark.parametrize("method", ["range", "partitioned graph"])
def test_runs_that_are_left_begun_in_the_middle_and_closed(machines, plain, method):
    def work(loader, rank):
        other = beside(plain, rank)
        for each in (loader, other):
            for _ in zip(range(3), each):  # noqa: B905
                pass
        same(loader, other)
        for each in (loader, other):
            each.load_state_dict({"epoch": 1, "step": 9})
        assert same(loader, other) == 6
        loader.close()
        return same(loader, other)

    assert machines(work, method, feature_cache=SMALL, prefetch_steps=64) == [15, 15]


def test_the_process_that_fetches_is_not_replaced(machines, plain):
    def work(loader, rank):
        batches = iter(loader)
        next(batches)
        if rank == 1:
            return ""
        os.kill(loader.feature_cache.pids()[0], signal.SIGKILL)
        with pytest.raises(WorkerError) as caught:
            list(batches)
        return str(caught.value)

    assert "was killed by SIGKILL" in machines(work, feature_cache=SMALL, prefetch_steps=32, batch_size=10)[0]


def test_what_needs_all_rows_now_is_refused(parts, tmp_path):
    (tmp_path / "one").mkdir()
    for entry in (parts / "range").iterdir():
        if entry.name != "part-1":
            (tmp_path / "one" / entry.name).symlink_to(entry)
    data = open_partitioned(tmp_path / "one")
    with refused("0", "prefetch_steps NeighborSampler features other machines", "give another sampler one machine"):
        SampleLoader(data, NeighborSampler([3, 2]), batch_size=50, prefetch_steps=0)
    with refused("MVSSampler", "prefetch_steps needs features other machines", "give another sampler one machine"):
        SampleLoader(data, MVSSampler(NeighborSampler([3, 2]), num_draws=30), batch_size=50)


def test_one_machine_with_all_parts_reads_them(parts, plain):
    with SampleLoader(
        open_partitioned(parts / "stream"), NeighborSampler([3, 2]), seed=5, batch_size=50, prefetch_steps=0, feature_cache=SMALL
    ) as loader:
        assert same(loader, SampleLoader(plain, NeighborSampler([3, 2]), seed=5, batch_size=50)) == 30


@pytest.fixture
def in_parts(parts):
    return open_partitioned(parts / "partitioned graph")


MISTAKES = {
    "a sampler that needs more than a node": Mistake(
        lambda in_parts: SampleLoader(in_parts, PinSAGESampler([3, 2]), batch_size=50),
        value="PinSAGESampler",
        rule="partitioned graph node draw own edges",
        remedy="LaborSampler NeighborSampler RandomWalk features alone",
    ),
    "one machine for a graph in parts": Mistake(
        lambda in_parts: SampleLoader(in_parts, NeighborSampler([3, 2]), batch_size=50, feature_cache=SMALL),
        value="2 partitions",
        rule="partitioned graph run one machine",
        remedy="start 2 machines write partitions whole",
    ),
    "all edges at once of a graph in parts": Mistake(
        lambda in_parts: NeighborSampler([3]).sample(in_parts.graph, [1]),
        value="partitioned graph",
        rule="partitioned graph needs all edges machine",
        remedy="whole 'hoptrain data partition'",
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
