"""The loader gives the same batches however they are made, and each seed once per epoch."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from cases.batches import contents
from cases.mistakes import Mistake, each_of, refused

from hoptrain.engine import Dataset, Schedule, WorkerOptions
from hoptrain.samplers import NeighborSampler, SampleLoader
from hoptrain.samplers.loader.task import SampleTask


@pytest.fixture
def loader_of(dataset):
    """Return a function that makes loaders, and close them after the test."""
    loaders = []

    def make(data=dataset, fanouts=(4, 3), **options):
        loaders.append(SampleLoader(data, NeighborSampler(fanouts), **({"batch_size": 16, "seed": 5} | options)))
        return loaders[-1]

    yield make
    for loader in loaders:
        loader.close()


@pytest.mark.parametrize("num_workers", [1, pytest.param(2, marks=pytest.mark.promise), 4])
def test_workers_change_nothing(loader_of, num_workers):
    inline, fed = loader_of(), loader_of(num_workers=num_workers)
    for _ in range(2):
        assert [contents(b) for b in fed] == [contents(b) for b in inline]


@pytest.mark.parametrize("threads", [2, 3, 16])
def test_threads_change_nothing(loader_of, threads):
    """Batches do not depend on the number of threads.

    Each thread makes whole batches, except for the first batch, which all threads share.
    """
    alone, shared = loader_of(threads=1), loader_of(threads=threads)
    for _ in range(2):
        assert [contents(b) for b in shared] == [contents(b) for b in alone]


class Asks(NeighborSampler):
    """A sampler that receives feedback from the training, and counts as hoptrain's own because of its ``__module__``."""

    __module__ = "hoptrain.samplers.nodewise.neighbor"
    feedback = ("history",)


class Learns(Asks):
    feedback = ()

    def state(self):
        return {"scores": np.zeros(1)}


class Users(NeighborSampler):
    """A custom sampler, which may not support several threads."""


@pytest.mark.parametrize(("kind", "at_once"), [(NeighborSampler, 3), (Asks, 1), (Learns, 1), (Users, 1)])
def test_batches_are_made_at_once_where_nothing_else_can_come_of_it(dataset, monkeypatch, kind, at_once):
    begun, made = [], SampleTask.make_batch

    def noted(task, epoch, step, allocate):
        begun.append(step)
        return made(task, epoch, step, allocate)

    monkeypatch.setattr(SampleTask, "make_batch", noted)
    batches = iter(SampleLoader(dataset, kind([2, 2]), batch_size=16, threads=3))
    next(batches)
    assert begun == [0]
    next(batches)
    assert sorted(begun) == list(range(1 + at_once))


def test_a_data_set_on_disk_feeds_the_same(loader_of, dataset, tmp_path):
    dataset.save(tmp_path / "data")
    opened = Dataset.open(tmp_path / "data")
    assert [contents(b) for b in loader_of(opened, num_workers=2)] == [contents(b) for b in loader_of()]


def test_batches_carry_features_and_labels(loader_of, dataset):
    for batch in loader_of(num_workers=1):
        np.testing.assert_array_equal(batch.x, dataset.x[batch.node_ids])
        np.testing.assert_array_equal(batch.y, dataset.y[batch.seeds])
        assert repr(batch).endswith(f"x {batch.x.shape}, y {batch.y.shape})")


@pytest.mark.parametrize("dtype", [np.float16, np.uint8, np.float32])
def test_features_stay_as_stored(loader_of, dataset, dtype):
    data = Dataset(name="d", graph=dataset.graph, x=(dataset.x * 200).astype(dtype), splits=dataset.splits)
    batch = next(iter(loader_of(data)))
    assert batch.x.dtype == dtype
    np.testing.assert_array_equal(batch.x, data.x[batch.node_ids])
    assert batch.y is None


def test_ranks_cover_the_split_once(loader_of, dataset):
    loaders = [loader_of(batch_size=7, rank=rank, world_size=3) for rank in range(3)]
    assert len({len(loader) for loader in loaders}) == 1
    batches = [list(loader) for loader in loaders]
    assert sorted(v for rank in batches for b in rank for v in b.seeds) == dataset.splits["train"].tolist()
    for step in zip(*batches, strict=True):
        assert {b.num_step_seeds for b in step} == {sum(b.num_seeds for b in step)}


def test_rank_and_world_size_come_from_the_launcher(loader_of, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert [b.seeds.tolist() for b in loader_of()] == [b.seeds.tolist() for b in loader_of(rank=1, world_size=2)]


def test_a_given_schedule_says_what_is_in_which_batch(loader_of, dataset):
    schedule = Schedule(items=dataset.split("train")[::-1], batch_size=10, shuffle=False)
    loader = SampleLoader(dataset, NeighborSampler([4, 3]), schedule=schedule)
    assert np.concatenate([batch.seeds for batch in loader]).tolist() == schedule.items.tolist()
    with refused("schedule", "split batch_size seed shuffle rank world_size", "leave out"):
        loader_of(schedule=schedule)


def test_each_iteration_is_the_next_epoch(loader_of):
    loader = loader_of()
    first, second = [b.seeds.tolist() for b in loader], [b.seeds.tolist() for b in loader]
    assert first != second
    next(iter(loader))  # the third epoch, left early
    assert {b.epoch for b in loader} == {3}
    loader.set_epoch(0)
    assert [b.seeds.tolist() for b in loader] == first


@pytest.mark.parametrize(("before", "after"), [(0, 2), (2, 0), (1, 4)])
def test_an_epoch_resumes(loader_of, before, after):
    """An epoch resumes after its last yielded batch, also with another number of workers, as if it had not been interrupted."""
    whole = loader_of()
    expected = [contents(b) for _ in range(2) for b in whole]
    start, rest = loader_of(num_workers=before), loader_of(num_workers=after)
    iterator = iter(start)
    done = [contents(next(iterator)) for _ in range(3)]
    rest.load_state_dict(start.state_dict())
    assert done + [contents(b) for _ in range(2) for b in rest] == expected


def test_state_at_the_end_of_an_epoch_is_the_next(loader_of):
    loader = loader_of()
    for _ in loader:
        pass
    assert loader.state_dict() == {"epoch": 1, "step": 0}


def test_counts_edges_and_waiting(loader_of):
    loader = loader_of()
    assert sum(b.num_edges for b in loader) == loader.num_sampled_edges > 0
    assert loader.wait_s > 0


def test_seeds_may_be_given_as_ids(loader_of):
    loader = loader_of(split=np.array([9, 8, 7]), shuffle=False, batch_size=2)
    assert [b.seeds.tolist() for b in loader] == [[9, 8], [7]]


def test_workers_end_with_the_with_statement(loader_of):
    """Workers end with the ``with`` statement, even after an exception, and the loader can start new ones."""
    loader, pids = loader_of(num_workers=2), []

    def leave():
        with loader as entered:
            next(iter(entered))
            pids.extend(loader.pids())
            raise RuntimeError("left")

    for _ in range(2):
        with pytest.raises(RuntimeError, match="left"):
            leave()
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert len(set(pids)) == 4


def test_a_split_as_a_mask(dataset):
    mask = np.zeros(dataset.graph.num_nodes, bool)
    mask[dataset.split("val")] = True
    for split in (mask, torch.from_numpy(mask)):
        found = [batch.seeds.tolist() for batch in SampleLoader(dataset, NeighborSampler([2]), split=split, batch_size=8)]
        assert found == [batch.seeds.tolist() for batch in SampleLoader(dataset, NeighborSampler([2]), split="val", batch_size=8)]
    with refused("(5,)", "random mask split shape", "one bool each 200 nodes ids"):
        SampleLoader(dataset, NeighborSampler([2]), split=mask[:5])


@pytest.mark.parametrize("left", [5700, 200])
@pytest.mark.parametrize("num_workers", [0, 1])
def test_no_batch_is_made_of_a_file_that_was_cut_off(dataset, tmp_path, num_workers, left):
    """If a feature file is truncated during an epoch, the next batch raises InputError.

    The system would return zeros past the end of the last page, and SIGBUS would kill a process that reads a later page.
    """
    dataset.save(tmp_path / "data")
    with SampleLoader(Dataset.open(tmp_path / "data"), NeighborSampler([5]), batch_size=16, seed=1, num_workers=num_workers) as loader:
        batches = iter(loader)
        next(batches)
        os.truncate(tmp_path / "data" / "x.npy", left)
        with refused("x.npy", f"{left:,} bytes 5,728 cut off", "copy again"):
            next(batches)


@pytest.mark.parametrize("change", ["rewritten", "replaced", "touched"])
def test_data_that_change_under_a_run_end_it_at_the_next_epoch(dataset, tmp_path, change):
    """If a data file changes after it was opened, the next epoch raises InputError.

    A rewritten file may hold ids out of range, which kernels would use as addresses.
    """
    dataset.save(folder := tmp_path / "data")
    with SampleLoader(Dataset.open(folder), NeighborSampler([2]), batch_size=64, num_workers=0) as loader:
        assert len(list(loader)) == 2
        file = folder / "indices.npy"
        if change == "replaced":
            shutil.copy(file, tmp_path / "other.npy")
            os.replace(tmp_path / "other.npy", file)
        else:
            os.utime(file, ns=(1, 1)) if change == "touched" else file.write_bytes(file.read_bytes())
        with refused(str(folder), "changed opened", "start run again"):
            next(iter(loader))
        assert len(list(SampleLoader(Dataset.open(folder), NeighborSampler([2]), batch_size=64, num_workers=0))) == 2


def loader_of_an_empty_split(loader_of, dataset):
    loader_of(Dataset(name="d", graph=dataset.graph, splits={"train": np.empty(0, np.int64)}))


MISTAKES = {
    "an unknown split": Mistake(
        lambda loader_of: loader_of(split="folds"), value="'folds'", rule="random no split", remedy="train, val, test ids"
    ),
    "a seed that the graph has not": Mistake(
        lambda loader_of: loader_of(split=np.array([500])), value="seed 500", rule="not graph", remedy="0 199"
    ),
    "a seed given twice": Mistake(
        lambda loader_of: loader_of(split=np.array([3, 3])), value="seed 3", rule="given twice", remedy="numpy.unique(seeds)"
    ),
    "batches of no seeds": Mistake(lambda loader_of: loader_of(batch_size=0), value="0", rule="batch_size integer", remedy="1 more"),
    "a negative number of workers": Mistake(lambda loader_of: loader_of(num_workers=-1), value="-1", rule="num_workers least 0"),
    "a queue without workers": Mistake(
        lambda loader_of: loader_of(worker_options=WorkerOptions(prefetch_factor=4)),
        value="4",
        rule="worker_options.prefetch_factor num_workers 0",
        remedy="leave out",
    ),
    "more ranks than batches": Mistake(
        lambda loader_of: loader_of(rank=0, world_size=50),
        value="50 ranks",
        rule="8 batches 120 seeds 16",
        remedy="most 8 devices batch size 2",
    ),
    "an empty split": Mistake(loader_of_an_empty_split, value="train split", rule="d empty least one node", remedy="fill choose another"),
    "the name of a data set": Mistake(
        lambda: SampleLoader("digits-knn", NeighborSampler([2])),
        value="str",
        rule="data Dataset HeteroDataset",
        remedy="load_dataset(name)",
    ),
    "fanouts for a sampler": Mistake(
        lambda dataset: SampleLoader(dataset, [5, 5]), value="[5, 5]", rule="loader takes sampler", remedy="NeighborSampler([15, 10])"
    ),
    "a class for a sampler": Mistake(
        lambda dataset: SampleLoader(dataset, NeighborSampler),
        value="<class 'hoptrain.samplers.nodewise.neighbor.NeighborSampler'>",
        rule="loader takes sampler",
        remedy="NeighborSampler([15, 10])",
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
