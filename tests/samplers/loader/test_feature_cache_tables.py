"""Out-of-core features in several tables (node types, edges): each has its own plan, and all share one memory budget."""

import logging
import re
from dataclasses import replace

import numpy as np
import pytest
from cases.mistakes import refused

from hoptrain.engine import Dataset, HeteroDataset, WorkerOptions
from hoptrain.engine.hetero_graph import HeteroGraph
from hoptrain.engine.storage.budget import Budget
from hoptrain.engine.storage.shared_rows import shared_out, slots_for
from hoptrain.samplers import HeteroSampler, NeighborSampler, SampleLoader
from hoptrain.samplers.loader import memory_left


def skewed(draw, number, size):
    return (number * draw.random(size) ** 3).astype(np.int64)


@pytest.fixture(scope="module")
def with_edges(tmp_path_factory):
    """Return 4000 nodes with features and 30,000 edges whose features are stored by edge id, in another order than the columns."""
    draw, number, num_edges = np.random.default_rng(1), 4000, 30_000
    edges = np.stack([skewed(draw, number, num_edges), draw.integers(0, number, num_edges)])
    x, edge_attr = draw.random((number, 32), dtype=np.float32), draw.random((num_edges, 5), dtype=np.float32)
    folder = tmp_path_factory.mktemp("edges") / "data"
    given = {"splits": {"train": np.arange(0, number, 7)}, "edge_attr": edge_attr, "edge_index": edges}
    Dataset(x=x, y=draw.integers(0, 3, number), **given).save(folder)
    return Dataset.open(folder)


@pytest.fixture(scope="module")
def hetero(tmp_path_factory):
    """Return a data set of papers, authors without features, and so few fields that every step uses all of them."""
    draw = np.random.default_rng(2)
    num = {"paper": 5000, "author": 900, "field": 12}
    edges = {
        ("paper", "cites", "paper"): (skewed(draw, 5000, 30_000), draw.integers(0, 5000, 30_000)),
        ("author", "writes", "paper"): (draw.integers(0, 900, 9000), draw.integers(0, 5000, 9000)),
        ("field", "of", "paper"): (draw.integers(0, 12, 9000), draw.integers(0, 5000, 9000)),
        ("paper", "in", "field"): (draw.integers(0, 5000, 9000), draw.integers(0, 12, 9000)),
    }
    x = {"paper": draw.random((5000, 24), dtype=np.float32), "field": draw.random((12, 3), dtype=np.float32)}
    data = HeteroDataset(
        graph=HeteroGraph.from_edges(num, edges),
        x=x,
        y=draw.integers(0, 3, 5000),
        seed_type="paper",
        splits={"train": np.arange(0, 5000, 9)},
    )
    folder = tmp_path_factory.mktemp("hetero") / "data"
    data.save(folder)
    return HeteroDataset.open(folder)


def same(data, sampler, **options):
    """Check that two epochs with ``feature_cache`` equal those without, and return the cache."""
    with (
        SampleLoader(data, sampler, batch_size=64, seed=5, **options) as cached,
        SampleLoader(data, sampler, batch_size=64, seed=5) as plain,
    ):
        for _ in range(2):
            for ours, theirs in zip(cached, plain, strict=True):
                for found, wanted in zip(rows_of(ours), rows_of(theirs), strict=True):
                    np.testing.assert_array_equal(found, wanted)
        return cached.feature_cache


def rows_of(batch):
    own = [batch.x[kind] for kind in sorted(batch.x)] if isinstance(batch.x, dict) else [batch.x]
    edges = [] if isinstance(batch.x, dict) else [block.edge_attr for block in batch.blocks]
    return [*own, batch.y, *edges]


@pytest.mark.parametrize(
    "options",
    [{}, {"num_workers": 2}, {"prefetch_steps": 0}],
    ids=["here", "workers", "when asked for"],
)
def test_features_of_edges(with_edges, options):
    cache = same(with_edges, NeighborSampler([3, 2]), feature_cache="900KiB", **options)
    assert sorted(cache.rows) == ["edge_attr", "x"]
    assert cache.filled.num_missed < cache.filled.num_used or options.get("prefetch_steps") == 0


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}], ids=["here", "workers"])
def test_features_of_types(hetero, options):
    cache = same(hetero, HeteroSampler([3, 2], "paper"), feature_cache="400KiB", **options)
    assert sorted(cache.rows) == ["x.field", "x.paper"]
    fields, papers = sorted(cache.shared.tables)
    assert (fields.num_rows, fields.num_slots) == (12, 12)
    assert papers.num_slots < 5000
    assert 0 < cache.filled.num_missed < cache.filled.num_used


def test_a_budget_is_divided_equally_except_for_what_needs_less():
    small, one, other = shared_out(30 << 20, {"x.a": (1000, 100), "x.b": (1 << 20, 256), "x.c": (1 << 18, 4096)})
    assert small.num_slots == 1000
    assert small.num_bytes < 300_000
    left = (30 << 20) - small.num_bytes
    halves = [slots_for(left // 2, 1 << 20, 256), slots_for(left // 2, 1 << 18, 4096)]
    np.testing.assert_allclose([table.num_slots for table in (one, other)], halves, atol=1)
    assert sum(table.num_bytes for table in (small, one, other)) <= 30 << 20
    (alone,) = shared_out(1 << 20, {"x": (1000, 100)})
    assert alone == small
    (fewer,) = shared_out(1 << 20, {"x": (1000, 100)}, {"x": 600})
    assert fewer.num_slots == 600
    assert fewer.num_bytes < small.num_bytes


def test_too_little_is_an_error_with_the_minimum():
    sizes = {"x.paper": (1_000_000, 64), "x.author": (1_000_000, 32), "edge_attr": (500, 4)}
    budget = Budget(memory=9_000_000, sizes=sizes)
    with refused("9,000,000", "feature_cache 4,492,910 x.paper hold 1,000,000 rows 64 10,000,000", "21321KiB least one row more step"):
        budget.tables()
    least = budget.least({})
    assert min(table.num_slots for table in replace(budget, memory=least).tables()) == 1
    with refused(f"{least - 1:,}", "feature_cache hold 1,000,000 rows", "least one row more step"):
        replace(budget, memory=least - 1).tables()
    rows = {"x.paper": 30_000, "x.author": 999_000, "edge_attr": 500}
    wider = replace(budget, memory=40_000_000, whole={"edge_attr.a": 1_000_000}, sample_share=4, is_auto=True)
    rule = "feature_cache auto 1,000,000 all edge_attr.a 10,000,000 sampled x.author step uses 999,000"
    with refused("40,000,000", rule, "151MiB least batch_size fanouts"):
        wider.check(rows)
    least = wider.least(rows)
    replace(wider, memory=least).check(rows)
    with refused(f"{least - 1:,}", "feature_cache auto step uses 999,000", "151MiB least batch_size fanouts"):
        replace(wider, memory=least - 1).check(rows)


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"prefetch_steps": 0}], ids=["here", "workers", "when asked for"])
def test_a_table_of_rows_shorter_than_their_index_is_kept_whole(with_edges, tmp_path, caplog, options):
    replace(with_edges, edge_attr=np.array(with_edges.edge_attr[:, :1])).save(
        tmp_path / "data"
    )  # 120 kB of rows, and 300 kB of lookup tables
    with caplog.at_level(logging.INFO, "hoptrain"):
        cache = same(Dataset.open(tmp_path / "data"), NeighborSampler([3, 2]), feature_cache="400KiB", **options)
    assert list(cache.rows) == ["x"]
    assert any(len(array) == 30_000 and array.dtype == np.float32 for array in cache.mapped)
    if not options.get("prefetch_steps", 1):
        return
    assert 0 < cache.filled.num_missed < cache.filled.num_used
    assert cache.shared.tables[0].num_bytes <= (400 << 10) - 120_000
    assert "; in addition 0.1 MiB for all of edge_attr" in caplog.text
    with refused("102,400", "feature_cache 120,000 all edge_attr 0 x", "KiB least batch_size fanouts"):
        SampleLoader(Dataset.open(tmp_path / "data"), NeighborSampler([3, 2]), feature_cache="100KiB")


@pytest.mark.parametrize("name", ["hetero", "with_edges"])
def test_auto_takes_what_is_left_and_says_so(request, name, caplog, monkeypatch):
    data = request.getfixturevalue(name)
    sampler = HeteroSampler([3, 2], "paper") if name == "hetero" else NeighborSampler([3, 2])
    monkeypatch.setattr(memory_left, "available_memory", lambda: 1 << 30)
    with caplog.at_level(logging.INFO, "hoptrain"):
        cache = same(data, sampler, feature_cache="auto")
    graph = sum(file.stat().st_size for file in (data.path / "graph" if name == "hetero" else data.path).glob("*ind*.npy"))
    assert graph < 1 << 20
    assert all(table.num_slots == table.num_rows for table in cache.shared.tables)
    (said,) = [line for line in caplog.messages if line.startswith("feature cache: ")]
    assert "MiB (1.00 GiB free minus 0.00 for graph and labels, 0.13 for sampler processes, 0.00 for batches, 0.25 for training)" in said
    rows = sum(table.num_rows for table in cache.shared.tables)
    assert said.endswith(f"holds {rows:,} of {rows:,} rows (100 %), prefetch_steps 256")


def test_auto_counts_workers_queue_and_graph(with_edges, monkeypatch):
    """With ``feature_cache="auto"``, more workers leave less memory for the cache, since each takes memory for its process and batches."""
    monkeypatch.setattr(memory_left, "available_memory", lambda: 8 << 30)
    with SampleLoader(with_edges, NeighborSampler([3, 2]), batch_size=64) as loader:
        task, worker_options = loader.task, WorkerOptions()
        batch, tables = task.rehearse(0), ["x", "edge_attr"]
        none, one = (memory_left.memory_left(task, tables, number, worker_options, 1)[0] for number in (0, 1))
        assert none - one == memory_left._PROCESS_BYTES + 4 * 30_000 + (worker_options.prefetch_factor + 1) * batch
        in_memory = sum(array.nbytes for array in with_edges.graph.arrays().values()) + with_edges.y.nbytes
        task.graph, task.stores["y"] = with_edges.graph.in_memory(), np.array(with_edges.y)
        assert memory_left.memory_left(task, tables, 0, worker_options, 1)[0] - none == in_memory


def test_auto_where_nothing_is_left_is_one_line(with_edges, monkeypatch):
    monkeypatch.setattr(memory_left, "available_memory", lambda: 200 << 20)
    loader = SampleLoader(with_edges, NeighborSampler([3, 2]), feature_cache="auto")
    with loader, refused("0.20 GiB", "feature_cache auto free training missing", "free more num_workers") as raised:
        list(loader)
    assert 0.1 <= float(re.search(r"([\d.]+) GiB are missing", str(raised.value))[1]) < 0.2
