"""The synthetic counterpart of ogbn-mag: exact sizes, independence of the number of threads, and its intended properties."""

import numba
import numpy as np
import pytest
from cases.mistakes import refused
from scipy.sparse import csr_array

from hoptrain.engine import load_dataset, load_hetero_dataset
from hoptrain.engine.datasets.synthetic import affine_bijection, law_start
from hoptrain.kernels.cpu import synthetic as kernels

SCALE = 0.01
CITES = ("paper", "cites", "paper")


@pytest.fixture(autouse=True, scope="module")
def _own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOPTRAIN_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def load(**options):
    return load_hetero_dataset("synthetic:mag", **{"scale": SCALE, **options})


def test_sizes_are_those_of_ogbn_mag_times_scale():
    data = load()
    assert data.graph.num_nodes == {"paper": 7_364, "author": 11_346, "institution": 87, "field_of_study": 600}
    assert {":".join(relation): columns.num_edges for relation, columns in data.graph.relations.items()} == {
        "author:affiliated_with:institution": 10_440,
        "author:writes:paper": 71_457,
        "paper:cites:paper": 54_163,
        "paper:has_topic:field_of_study": 75_051,
    }
    assert {kind: rows.shape for kind, rows in data.x.items()} == {"paper": (7_364, 128)}
    assert (data.seed_type, data.num_classes) == ("paper", 349)
    assert {split: len(ids) for split, ids in data.splits.items()} == {"train": 6_296, "val": 649, "test": 419}
    assert len(np.unique(np.concatenate(list(data.splits.values())))) == 7_364
    assert np.array_equal(np.unique(data.y), np.arange(349))


def test_a_paper_cites_earlier_ones():
    data = load()
    part = np.empty(data.num_seed_nodes, np.int64)
    for place, split in enumerate(("train", "val", "test")):
        part[data.split(split)] = place
    cites = data.graph.relations[CITES]
    assert (part[cites.indices] >= part[cites.destinations()]).all()
    assert (part[cites.indices] > part[cites.destinations()]).any()
    assert not (cites.indices == cites.destinations()).any()


def test_citations_are_within_classes_as_often_as_stated():
    data = load()
    cites = data.graph.relations[CITES]
    within = (data.y[cites.indices] == data.y[cites.destinations()]).mean()
    assert within == pytest.approx(0.5 + 0.5 / 349, abs=0.01)


@pytest.mark.parametrize(("relation", "offsets"), [(("author", "writes", "paper"), (100, 2_000)), (CITES, (50, 50))])
def test_degrees_of_sources_and_destinations_follow_their_distributions(relation, offsets):
    columns = load().graph.relations[relation]
    counts = np.bincount(columns.indices, minlength=columns.num_src), np.diff(columns.indptr)
    for degrees, offset in zip(counts, offsets, strict=True):
        weights = (np.arange(len(degrees)) + offset + 0.5) ** (-2 / 3)
        hubs = slice(0, len(degrees) // 20)
        factor, shift = affine_bijection(len(degrees))
        by_rank = degrees[(factor * np.arange(len(degrees)) + shift) % len(degrees)]
        assert by_rank[hubs].sum() == pytest.approx((weights * columns.num_edges / weights.sum())[hubs].sum(), rel=0.1)


def test_any_number_of_threads_makes_the_same_files(tmp_path, monkeypatch):
    checksums = []
    for threads in (1, min(2, numba.config.NUMBA_NUM_THREADS)):
        monkeypatch.setenv("HOPTRAIN_CACHE", str(tmp_path / str(threads)))
        before = numba.get_num_threads()
        numba.set_num_threads(threads)
        try:
            path = load(scale=0.001).path
        finally:
            numba.set_num_threads(before)
        checksums.append((path / "header.json").read_text())
    assert '"crc32"' in checksums[0]
    assert checksums[0] == checksums[1]


def test_the_numbers_never_change():
    """Some edges and features have the values of the first version, since data of a benchmark must not change."""
    options = 1_134_649, 8_740, 349, law_start(100_000, 1_134_649), law_start(5, 8_740), np.uint64(1 << 31)
    assert [kernels.relation_pair(pair, np.uint64(10), *options) for pair in (0, 1, 1_000_000)] == [
        (752432, 1035),
        (695541, 39),
        (968819, 2438),
    ]
    data = load()
    assert data.graph.relations[CITES].indices[[0, 1_000, 54_000]].tolist() == [779, 3502, 6593]
    assert [round(float(value), 5) for value in data.x["paper"][1234, [0, 7, 99]]] == [-0.77276, 0.63454, 0.66837]


def test_types_with_fewer_nodes_than_classes_have_communities_too():
    """If a type has fewer nodes than there are classes, edges stay within the type, and each node stands for several classes."""
    start, always = law_start(5, 87), np.uint64(1 << 32)
    ends = np.array([kernels.relation_pair(pair, np.uint64(1), 5_000, 87, 349, 0.5, start, always) for pair in range(2_000)])
    assert np.array_equal(ends[:, 1], ends[:, 0] % 349 % 87)


def test_classes_are_learnable_with_the_graph_only():
    data = load(scale=0.02, add_reverse=True)
    train, test = data.split("train"), data.split("test")

    def averaged(x, relation):
        columns = data.graph.relations[relation]
        weights = np.repeat(1 / np.maximum(np.diff(columns.indptr), 1), np.diff(columns.indptr)).astype(np.float32)
        return csr_array((weights, columns.indices, columns.indptr), shape=(columns.num_nodes, columns.num_src)) @ x

    def accuracy(x):
        centres = np.stack([x[train[data.y[train] == label]].mean(axis=0) for label in range(data.num_classes)])
        return (((centres**2).sum(axis=1) - 2 * x[test] @ centres.T).argmin(axis=1) == data.y[test]).mean()

    own = np.asarray(data.x["paper"])
    by_author = averaged(averaged(own, ("paper", "rev_writes", "author")), ("author", "writes", "paper"))
    assert accuracy(own) < 0.1
    assert accuracy(by_author) > 0.4


@pytest.mark.parametrize("scale", [0, 0.0005, 1.5, float("nan")])
def test_a_scale_outside_the_range_is_refused(scale):
    with refused(f"scale is {float(scale)}", "share synthetic:mag papers 0.00095", "give 0.02"):
        load(scale=scale)


def test_it_is_no_plain_graph():
    with refused("synthetic:mag", "heterogeneous not homogeneous", "task: hetero load_hetero_dataset"):
        load_dataset("synthetic:mag", scale=0.001)


def test_reverse_relations_are_kept_beside_it():
    plain, data = load(scale=0.001), load(scale=0.001, add_reverse=True)
    assert data.path != plain.path
    assert load(scale=0.001, add_reverse=True).path == data.path
    assert list(data.graph.relations)[4:] == [(b, f"rev_{name}", a) for a, name, b in plain.graph.relations]
    there, back = data.graph.relations[CITES], data.graph.relations["paper", "rev_cites", "paper"]
    ends = [sorted(zip(*pair, strict=True)) for pair in ((there.indices, there.destinations()), (back.destinations(), back.indices))]
    assert ends[0] == ends[1]
    assert data.meta["reverse"] == "added"
    assert np.array_equal(data.x["paper"], plain.x["paper"])
