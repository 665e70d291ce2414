"""Batches equal those of the previous version on any machine, however they are made: their digests are those in ``batches.json``."""

import numpy as np
import pytest
from cases.mistakes import refused
from golden_batches import check, digest, digests, read
from golden_feeds import FEEDS, data_folder, of_epochs
from golden_samplers import SAMPLED
from golden_workers import Several, Share

from hoptrain import samplers
from hoptrain.samplers import Sampler, SamplingProgram, Workspace
from hoptrain.trainers.tasks import TASKS
from hoptrain.trainers.tasks.items.feed import ItemLoader

GOLDEN = read()


@pytest.fixture(scope="module")
def folder():
    with data_folder() as path:
        yield path


@pytest.mark.promise
@pytest.mark.parametrize("name", SAMPLED)
def test_a_sampler(name):
    """Batches have the golden digests, singly and in a bulk, with one thread and with two."""
    if name == "cluster, METIS":
        pytest.importorskip("pymetis")
    case = SAMPLED[name]()
    one, two = Workspace(), Workspace(threads=2)
    for found in (case.alone(), case.alone(workspace=two), case.in_bulks(one), case.in_bulks(two)):
        check(name, digests(found), GOLDEN[name])


@pytest.mark.parametrize("name", FEEDS)
def test_a_feed(name, folder):
    check(f"feed: {name}", digests(of_epochs(FEEDS[name](folder))), GOLDEN[f"feed: {name}"])


@pytest.mark.promise
def test_feeds_through_workers(folder, pool_of, monkeypatch):
    """Batches that two sampler processes make have the golden digests, for every loader whose batches workers can make."""
    loaders = {name: make(folder) for name, make in FEEDS.items()}
    loaders = {name: loader for name, loader in loaders.items() if not isinstance(loader, ItemLoader)}
    assert len(loaders) > 9
    fed = [getattr(loader, "parts", loader) for loader in loaders.values()]  # a chunk loader wraps another loader
    tasks = [loader.task for loader in fed]
    pool = pool_of(Several(tasks), 2)
    monkeypatch.setattr("hoptrain.samplers.loader.maker.WorkerPool", lambda task, *_, **__: Share(pool, tasks.index(task)))
    for own, (name, loader) in zip(fed, loaders.items(), strict=True):
        own.num_workers = 2
        check(f"feed: {name}", digests(of_epochs(loader)), GOLDEN[f"feed: {name}"])


def test_every_sampler_and_every_task_has_a_case():
    used = [make().sampler for make in SAMPLED.values()]
    used += [inner for sampler in used if (inner := getattr(sampler, "sampler", None)) is not None]
    kinds = [kind for name in samplers.__all__ if isinstance(kind := getattr(samplers, name), type)]
    known = {kind for kind in kinds if issubclass(kind, Sampler)} | {samplers.HeteroSampler}
    assert known - {Sampler, SamplingProgram} <= {type(sampler) for sampler in used}
    assert {name.split(",")[0] for name in FEEDS} >= TASKS.keys()
    assert GOLDEN.keys() == SAMPLED.keys() | {f"feed: {name}" for name in FEEDS}


def test_a_changed_batch_is_named_with_the_remedy():
    """If a batch differs, or is missing or additional, one line names its address and the remedy."""
    for found, expected in (({"7/3/11": "a"}, {"7/3/11": "b"}), ({}, {"7/3/11": "b"}), ({"7/3/11": "a"}, {})):
        with refused("7/3/11", "walk batch another tests/golden/batches.json", "CHANGELOG.md Batches change write.py", AssertionError):
            check("walk", {"0/0/0": "c"} | found, {"0/0/0": "c"} | expected)


def test_the_digest_sees_everything():
    """A change of any name, dtype, shape, order or value changes the digest; the names in a batch do not change."""
    plain = np.arange(6, dtype=np.int32)
    others = [
        {"a": plain}, {"b": plain}, {"a": plain.astype(np.int64)}, {"a": plain.reshape(2, 3)}, {"a": plain[::-1]}, {"a": plain, "n": 1},
        {"a": plain, "n": 2}, {"a": 1},
    ]  # fmt: skip
    assert len({digest(named) for named in others}) == len(others)
    batch = next(SAMPLED["labor"]().alone())
    assert {"seed", "epoch", "batch", "num_seeds", "num_step_seeds", "node_ids", "weights.1", "indptr.0", "num_src.0"} <= batch.keys()
    batch = next(SAMPLED["links"]().alone())
    assert {"extra.pairs", "extra.labels"} <= batch.keys()
