"""Out-of-core features: batches equal those of features in memory, also with workers; input errors are one line.

``topology/test_edges_beyond_memory.py`` has the tests that features share with edges: resumed runs, killed processes, and ranks.
"""

import os
import re
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
from cases.batches import contents, same
from cases.mistakes import Mistake, each_of, refused
from cases.out_of_core import plain_data

from hoptrain import samplers as s
from hoptrain.engine import Dataset, Schedule
from hoptrain.engine.storage import shared_rows
from hoptrain.samplers import NeighborSampler, SampleLoader
from hoptrain.samplers.loader.memory_left import budget_of, feature_files
from hoptrain.samplers.loader.topology.edge_memory import SAMPLE_SHARE
from hoptrain.samplers.loader.topology.superbatch import StepAccesses

MEMORY = "300KiB"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Return a data set with 1 MB of features, opened from its folder. MEMORY holds some 1500 of its 8000 rows."""
    folder = tmp_path_factory.mktemp("beyond") / "data"
    plain_data().save(folder)
    return Dataset.open(folder)


@pytest.fixture
def loader_of(saved, opened):
    """Return a function that makes loaders, and close them after the test."""

    def make(sampler=None, **options):
        opened.append(SampleLoader(saved, sampler or NeighborSampler([3, 2]), **({"batch_size": 64, "seed": 5} | options)))
        return opened[-1]

    return make


@pytest.mark.parametrize("num_workers", [0, pytest.param(2, marks=pytest.mark.promise)])
def test_batches_are_those_from_memory(loader_of, num_workers):
    cached, plain = loader_of(feature_cache=MEMORY, num_workers=num_workers), loader_of()
    for _ in range(3):
        assert same(cached, plain) == 25
    filled = cached.feature_cache.filled
    assert 0 < filled.num_missed < filled.num_used  # some rows stayed in the cache, but not all
    assert 0 < filled.num_reads <= filled.num_missed
    assert not cached.feature_cache.holds_all


class Counting(NeighborSampler):
    """A sampler that writes the epoch and the index of each batch that it samples into a file, from any process."""

    def __init__(self, fanouts, path):
        super().__init__(fanouts)
        self.path = path

    def sample_on_cpu(self, graph, seeds, address, workspace, **options):
        with self.path.open("a") as file:
            file.write(f"{address.epoch} {address.batch}\n")
        return super().sample_on_cpu(graph, seeds, address, workspace, **options)


def test_each_batch_is_sampled_once(loader_of, tmp_path):
    plain, path = loader_of(), tmp_path / "sampled"
    cached = loader_of(Counting([3, 2], path), feature_cache="8MiB", prefetch_steps=8, num_workers=2)
    for _ in range(2):
        assert same(cached, plain) == 25
    sampled = Counter(path.read_text().splitlines())
    assert {sampled[f"{epoch} {step}"] for epoch in range(2) for step in range(25) if (epoch, step) != (0, 0)} == {1}
    assert sampled["0 0"] > 1  # also for checks before the first epoch


def test_all_rows_may_fit(loader_of):
    cached = loader_of(feature_cache="3MiB")
    next(iter(cached))
    assert cached.feature_cache.holds_all


SAMPLERS = {
    "labor": s.LaborSampler([3, 2]),
    "ladies": s.LadiesSampler([40, 40]),
    "fastgcn": s.FastGCNSampler([40, 40]),
    "asgcn": s.ASGCNSampler([40, 40]),
    "shadow": s.ShadowSampler(depth=2, num_neighbors=3, num_layers=2),
    "saint": s.SaintNodeSampler(budget=200),
    "cluster": s.ClusterSampler(num_clusters=40),
    "vrgcn": s.VRGCNSampler([2, 2]),
    "mvs": s.MVSSampler(NeighborSampler([3, 2]), num_draws=30),
}


def test_without_lookahead_rows_are_read_when_they_are_asked_for(loader_of):
    loader = loader_of(feature_cache=MEMORY, prefetch_steps=0)
    assert same(loader, loader_of()) == 25
    assert loader.feature_cache.pids() == []


class Moody(NeighborSampler):
    """A sampler whose draws depend on its process, so its batches cannot be predicted."""

    def sample_on_cpu(self, graph, seeds, address, workspace, **options):
        return super().sample_on_cpu(graph, seeds, address._replace(seed=os.getpid()), workspace, **options)


def test_a_file_that_is_cut_off_is_one_line(saved, tmp_path):
    saved.save(tmp_path / "data")
    data = Dataset.open(tmp_path / "data")
    os.truncate(tmp_path / "data" / "x.npy", 100_000)
    loader = SampleLoader(data, NeighborSampler([3, 2]), batch_size=64, feature_cache=MEMORY)
    with loader, refused("x.npy", "ends 100,000 cut off", "copy again"):
        list(loader)


def test_memory_too_small_for_a_step_or_for_the_tables_is_one_line(loader_of):
    for given, size in (("96KiB", "98,304"), ("40KiB", "40,960")):
        with refused(size, "feature_cache x hold 8,000 rows 128 80,000 step", "KiB least batch_size fanouts") as found:
            loader_of(feature_cache=given)
    [least] = re.findall(r"(\d+)KiB", str(found.value))
    next(iter(loader_of(feature_cache=f"{least}KiB")))
    with refused(f"{(int(least) - 1) << 10:,} bytes", "feature_cache step uses", f"{least}KiB least"):
        loader_of(feature_cache=f"{int(least) - 1}KiB")


def test_memory_too_small_for_a_later_step_is_the_same_line(loader_of):
    task = loader_of().task
    rows_of = StepAccesses(tasks=[replace(task, stores={"x": 0})], num_tables=1)
    sizes = [len(rows_of(0, step)[0]) for step in range(task.schedule.num_steps)]
    assert sizes[0] < max(sizes)
    budget = budget_of(task.stores, feature_files(task.stores), 0, SAMPLE_SHARE)
    loader = loader_of(feature_cache=f"{budget.least({'x': max(sizes) - 1})}B")
    least = -(-budget.least({"x": max(sizes)}) // 1024)
    with refused("feature_cache", f"step uses {max(sizes):,}", f"{least}KiB least batch_size"):
        list(loader)


@pytest.mark.parametrize(("name", "workers"), [*((name, 0) for name in SAMPLERS), ("labor", 1), ("cluster", 1), ("mvs", 1)])
def test_every_kind_of_sampler(loader_of, name, workers):
    """Batches of every kind of sampler equal those of features in memory.

    With workers are tested an ordinary sampler, one with its own schedule, and one whose rows cannot be predicted.
    """
    sampler = SAMPLERS[name]
    options = {"batch_size": 1 if sampler.single_item else 2 if name == "cluster" else 64}
    cached, plain = (loader_of(sampler, **options, **more) for more in ({"feature_cache": "800KiB", "num_workers": workers}, {}))
    for ours, theirs, _ in zip(cached, plain, range(12)):  # noqa: B905
        assert contents(ours) == contents(theirs)
    assert (cached.feature_cache.pids() == []) == (name == "mvs")


def test_a_given_schedule_is_planned(loader_of, saved):
    schedule = Schedule(items=saved.split("train")[::-1], batch_size=50, shuffle=False)
    cached, plain = (SampleLoader(saved, NeighborSampler([3, 2]), schedule=schedule, **more) for more in ({"feature_cache": MEMORY}, {}))
    with cached, plain:
        assert same(cached, plain) == 32


def more_memory_than_is_free(loader_of, monkeypatch):
    monkeypatch.setattr(shared_rows, "available_memory", lambda: 1 << 10)
    list(loader_of(feature_cache=MEMORY))


MISTAKES = {
    "features in memory": Mistake(
        lambda dataset: SampleLoader(dataset, NeighborSampler([3]), feature_cache=MEMORY),
        value="in memory",
        rule="features rows file",
        remedy="data.save open folder",
    ),
    "a sampler whose batches are not the same twice": Mistake(
        lambda loader_of: list(loader_of(Moody([3, 2]), feature_cache=MEMORY)),
        value="node",
        rule="batch rows read same",
        remedy="prefetch_steps 0",
    ),
    **{
        f"memory {wrong}": Mistake(
            lambda loader_of, wrong=wrong: loader_of(feature_cache=wrong), value=wrong, rule="feature_cache bytes unit auto", remedy="8GiB"
        )
        for wrong in ("7", "0.5", "automatic")
    },
    "a negative prefetch_steps": Mistake(
        lambda loader_of: loader_of(feature_cache="8GB", prefetch_steps=-1), value="-1", rule="prefetch_steps number steps 0"
    ),
    "a prefetch_steps without memory": Mistake(
        lambda loader_of: loader_of(prefetch_steps=4), value="4", rule="prefetch_steps without feature_cache", remedy="give leave out"
    ),
    "memory where the GPU samples": Mistake(
        lambda loader_of: loader_of(feature_cache="8GB", device="cuda"),
        value="8GB",
        rule='device="cuda" feature cache sampler',
        remedy="cpu",
    ),
    "batches that are cut up in a pipeline": Mistake(
        lambda saved: SampleLoader(saved, NeighborSampler([3]), feature_cache="8GB", schedule=SimpleNamespace()),
        value="8GB",
        rule="features batches chunks pipeline",
        remedy="leave out",
    ),
    "more memory than is free": Mistake(
        more_memory_than_is_free, value="0.00 GiB", rule="feature cache needs free", remedy="smaller feature_cache auto"
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
