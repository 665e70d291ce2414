"""A loader gives the same batches with a sampler on CUDA as on the CPU."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from cases.mistakes import Mistake, each_of, refused
from conftest import make_graph
from cuda_case import needs_cuda, put_stand_in, simulated, tested_blocks, to_host  # noqa: F401
from numba import cuda

from hoptrain.engine import Dataset, WorkerError, to_bfloat16
from hoptrain.engine.device import is_simulated
from hoptrain.engine.features.quantized import QuantizedRows, quantize
from hoptrain.engine.gpu_memory.device_stream import DeviceStream
from hoptrain.samplers import (
    LaborSampler,
    LadiesSampler,
    LinkSampler,
    MVSSampler,
    NeighborSampler,
    Node2Vec,
    PinSAGESampler,
    SaintWalkSampler,
    SampleLoader,
    Sampler,
    ShadowSampler,
    VRGCNSampler,
)
from hoptrain.samplers.batch import transfer
from hoptrain.samplers.loader import device_feed
from hoptrain.samplers.loader import gpu_cache as gpu_cache

pytestmark = [needs_cuda, pytest.mark.usefixtures("tested_blocks")]


@pytest.fixture(scope="module")
def small():
    graph = make_graph(40, 200)
    rng = np.random.default_rng(1)
    x, y = rng.random((40, 3), dtype=np.float32), rng.integers(0, 3, 40)
    return Dataset(name="small", graph=graph, x=x, y=y, splits={"train": np.arange(17)}, num_classes=3)


def loader_of(data, expand="all", **options):
    return SampleLoader(data, NeighborSampler([3, 2], expand=expand), batch_size=3, seed=5, **options)


def contents(batch):
    """Return everything that a batch holds, except for times and the width of offsets."""
    arrays = batch.arrays() | {"x": batch.x, "y": batch.y}
    facts = batch.num_seeds, batch.seed, batch.epoch, batch.batch, batch.num_step_seeds, batch.nested, [b.num_src for b in batch.blocks]
    return facts, {name: to_host(array).tolist() for name, array in arrays.items()}


@pytest.mark.parametrize("bulk", [1, 4, None])
@pytest.mark.parametrize("expand", ["all", "new"])
def test_equal_to_the_cpu(small, expand, bulk):
    """Batches of two epochs, the second resumed from its middle, equal the CPU's; they are kept, so that overwritten ones would show."""
    found, expected = [], []
    for batches, options in ((found, {"device": "cuda", "bulk": bulk}), (expected, {})):
        loader = loader_of(small, expand, **options)
        batches += loader
        loader.load_state_dict({"epoch": 1, "step": 3})
        batches += loader
    assert len(found) == 6 + 3
    assert [contents(batch) for batch in found] == [contents(batch) for batch in expected]


@simulated
def test_what_pyg_gets_is_that_of_the_cpu(small, monkeypatch):
    """PyG's batches from CUDA equal the CPU's: edge ids, draws and pairs are tensors on the device, as far as the stub of torch permits."""
    sampler = LinkSampler(NeighborSampler([3, 2], replace=True))
    expected = [batch.to_pyg() for batch in SampleLoader(small, sampler, batch_size=30)]
    put_stand_in(monkeypatch)
    monkeypatch.setattr(DeviceStream, "hand_to_torch", lambda self, *arrays: None)
    batches = list(SampleLoader(small, sampler, batch_size=30, device="cuda", bulk=2))
    for batch, data in zip(batches, expected, strict=True):
        assert (batch.graph_edge_ids is small.graph.edge_ids, batch.repeats_edges) == (True, True)
        found = batch.to_pyg()
        assert found.to_dict().keys() == data.to_dict().keys()
        assert found.num_edges == batch.num_edges
        for name, value in data.to_dict().items():
            assert torch.equal(torch.as_tensor(found[name]), torch.as_tensor(value)), name


@pytest.mark.parametrize(
    "sampler",
    [LaborSampler([2]), PinSAGESampler([2], num_walks=4), MVSSampler(NeighborSampler([2]), 2), LinkSampler(VRGCNSampler([2]))],
    ids=lambda sampler: type(sampler).__name__,
)
def test_samplers_with_weights_and_extra_arrays(small, sampler):
    """Batches with weights and extra arrays equal the CPU's; they are kept to the end, so that overwritten batches would show."""
    found, expected = (list(SampleLoader(small, sampler, batch_size=6, **options)) for options in ({"device": "cuda", "bulk": 2}, {}))
    assert len(found) > 2
    assert [contents(batch) for batch in found] == [contents(batch) for batch in expected]


@simulated
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "uint8"])
def test_features_that_torch_reads_are_its_own_memory(monkeypatch, dtype):
    """Tensors passed to torch own torch memory, since torch's allocator protects only its own memory while a stream still reads it."""
    x = np.random.default_rng(1).random((40, 3), dtype=np.float32) * 200
    x = to_bfloat16(x) if dtype == "bfloat16" else x.astype(dtype)
    data = Dataset(name="small", graph=make_graph(40, 200), x=x, y=np.arange(40) % 3, splits={"train": np.arange(17)}, num_classes=3)
    _check_passed(monkeypatch, data, NeighborSampler([2]))


@simulated
@pytest.mark.parametrize(
    "sampler",
    [
        NeighborSampler([3, 2], expand="new"), LaborSampler([2]), PinSAGESampler([2], num_walks=4), VRGCNSampler([2]),
        MVSSampler(NeighborSampler([2]), 2), LinkSampler(NeighborSampler([2]), exclude="reverse"), LadiesSampler([8, 4]), SaintWalkSampler(3, 2),
        ShadowSampler(1, 2, 2), Node2Vec(3),
    ],
    ids=lambda sampler: type(sampler).__name__,
)  # fmt: skip
def test_structures_that_torch_reads_are_its_own_memory(small, monkeypatch, sampler):
    _check_passed(monkeypatch, small, sampler)


def _check_passed(monkeypatch, data, sampler):
    """Check that all tensors passed to the training stream own torch memory, and that batches equal the CPU's."""
    passed, options = [], {"batch_size": 1 if sampler.single_item else 6, "seed": 5}
    stand_in = put_stand_in(monkeypatch)
    monkeypatch.setattr(DeviceStream, "hand_to_torch", lambda self, *arrays: passed.extend(arrays))
    found = list(SampleLoader(data, sampler, device="cuda", bulk=2, **options))
    foreign = {tensor.untyped_storage().data_ptr() for tensor in stand_in.foreign}
    assert foreign, "a bulk's buffers are Numba's arrays"
    assert len(passed) >= 4 * len(found)
    of_rows = [rows for batch in found for rows in (batch.x, batch.y) if rows is not None]
    assert {id(rows) for rows in of_rows} <= set(map(id, passed)), "the training's stream gets features and labels, too"
    assert not foreign & {tensor.untyped_storage().data_ptr() for tensor in passed if tensor.numel()}
    for batch in found:
        structure = [array for array in batch.arrays().values() if array.numel() and array.itemsize % 4 == 0]
        assert len({array.untyped_storage().data_ptr() for array in structure}) == 1, "a batch is one copy"
        assert all(array.data_ptr() % array.itemsize == 0 for array in structure)
    monkeypatch.undo()
    assert [contents(batch) for batch in found] == [contents(batch) for batch in SampleLoader(data, sampler, **options)]


def test_graph_and_features_lie_where_they_are_asked_for(small, monkeypatch):
    placements, rows = [], device_feed.DeviceRows
    monkeypatch.setattr(device_feed, "DeviceRows", lambda *args, **own: (placements.append(own["placement"]), rows(*args, **own))[1])
    loader = loader_of(small, device="cuda", graph_placement="pinned", feature_placement="device")
    assert [contents(batch) for batch in loader] == [contents(batch) for batch in loader_of(small)]
    assert set(loader.task.workspace.on_device.driver.graph.placement.values()) == {"pinned"}
    assert placements == ["device"] * 2


@pytest.mark.parametrize(("cache", "rows"), [(0.2, 8), ("60B", 5), ("1KiB", 40)])
def test_a_device_cache_changes_no_bit_and_says_what_it_brings(small, caplog, cache, rows):
    """A GPU cache does not change batches, and the logged hit rates are exact for the epoch whose reads were counted and for the next."""
    caplog.set_level("INFO")
    loader, plain = loader_of(small, device="cuda", bulk=4, gpu_cache=cache), loader_of(small)
    assert loader.hit_rates is None
    epochs = [list(plain), list(plain)]
    for batches in epochs:
        assert [contents(batch) for batch in loader] == [contents(batch) for batch in batches]
    read = [np.concatenate([batch.node_ids for batch in batches]) for batches in epochs]
    counts = np.bincount(read[0], minlength=40)
    hot = np.argsort(-counts, kind="stable")[:rows]
    rates = [np.isin(ids, hot).mean() for ids in read]
    assert loader.hit_rates.expected == pytest.approx(rates[0])
    assert loader.hit_rates.had == pytest.approx(dict(enumerate(rates)))
    assert [record.getMessage() for record in caplog.records] == [
        f"gpu_cache: {rows} of 40 rows in device memory, {100 * rates[0]:.1f} % of the reads are expected to hit them (counted in 6 of 6 batches of "
        "epoch 0)",
        *(
            f"gpu_cache: {100 * rate:.1f} % of the row reads of epoch {epoch} were hits ({100 * rates[0]:.1f} % expected)"
            for epoch, rate in enumerate(rates)
        ),
    ]


def test_an_epoch_that_is_left_is_not_counted(small):
    loader = loader_of(small, device="cuda", bulk=4, gpu_cache=1)
    next(iter(loader))
    list(loader)
    assert loader.hit_rates.had == {1: 1.0}


def test_a_long_epoch_is_counted_in_part(small, monkeypatch):
    """In a long epoch only a part is counted: of two bulks on each of two ranks, the first of each rank."""
    monkeypatch.setattr(gpu_cache, "MOST_COUNTED", 4)
    loader = loader_of(small, device="cuda", bulk=2, gpu_cache=0.2, rank=1, world_size=2)
    next(iter(loader))
    counts, number, of = gpu_cache.count_rows(loader.task, 40, 2, 0)
    ranks = [list(loader_of(small, rank=rank, world_size=2)) for rank in (0, 1)]
    assert (number, of) == (4, 6)
    assert (
        counts.tolist()
        == np.bincount(np.concatenate([batch.node_ids for batches in ranks for batch in batches[:2]]), minlength=40).tolist()
    )


def test_a_cache_that_does_not_fit_beside_the_graph_and_what_sampling_takes(small, monkeypatch):
    """A GPU cache that does not fit is rejected; free memory is read after the graph was placed, and again after batches were counted."""
    loader, asked = loader_of(small, device="cuda", gpu_cache=0.5), []

    def free():
        asked.append(loader.task.workspace.on_device.driver.graph is not None)
        return 1e9 if len(asked) == 1 else 200.0

    monkeypatch.setattr(gpu_cache, "free_memory", free)
    with refused("0.5", "gpu_cache index GPU 0.00 GiB free", "less"):
        next(iter(loader))
    assert asked == [True, True]


def test_ranks(small):
    """A rank's batches equal the CPU's: batch indices on a rank are consecutive, whatever the number of batches per bulk."""
    for rank in (0, 1):
        place = {"rank": rank, "world_size": 2}
        found, expected = loader_of(small, device="cuda", bulk=2, **place), loader_of(small, **place)
        assert [contents(batch) for batch in found] == [contents(batch) for batch in expected]


def test_a_new_iterator_ends_the_one_before(small):
    loader = loader_of(small, device="cuda", bulk=2)
    old = iter(loader)
    next(old)
    assert contents(next(iter(loader)))[0][2] == 1
    with refused("batch 1", "iterator no longer valid loader", "new iterator", WorkerError):
        next(old)


@pytest.mark.parametrize("expand", ["all", "new"])
def test_what_a_worker_with_a_device_writes(small, expand):
    """A worker with a device writes the CPU's batch: blocks come from the device, and features from host memory."""
    loader = loader_of(small, expand, device="cuda", num_workers=1)
    out = {}

    def allocate(specs):
        out.update({name: np.zeros(shape, dtype) for name, dtype, shape in specs})
        return out

    header = loader.task.make_batch(0, 2, allocate)
    expected = contents(list(loader_of(small, expand))[2])
    assert {name: array.tolist() for name, array in out.items()} == expected[1]
    made = header.filled(out)
    assert (made.num_seeds, made.batch, [block.num_src for block in made.blocks]) == (expected[0][0], expected[0][3], expected[0][6])


class OnlyOnTheCPU(Sampler):
    num_hops = 1

    def sample_on_cpu(self, graph, seeds, address, workspace):
        raise AssertionError


@pytest.mark.parametrize("cuda_graphs", [True, False])
def test_whether_bulks_are_captured(small, cuda_graphs):
    assert loader_of(small, device="cuda", cuda_graphs=cuda_graphs).task.workspace.cuda_graphs == cuda_graphs


@pytest.mark.parametrize("features", ["int8", "int4"])
def test_codes_of_features_are_gathered_and_become_the_same_numbers(small, features, monkeypatch):
    """Quantised node and edge features are gathered as codes and give the CPU's values, with and without a GPU cache."""
    if not is_simulated() and not torch.version.cuda:
        # On the interpreter torch's operators run on the CPU, so no stream delays them until the rows are gathered.
        monkeypatch.setattr(device_feed, "expanded_here", lambda rows: (cuda.synchronize(), transfer.expanded_here(rows))[1])
    rows = np.random.default_rng(2).random((small.graph.num_edges, 2))
    data = replace(small, x=quantize(small.x, features), edge_attr=quantize(rows, features))
    for options in ({}, {"gpu_cache": 0.3}):
        batches = list(loader_of(data, device="cuda", bulk=2, **options))
        for batch, expected in zip(batches, loader_of(data), strict=True):
            assert batch.x.shape == expected.x.shape
            np.testing.assert_array_equal(numbers(batch.x), np.asarray(expected.x))
            np.testing.assert_array_equal(numbers(batch.blocks[0].edge_attr), np.asarray(expected.blocks[0].edge_attr))


def numbers(rows):
    """Return rows as a NumPy array. In the simulator, quantised rows stay codes."""
    return np.asarray(rows) if isinstance(rows, QuantizedRows) else to_host(rows)


def cache_that_does_not_fit(small, monkeypatch):
    monkeypatch.setattr(gpu_cache, "free_memory", lambda: 200.0)
    next(iter(loader_of(small, device="cuda", gpu_cache=0.5)))


def cache_without_features(small):
    bare = Dataset(name="bare", graph=small.graph, y=small.y, splits=small.splits, num_classes=3)
    next(iter(loader_of(bare, device="cuda", gpu_cache=0.1)))


MISTAKES = {
    "batches in bulk on the CPU": Mistake(
        lambda small: loader_of(small, bulk=2), value="2", rule="bulk least 1", remedy='device="cuda" num_workers=0'
    ),
    "batches in bulk of a worker": Mistake(
        lambda small: loader_of(small, bulk=2, device="cuda", num_workers=1),
        value="2",
        rule="bulk least 1",
        remedy='device="cuda" num_workers=0',
    ),
    "a bulk of no batches": Mistake(
        lambda small: loader_of(small, bulk=0, device="cuda"), value="0", rule="bulk least 1", remedy='device="cuda" num_workers=0'
    ),
    "an unknown device": Mistake(
        lambda small: loader_of(small, device="tpu"), value="'tpu'", rule="device sampler", remedy='"cpu" "cuda" "cuda:1"'
    ),
    "capture on the CPU": Mistake(
        lambda small: loader_of(small, cuda_graphs=False), value="cuda_graphs=False", rule="CPU", remedy='device="cuda" leave out'
    ),
    "a GPU that is no number": Mistake(
        lambda small: loader_of(small, device="cuda:x"), value="'cuda:x'", rule="device sampler", remedy='"cpu" "cuda" "cuda:1"'
    ),
    "an unknown place for the graph": Mistake(
        lambda small: loader_of(small, graph_placement="disk", device="cuda"),
        value="'disk'",
        rule="graph_placement",
        remedy="auto, device, pinned",
    ),
    "a misspelt place for features": Mistake(
        lambda small: loader_of(small, feature_placement="pined", device="cuda"),
        value="'pined'",
        rule="feature_placement auto, device,",
        remedy="mean pinned?",
    ),
    "a place for the graph on the CPU": Mistake(
        lambda small: loader_of(small, graph_placement="pinned"),
        value="'pinned'",
        rule="graph_placement GPU samples",
        remedy='device="cuda" leave out',
    ),
    "a place for the features of a worker": Mistake(
        lambda small: loader_of(small, feature_placement="pinned", device="cuda", num_workers=1),
        value="'pinned'",
        rule="feature_placement GPU samples",
        remedy='device="cuda" num_workers=0 leave out',
    ),
    "a cache on the CPU": Mistake(
        lambda small: loader_of(small, gpu_cache=0.1),
        value="0.1",
        rule="gpu_cache GPU samples",
        remedy='device="cuda" num_workers=0 leave out',
    ),
    "a cache of a worker": Mistake(
        lambda small: loader_of(small, gpu_cache="1GiB", device="cuda", num_workers=1),
        value="1GiB",
        rule="gpu_cache GPU samples",
        remedy='device="cuda" num_workers=0 leave out',
    ),
    "a cache beside all features on the GPU": Mistake(
        lambda small: loader_of(small, gpu_cache=0.1, device="cuda", feature_placement="device"),
        value="0.1",
        rule="gpu_cache feature_placement='device' all rows",
        remedy="leave one out",
    ),
    "a cache of a number of rows": Mistake(
        lambda small: loader_of(small, gpu_cache=7, device="cuda"), value="7", rule="gpu_cache bytes share rows", remedy="2GiB 0.1"
    ),
    "a cache that does not fit": Mistake(cache_that_does_not_fit, value="0.5", rule="gpu_cache index GPU 0.00 GiB free", remedy="less"),
    "a cache without features": Mistake(
        cache_without_features, value="0.1", rule="gpu_cache one feature table all nodes", remedy="leave out"
    ),
    "a sampler without kernels for CUDA": Mistake(
        lambda small: next(iter(SampleLoader(small, OnlyOnTheCPU(), batch_size=3, device="cuda"))),
        value='device="cuda"',
        rule="OnlyOnTheCPU no kernels",
        remedy='device="cpu"',
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
