"""With ``device="cuda"``, the loaders of ``hoptrain.pyg`` make the batches of the CPU, on the GPU."""

import gc
import weakref

import pytest
import torch
from cases.mistakes import Mistake, each_of, refused
from cuda_case import needs_cuda, tested_blocks  # noqa: F401
from pyg_case import some_data, some_hetero_data
from torch_geometric.data import Data

import hoptrain.pyg
from hoptrain.engine.device import is_simulated
from hoptrain.pyg.on_device import get_bulk
from hoptrain.samplers import NeighborSampler
from hoptrain.samplers.loader.maker import DeviceOptions

pytestmark = [needs_cuda, pytest.mark.usefixtures("tested_blocks")]
DEVICE = "cpu" if is_simulated() else "cuda"


@pytest.fixture(scope="module")
def data():
    return some_data()


@pytest.fixture(scope="module")
def hetero():
    return some_hetero_data()


def contents(batch):
    """Return all contents of a batch, by type."""
    return {
        (str(store._key), name): value.cpu() if isinstance(value, torch.Tensor) else value
        for store in batch.stores
        for name, value in store.items()
        if value is not None
    }


def check_equal(found, expected):
    """Check that batches are bit-identical and that their tensors are on the device."""
    assert len(found) == len(expected) > 1
    for own, wanted in zip(found, expected, strict=True):
        assert {value.device.type for store in own.stores for value in store.values() if isinstance(value, torch.Tensor)} == {DEVICE}
        own, wanted = contents(own), contents(wanted)
        assert own.keys() == wanted.keys()
        for name, value in wanted.items():
            if isinstance(value, torch.Tensor):
                assert own[name].dtype == value.dtype, name
                assert torch.equal(own[name], value), name
            else:
                assert own[name] == value, name


def epochs(kind, data, fanouts, number, **options):
    """Return a loader and its batches of the first ``number`` epochs."""
    torch.manual_seed(3)
    loader = getattr(hoptrain.pyg, kind)(data, *fanouts, **options)
    return loader, [batch for _ in range(number) for batch in loader]


def check_front(kind, data, *fanouts, number=1, on_device=None, **options):
    """Check that a loader on the device makes the batches of a loader on the CPU, and return it."""
    _, expected = epochs(kind, data, fanouts, number, **options)
    loader, found = epochs(kind, data, fanouts, number, device="cuda", **{"bulk": 2, **(on_device or {})}, **options)
    check_equal(found, expected)
    return loader


HALF = torch.arange(0, 200, 19)
NODES = {"input_nodes": HALF, "batch_size": 5, "shuffle": True}
FRONTS = {
    "nodes": ("NeighborLoader", [3, 2], NODES),
    "with replacement": ("NeighborLoader", [3, 2], NODES | {"replace": True}),
    "by weight": ("NeighborLoader", [3, 2], NODES | {"weight_attr": "weight"}),
    "against the edges": ("NeighborLoader", [3, 2], NODES | {"neighbor_sampler": "backward"}),
    "trees": ("NeighborLoader", [3, 2], NODES | {"disjoint": True}),
    "in time": ("NeighborLoader", [3, 2], NODES | {"time_attr": "made", "input_time": HALF % 50, "temporal_strategy": "last"}),
    "at nodes' times": ("NeighborLoader", [3, 2], NODES | {"time_attr": "born"}),
    "links": ("LinkNeighborLoader", [3, 2], {"edge_label_index": torch.stack([HALF, HALF + 1]), "batch_size": 5, "neg_sampling": "binary"}),
    "triplets": ("LinkNeighborLoader", [3, 2], {"edge_label_index": torch.stack([HALF, HALF + 1]), "batch_size": 5, "neg_sampling": "triplet"}),
    "links in time": (
        "LinkNeighborLoader", [3],
        {"edge_label_index": torch.stack([HALF, HALF + 1]), "edge_label_time": HALF % 50, "batch_size": 5, "neg_sampling": "binary", "time_attr": "made"},
    ),
    "seeds twice": ("NeighborLoader", [3, 2], {"input_nodes": torch.tensor([1, 2, 1, 5, 6, 7, 8]), "batch_size": 4}),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "fanouts", "options"), FRONTS.values(), ids=FRONTS)
def test_batches_are_those_of_the_cpu(data, kind, fanouts, options):
    """All attributes of a batch equal those of the CPU: features, labels, masks, times, weights, ids, and the attributes that PyG adds."""
    if options.get("neighbor_sampler") == "backward":
        options = options | {"neighbor_sampler": hoptrain.pyg.NeighborSampler(data, fanouts, sample_direction="backward")}
    if "time_attr" in options or options.get("disjoint"):
        options = {**options, "disjoint": True}
    check_front(kind, data, fanouts, number=2 if options is NODES else 1, **options)


PAPERS = {"input_nodes": ("paper", torch.arange(0, 120, 13)), "batch_size": 4, "shuffle": True}
CITES = ("paper", torch.tensor([[0, 5, 9, 11, 20], [3, 8, 1, 4, 7]]))
HETERO = {
    "nodes": ("NeighborLoader", [2, 2], PAPERS),
    "by type": ("NeighborLoader", {("author", "writes", "paper"): [2, 1], ("paper", "of", "author"): [1, 2]}, PAPERS),
    "links of two types": (
        "LinkNeighborLoader", [2, 2],
        {"edge_label_index": (("author", "writes", "paper"), CITES[1]), "batch_size": 3, "neg_sampling": "binary"},
    ),
    "links of one type": (
        "LinkNeighborLoader", [2],
        {"edge_label_index": (("paper", "cites", "paper"), CITES[1]), "batch_size": 3, "neg_sampling": "triplet"},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "fanouts", "options"), HETERO.values(), ids=HETERO)
def test_batches_of_heterogeneous_graphs_are_those_of_the_cpu(hetero, kind, fanouts, options):
    if isinstance(fanouts, dict):
        fanouts = {relation: fanouts.get(relation, [0, 0]) for relation in hetero.edge_types}
    check_front(kind, hetero, fanouts, **options)


@pytest.mark.parametrize("sampler", ["Node", "RandomWalk"])
def test_saint_s_subgraphs_are_those_of_the_cpu(data, sampler):
    options = {"batch_size": 9, "num_steps": 2, "sample_coverage": 2, "log": False} | (
        {"walk_length": 2} if sampler == "RandomWalk" else {}
    )
    check_front(f"GraphSAINT{sampler}Sampler", data, **options)


@pytest.mark.parametrize("is_sorted", [False, True])
def test_shadow_s_subgraphs_are_those_of_the_cpu(data, is_sorted):
    if is_sorted:
        order = data.edge_index[1].argsort(stable=True)
        data = Data(x=data.x, y=data.y, edge_index=data.edge_index[:, order], edge_attr=data.edge_attr[order])
    check_front("ShaDowKHopSampler", data, 2, 3, node_idx=HALF, batch_size=5, shuffle=True)


def test_edges_that_are_sorted_have_the_same_numbers(data):
    """If edges are sorted by destination, PyG's edge ids are the CSC positions, so the loader looks up no ids."""
    order = data.edge_index[1].argsort(stable=True)
    by_destination = Data(x=data.x, y=data.y, edge_index=data.edge_index[:, order], edge_attr=data.edge_attr[order])
    loader = check_front("NeighborLoader", by_destination, [3, 2], is_sorted=True, **NODES)
    assert loader.hops.perm is None


def test_rows_lie_where_they_are_asked_for(data):
    placed = {"feature_placement": "pinned", "graph_placement": "device"}
    loader = check_front("NeighborLoader", data, [2], on_device=placed, **NODES)
    assert {rows.placement for rows in loader._feed._maker._feed._rows.values()} == {"pinned"}
    assert {rows.placement for _, rows in loader._attributes._rows} == {"pinned"}


def test_a_cache_of_rows_changes_no_bit_and_says_what_it_brings(data):
    loader = check_front("NeighborLoader", data, [3, 2], number=2, on_device={"gpu_cache": 0.3}, **NODES)
    assert 0.3 < loader.hit_rates.expected < 1
    assert set(loader.hit_rates.had) == {0, 1}


def test_what_is_written_between_epochs_shows_in_the_next_one(data):
    changed = data.clone()
    loader = hoptrain.pyg.NeighborLoader(changed, [2], device="cuda", bulk=2, **NODES)
    list(loader)
    changed.x += 1
    changed.y += 1
    for batch in loader:
        assert torch.equal(batch.x.cpu(), changed.x[batch.n_id.cpu()])
        assert torch.equal(batch.y.cpu(), changed.y[batch.n_id.cpu()])


def test_a_transform_gets_batches_on_the_device(data):
    devices = []
    loader = hoptrain.pyg.NeighborLoader(
        data, [2], device="cuda", transform=lambda batch: devices.append(batch.x.device.type) or batch, **NODES
    )
    assert len(list(loader)) == len(devices) > 1
    assert set(devices) == {DEVICE}


class Stops(Exception):
    """An exception raised by the training loop."""


@pytest.mark.parametrize("end", ["break", "exception"])
def test_a_loop_that_ends_early_leaves_nothing_behind(data, end):
    """After an interrupted epoch, the next epoch equals that of the CPU, and deleting the loader frees its GPU memory."""

    def run(device):
        torch.manual_seed(3)
        loader = hoptrain.pyg.NeighborLoader(data, [3, 2], device=device, **({"bulk": 2} if device else {}), **NODES)
        try:
            for step, _ in enumerate(loader):
                if step == 1 and end == "exception":
                    raise Stops
                if step == 1:
                    break
        except Stops:
            pass
        return loader, list(loader)

    _, expected = run(None)
    loader, found = run("cuda")
    check_equal(found, expected)
    feed = weakref.ref(loader._feed._maker._feed)
    loader.close()
    del loader
    gc.collect()
    assert feed() is None


def test_a_second_iterator_ends_the_first(data):
    loader = hoptrain.pyg.NeighborLoader(data, [2], device="cuda", bulk=2, **NODES)
    old = iter(loader)
    next(old)
    next(iter(loader))
    with refused("batch 1", "iterator loader iterated again one epoch", "make another loader"):
        next(old)


def learning(data):
    """Return a copy of data whose features require gradients."""
    given = data.clone()
    given.x.requires_grad_()
    return given


def loader_of(given, kind="NeighborLoader", fanouts=(2,), **options):
    getattr(hoptrain.pyg, kind)(given, *([list(fanouts)] if fanouts else []), device="cuda", **options)


MISTAKES = {
    "workers": Mistake(lambda data: loader_of(data, num_workers=2), "2", 'num_workers device="cuda" GPU samples process', "leave out"),
    "a sampler without kernels": Mistake(
        lambda data: loader_of(data, subgraph_type="induced"), 'device="cuda"', "InducedSampler no kernels CUDA", 'device="cpu"'
    ),
    "a heterogeneous sampler without kernels": Mistake(
        lambda hetero: loader_of(hetero, disjoint=True, input_nodes="paper"), 'device="cuda"', "HeteroTemporalSampler no kernels CUDA", 'device="cpu"'
    ),
    "a sampler's device": Mistake(
        lambda data: hoptrain.pyg.NeighborSampler(data, [2], device="cuda"), "device is 'cuda'", "loader decides sampler", "give NeighborLoader device="
    ),
    "HGT": Mistake(
        lambda hetero: loader_of(hetero, "HGTLoader", input_nodes="paper"), 'device="cuda"', "HGTSampler no kernels CUDA", 'device="cpu"'
    ),
    "GraphSAINT's edges": Mistake(
        lambda data: loader_of(data, "GraphSAINTEdgeSampler", None, batch_size=5), 'device="cuda"', "BySumOfDegrees no kernels CUDA", 'device="cpu"'
    ),
    "both ways": Mistake(lambda data: loader_of(data, subgraph_type="bidirectional"), "bidirectional", "samples on host", "leave out"),
    "an output's transform": Mistake(
        lambda data: loader_of(data, transform_sampler_output=lambda out: out), "transform_sampler_output", "samples on host", "leave out"
    ),
    "a bulk on the CPU": Mistake(
        lambda data: hoptrain.pyg.NeighborLoader(data, [2], bulk=2), "2", "bulk least 1", 'device="cuda"'
    ),
    "features that learn": Mistake(
        lambda data: list(hoptrain.pyg.NeighborLoader(learning(data), [2], device="cuda", **NODES)), "torch.float32",
        'x tensor device="cuda" GPU gathers rows need no gradient', "convert leave device out",
    ),
    "an unknown place": Mistake(lambda data: loader_of(data, feature_placement="disk"), "'disk'", "feature_placement", "pinned"),
    "an unknown device": Mistake(
        lambda data: hoptrain.pyg.NeighborLoader(data, [2], device="tpu"), "'tpu'", "device sampler", '"cpu" "cuda"'
    ),
}  # fmt: skip


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)


@pytest.mark.parametrize(
    ("options", "batch_size", "bulk"),
    [(DeviceOptions(), 256, 32), (DeviceOptions(), None, 8), (DeviceOptions(bulk=3), 256, 3)],
    ids=["by its seeds", "batches of unknown sizes", "as asked"],
)
def test_how_many_batches_are_sampled_at_once(options, batch_size, bulk):
    assert get_bulk(options, batch_size, 1000, NeighborSampler([2])) == bulk
