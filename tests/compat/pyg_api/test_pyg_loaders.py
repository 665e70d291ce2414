"""The loaders of ``hoptrain.pyg`` equal PyG's with a reference sampler: attributes, meaning of ids, and edges where nothing is random."""

import copy
import gc
from itertools import chain, islice

import pyg_reference
import pytest
import torch
from cases.mistakes import refused
from conftest import child_processes
from pyg_case import check_induced, check_meaning, edge_stores, form, node_stores, some_data, some_hetero_data
from torch_geometric.data import HeteroData
from torch_geometric.nn import GraphSAGE
from torch_geometric.sampler import NegativeSampling, NodeSamplerInput, NumNeighbors
from torch_geometric.utils import trim_to_layer

import hoptrain.pyg
from hoptrain.pyg import graphs
from hoptrain.samplers.loader.external_seed_loader import ExternalSeedLoader

WRITES = ("author", "writes", "paper")
BY_TYPE = {
    ("paper", "cites", "paper"): [3, 2],
    WRITES: [-1, 1],
    ("paper", "of", "author"): [0, 4],
    ("paper", "in", "venue"): [2, 2],
}
DATA = {"plain": some_data, "hetero": some_hetero_data}


@pytest.fixture
def data(request):
    """Return a homogeneous graph, or the one that a test names."""
    return DATA[getattr(request, "param", "plain")]()


each_graph = pytest.mark.parametrize("data", DATA, indirect=True)


def with_each(options):
    """Return a decorator that runs a test with each of the options of each graph."""
    cases = [pytest.param(graph, given, id=f"{graph}: {name}") for graph, own in options.items() for name, given in own.items()]
    return pytest.mark.parametrize(("data", "options"), cases, indirect=["data"])


NODES = {
    "plain": {
        "plain": {},
        "as a list of ids": {"input_nodes": torch.arange(3, 190, 3)},
        "all": {"num_neighbors": [-1, -1]},
        "one hop": {"num_neighbors": [2]},
        "as NumNeighbors": {"num_neighbors": NumNeighbors([3, 2])},
        "with replacement": {"replace": True},
        "bidirectional": {"subgraph_type": "bidirectional", "num_neighbors": [-1, -1]},
        "disjoint": {"disjoint": True},
        "disjoint, all": {"disjoint": True, "num_neighbors": [-1, -1]},
        "times of nodes": {"time_attr": "born"},
        "times of nodes, all": {"time_attr": "born", "num_neighbors": [-1, -1]},
        "given times": {
            "time_attr": "made",
            "input_nodes": torch.arange(100),
            "input_time": torch.arange(100) % 37,
            "num_neighbors": [-1, -1],
        },
        "the last": {
            "time_attr": "made",
            "input_nodes": torch.arange(100),
            "input_time": torch.full((100,), 30),
            "temporal_strategy": "last",
        },
        "seeds twice": {"input_nodes": torch.tensor([5, 9, 5, 7, 9, 5, 8]), "num_neighbors": [-1, -1]},
    },
    "hetero": {
        "plain": {},
        "ids": {"input_nodes": ("author", torch.arange(3, 80, 3))},
        "all of a type": {"input_nodes": "venue"},
        "all": {"num_neighbors": [-1, -1]},
        "by type": {"num_neighbors": BY_TYPE},
        "by type, with a default": {"num_neighbors": NumNeighbors({WRITES: [2, 2]}, default=[1, 0])},
        "with replacement": {"replace": True},
        "bidirectional": {"subgraph_type": "bidirectional", "num_neighbors": [-1, -1]},
        "disjoint": {"disjoint": True, "num_neighbors": [-1, -1]},
        "times of nodes": {"time_attr": "born"},
        "times of nodes, all": {"time_attr": "born", "num_neighbors": [-1, -1]},
        "times of edges, all": {
            "time_attr": "made",
            "input_nodes": ("paper", torch.arange(90)),
            "input_time": torch.arange(90) % 37,
            "num_neighbors": [-1, -1],
        },
        "the last": {
            "time_attr": "made",
            "input_nodes": ("paper", torch.arange(90)),
            "input_time": torch.full((90,), 30),
            "temporal_strategy": "last",
        },
        "seeds twice": {"input_nodes": ("paper", torch.tensor([5, 9, 5, 7, 9, 5, 8])), "num_neighbors": [-1, -1]},
    },
}
LINKS = {
    "plain": {
        "plain": {},
        "labels": {"edge_label": torch.arange(1200) % 3},
        "binary": {"neg_sampling_ratio": 1.5, "num_neighbors": [-1, -1]},
        "binary with labels": {"neg_sampling": "binary", "edge_label": torch.arange(1200) % 3},
        "triplet": {"neg_sampling": NegativeSampling("triplet", 2)},
        "weighted": {"neg_sampling": NegativeSampling("binary", 1, src_weight=torch.arange(200.0), dst_weight=torch.ones(200))},
        "disjoint": {"disjoint": True, "neg_sampling": "triplet"},
        "at times": {"time_attr": "made", "edge_label_time": torch.arange(1200) % 50, "neg_sampling": "binary", "num_neighbors": [-1, -1]},
        "some": {"edge_label_index": torch.arange(600).view(2, 300) % 190},
    },
    "hetero": {
        "plain": {"edge_label_index": WRITES},
        "within a type": {"edge_label_index": ("paper", "cites", "paper"), "num_neighbors": [-1, -1]},
        "binary": {"edge_label_index": WRITES, "neg_sampling_ratio": 1.5, "num_neighbors": [-1, -1]},
        "triplet": {"edge_label_index": (WRITES, None), "neg_sampling": "triplet"},
        "disjoint": {"edge_label_index": WRITES, "disjoint": True, "neg_sampling": "triplet"},
        "at times": {
            "edge_label_index": WRITES,
            "time_attr": "made",
            "edge_label_time": torch.arange(400) % 50,
            "neg_sampling": "binary",
            "num_neighbors": [-1, -1],
        },
        "given": {"edge_label_index": (WRITES, torch.arange(60).view(2, 30))},
        "by its two types": {"edge_label_index": ("author", "paper")},
    },
}


def loaders(kind, data, num_neighbors=(4, 3), **options):
    """Return hoptrain's loader and PyG's with the same options."""
    if kind == "Neighbor":
        options.setdefault("input_nodes", ("paper", data["paper"].train_mask) if isinstance(data, HeteroData) else data.train_mask)
    ours, theirs = (getattr(module, f"{kind}Loader") for module in (hoptrain.pyg, pyg_reference))
    num_neighbors = list(num_neighbors) if isinstance(num_neighbors, tuple) else num_neighbors
    return ours(data, num_neighbors, **options), theirs(data, num_neighbors, **options)


def same(one, other):
    """Return whether both are None or equal tensors."""
    return one is other if one is None or other is None else torch.equal(one, other)


def edges_of(batch, relation, options):
    """Return the multiset of edges, each with its id and the nodes that it joins, and with their trees if the batch is disjoint."""
    store, stores = edge_stores(batch)[relation], node_stores(batch)
    who = {kind: own.n_id if own.get("batch") is None else own.batch * 1000 + own.n_id for kind, own in stores.items()}
    ends = [who[kind][own] for kind, own in zip((relation[0], relation[2]), store.edge_index, strict=True)]
    # When PyG adds reverse edges, it keeps an arbitrary one of parallel edges.
    numbers = torch.zeros_like(ends[0]) if options.get("subgraph_type") == "bidirectional" else store.e_id
    return sorted(map(tuple, torch.stack([*ends, numbers]).T.tolist()))


def check_alike(mine, wanted, data):
    """Check that a batch of hoptrain has the attributes of a batch of PyG, with PyG's meaning."""
    assert form(mine) == form(wanted)
    check_meaning(mine, data)
    assert mine.name == "graph"
    for store in edge_stores(mine).values():
        assert sum(store.get("num_sampled_edges") or [store.num_edges]) == store.num_edges
    for store in node_stores(mine).values():
        assert sum(store.get("num_sampled_nodes") or [store.num_nodes]) == store.num_nodes


def check_edges(mine, wanted, options):
    """Check that a batch of hoptrain has the edges of a batch of PyG with the same seeds; of random edges, their number around the seeds."""
    is_exact = options.get("num_neighbors") == [-1, -1] or options.get("temporal_strategy") == "last"
    for relation, store in edge_stores(mine).items():
        num_edges, expected = (own.get("num_sampled_edges") or [None] for own in (store, edge_stores(wanted)[relation]))
        assert num_edges[0] == expected[0]
        if is_exact:
            assert edges_of(mine, relation, options) == edges_of(wanted, relation, options)
            assert num_edges == expected
    for kind, store in node_stores(mine).items() if is_exact else ():
        assert store.get("num_sampled_nodes") == node_stores(wanted)[kind].get("num_sampled_nodes")


@pytest.mark.filterwarnings("ignore:Cannot convert to bidirectional graph:UserWarning")
@with_each(NODES)
def test_batches_of_nodes(data, options):
    ours, theirs = loaders("Neighbor", data, batch_size=20, **options)
    assert len(ours) == len(theirs)
    for mine, wanted in zip(ours, theirs, strict=True):
        check_alike(mine, wanted, data)
        check_edges(mine, wanted, options)
        one, other = (node_stores(batch)[ours.input_data.input_type] for batch in (mine, wanted))
        assert one.batch_size == other.batch_size
        assert torch.equal(one.n_id[: one.batch_size], other.n_id[: other.batch_size])
        assert torch.equal(one.input_id, other.input_id)
        assert same(one.get("seed_time"), other.get("seed_time"))


@with_each(LINKS)
def test_batches_of_links(data, options):
    ours, theirs = loaders("LinkNeighbor", data, batch_size=200, **options)
    relation = ours.input_data.input_type or (None, None, None)
    for mine, wanted in zip(ours, theirs, strict=True):
        check_alike(mine, wanted, data)
        if not {"neg_sampling_ratio", "neg_sampling"} & options.keys():  # negatives differ, since the states of torch's generator do
            check_edges(mine, wanted, options)
        (links, sources, destinations), (other, *ends) = (
            [edge_stores(batch)[relation], *(node_stores(batch)[kind] for kind in (relation[0], relation[2]))] for batch in (mine, wanted)
        )
        assert torch.equal(links.input_id, other.input_id)
        if "edge_label_index" in links:
            assert links.edge_label_index.shape == other.edge_label_index.shape
            assert same(links.get("edge_label"), other.get("edge_label"))
            for end, (own, theirs_of_end) in enumerate(zip((sources, destinations), ends, strict=True)):
                first = slice(len(links.input_id))  # negatives follow
                assert torch.equal(own.n_id[links.edge_label_index[end, first]], theirs_of_end.n_id[other.edge_label_index[end, first]])
        else:
            assert torch.equal(sources.n_id[sources.src_index], ends[0].n_id[ends[0].src_index])
            assert torch.equal(destinations.n_id[destinations.dst_pos_index], ends[1].n_id[ends[1].dst_pos_index])
            assert destinations.dst_neg_index.shape == ends[1].dst_neg_index.shape


@pytest.mark.parametrize(
    ("data", "num_workers", "direction"),
    [("plain", 0, "forward"), *(("hetero", number, direction) for number in (0, 1) for direction in ("forward", "backward"))],
    indirect=["data"],
)
def test_induced_subgraphs(data, monkeypatch, num_workers, direction):
    hops = hoptrain.pyg.NeighborSampler(data, [3, 2], "induced", sample_direction=direction)
    options = {"subgraph_type": "induced"} if direction == "forward" else {"neighbor_sampler": hops}
    kind = "paper" if isinstance(data, HeteroData) else None
    loader = hoptrain.pyg.NeighborLoader(data, [3, 2], (kind, None) if kind else None, batch_size=30, num_workers=num_workers, **options)
    for number, batch in enumerate(loader):
        check_induced(batch, data)
        seeds = node_stores(batch)[kind]
        assert seeds.n_id[: seeds.batch_size].tolist() == list(range(30 * number, 30 * number + seeds.batch_size))
        assert kind is None or 0 < batch["author"].num_nodes < 80
    assert number + 1 == len(loader)
    with monkeypatch.context() as patch:
        patch.setattr(ExternalSeedLoader, "close", lambda feed: pytest.fail("workers stay from epoch to epoch"))
        assert len(list(loader)) == number + 1
    loader.close()


@each_graph
def test_a_seed_that_stands_there_twice_has_its_edges_twice(data):
    seeds, is_hetero = torch.tensor([5, 9, 5]), isinstance(data, HeteroData)
    ours, _ = loaders("Neighbor", data, batch_size=3, input_nodes=("paper", seeds) if is_hetero else seeds, num_neighbors=(3,))
    batch, kind, relation = next(iter(ours)), *(("paper", WRITES) if is_hetero else (None, (None, None, None)))
    store = edge_stores(batch)[relation]
    first, again = (store.e_id[store.edge_index[1] == place] for place in (0, 2))
    assert node_stores(batch)[kind].n_id[:3].tolist() == seeds.tolist()
    assert torch.equal(first, again)
    assert len(first) == min(3, int((edge_stores(data)[relation].edge_index[1] == 5).sum())) > 0


SPREAD = {
    "nodes": ("plain", hoptrain.pyg.NeighborLoader, {"replace": True}),
    "induced": ("plain", hoptrain.pyg.NeighborLoader, {"subgraph_type": "induced"}),
    "links": ("plain", hoptrain.pyg.LinkNeighborLoader, {"neg_sampling": "binary"}),
    "times": (
        "plain",
        hoptrain.pyg.LinkNeighborLoader,
        {"neg_sampling": "triplet", "time_attr": "made", "edge_label_time": torch.arange(1200) % 50},
    ),
    "hetero nodes": ("hetero", hoptrain.pyg.NeighborLoader, {"input_nodes": "author"}),
    "hetero links": ("hetero", hoptrain.pyg.LinkNeighborLoader, {"edge_label_index": WRITES, "neg_sampling": "binary"}),
}


@pytest.mark.parametrize(
    ("data", "kind", "options"),
    [pytest.param(*case, id=name, marks=[pytest.mark.promise] if case[0] == "plain" else []) for name, case in SPREAD.items()],
    indirect=["data"],
)
def test_workers_change_nothing(data, kind, options):
    def epochs(num_workers):
        torch.manual_seed(7)
        loader = kind(data, [3, 3], batch_size=150, shuffle=True, num_workers=num_workers, **options)
        found = [[tensors_of(batch.clone()) for batch in loader] for _ in range(2)]
        loader.close()
        return found

    def tensors_of(batch):
        items = ((str(store._key), name, value) for store in batch.stores for name, value in store.items())
        return {(key, name): value for key, name, value in items if isinstance(value, torch.Tensor)}

    here, there = epochs(0), epochs(2)
    for one, other in zip(chain(*here), chain(*there), strict=True):
        assert all(same(value, other[name]) for name, value in one.items())
    assert not all(same(value, here[1][0][name]) for name, value in here[0][0].items() if name[1] == "n_id")


@pytest.mark.parametrize(("data", "num_workers"), [("plain", 0), ("plain", 1), ("hetero", 1)], indirect=["data"])
def test_features_that_are_changed_are_seen_in_the_next_epoch(data, num_workers):
    seeds = "paper" if isinstance(data, HeteroData) else None
    loader = hoptrain.pyg.NeighborLoader(data, [2], seeds, batch_size=60, num_workers=num_workers)
    featured = [store for store in node_stores(data).values() if "x" in store]
    for change in ("none", "in place", "another"):
        if change == "in place":
            featured[0].x += 1
        elif change == "another":
            featured[-1].x = torch.rand(len(featured[-1].x), 9)
        for batch in loader:
            check_meaning(batch, data)
    loader.close()
    for store in edge_stores(data).values():
        store.edge_index = store.edge_index.flip(1).contiguous()
    check_meaning(next(iter(hoptrain.pyg.NeighborLoader(data, [2], seeds, batch_size=60))), data)


def test_a_loader_keeps_the_edges_that_it_was_made_of(data):
    """A loader keeps using the edges that the data had when it was constructed, as in PyG; a new loader uses the new edges."""
    before = data.edge_index
    loader = hoptrain.pyg.NeighborLoader(data, [2], batch_size=100)
    data.edge_index = before.flip(0)
    for kept, edges in ((loader, before), (hoptrain.pyg.NeighborLoader(data, [2], batch_size=100), data.edge_index)):
        for batch in kept:
            assert torch.equal(batch.n_id[batch.edge_index], edges[:, batch.e_id])


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_iterator_ends_with_the_next_one(data, num_workers):
    loader = hoptrain.pyg.NeighborLoader(data, [2], batch_size=50, num_workers=num_workers)
    first = iter(loader)
    next(first)
    assert len(list(loader)) == 4
    with refused("batch 1", "iterator iterated again one epoch", "another loader"):
        next(first)
    loader.close()


def test_a_copy_of_a_loader_has_workers_of_its_own(data):
    loader, before = hoptrain.pyg.NeighborLoader(data, [2], batch_size=100, num_workers=1), child_processes()
    list(loader)
    other = copy.deepcopy(loader)  # both continue with the second epoch
    epochs = []
    for one in (loader, other):
        torch.manual_seed(3)
        epochs.append([batch.n_id.tolist() for batch in one])
    assert epochs[0] == epochs[1]
    assert len(child_processes() - before) == 2
    loader.close()
    other.close()


@each_graph
def test_weighted_edges_are_drawn_by_weight(data):
    is_hetero = isinstance(data, HeteroData)
    relation = WRITES if is_hetero else (None, None, None)
    store = edge_stores(data)[relation]
    store.weight = torch.where(torch.arange(store.num_edges) % 2 == 0, 0.0, store.weight)
    loader = hoptrain.pyg.NeighborLoader(data, [5], "paper" if is_hetero else None, batch_size=50, weight_attr="weight")
    edges = torch.cat([edge_stores(batch)[relation].e_id for batch in loader])
    assert len(edges) > store.num_edges // 4
    assert (edges % 2 == 1).all()


@pytest.mark.parametrize(
    ("data", "fanouts", "seeds", "relation"),
    [("plain", [-1], None, (None, None, None)), ("hetero", BY_TYPE | {WRITES: [-1, 0]}, "author", WRITES)],
    ids=DATA,
    indirect=["data"],
)
def test_nodes_are_drawn_backward(data, fanouts, seeds, relation):
    hops = hoptrain.pyg.NeighborSampler(data, fanouts, sample_direction="backward")
    batch = next(iter(hoptrain.pyg.NeighborLoader(data, [-1], seeds, batch_size=20, neighbor_sampler=hops)))
    check_meaning(batch, data)
    found, whole = (edge_stores(each)[relation] for each in (batch, data))
    assert torch.equal(found.e_id.sort().values, (whole.edge_index[0] < 20).nonzero().flatten())


def test_models_of_pyg_trim_and_infer(data):
    batch = next(iter(hoptrain.pyg.NeighborLoader(data, [3, 3], batch_size=10)))
    x, edge_index, _ = trim_to_layer(1, batch.num_sampled_nodes, batch.num_sampled_edges, batch.x, batch.edge_index)
    assert len(x) == sum(batch.num_sampled_nodes[:-1])
    assert edge_index.shape[1] == batch.num_sampled_edges[0]
    model = GraphSAGE(7, 8, 2, 4).eval()
    loader = hoptrain.pyg.NeighborLoader(data, [-1], batch_size=64)
    with torch.no_grad():
        torch.testing.assert_close(model.inference(loader), model(data.x, data.edge_index))


def test_transforms_run_here_on_whole_batches(data):
    seen = []
    loader = hoptrain.pyg.NeighborLoader(data, [2], batch_size=200, transform=lambda batch: (seen.append(batch.x.shape), batch)[1])
    (batch,) = loader
    assert seen == [batch.x.shape]
    loader = hoptrain.pyg.NeighborLoader(data, [2], batch_size=200, transform_sampler_output=lambda out: (seen.append(out), out)[1])
    (batch,) = loader
    check_meaning(batch, data)
    assert torch.equal(seen[1].node, batch.n_id)


def test_samplers_of_torch_and_pyg_yield_the_seeds(data):
    imbalanced = hoptrain.pyg.ImbalancedSampler(data.y, num_samples=60)
    batches = list(hoptrain.pyg.NeighborLoader(data, [2], batch_size=20, sampler=imbalanced))
    assert [batch.batch_size for batch in batches] == [20, 20, 20]
    for batch in batches:
        check_meaning(batch, data)
    given = [[5, 6], [7], [8, 9, 10]]
    assert [batch.input_id.tolist() for batch in hoptrain.pyg.NeighborLoader(data, [2], batch_sampler=given)] == given


def endless(lengths):
    """Yield random batches without end, drawn with torch's generator."""
    while True:
        lengths.append(1 + int(torch.randint(9, ())))
        yield torch.randperm(200)[: lengths[-1]].tolist()


def test_an_epoch_may_have_no_end(data):
    def first(num_workers, trained=0):
        torch.manual_seed(6)
        lengths = []
        loader = hoptrain.pyg.NeighborLoader(data, [3], batch_sampler=endless(lengths), num_workers=num_workers)
        found = []
        for batch in islice(loader, 20):
            torch.rand(trained)
            found.append((batch.input_id.tolist(), batch.e_id.tolist()))
        assert lengths[: len(found)] == [len(ids) for ids, _ in found]
        assert len(lengths) == len(found) + max(0, 3 * num_workers - 1), "asked for no more steps ahead than slots"
        state = torch.get_rng_state()
        loader.close()
        return found, state

    here, state = first(0)
    spread = first(1), first(2)
    assert all(found == here for found, _ in (*spread, first(0, trained=5)))
    assert all(torch.equal(state, after) for _, after in spread), "the training draws what it draws without"


def test_a_sampler_may_learn_from_the_training(data):
    """Without workers, a loader draws the indices of a batch only after the training has used the previous batch."""
    used = []

    def adapting():
        for step in range(6):
            assert len(used) == step
            yield [step, sum(used) % 200]

    batches = hoptrain.pyg.NeighborLoader(data, [2], batch_sampler=adapting())
    used.extend(int(batch.e_id.sum()) + 10 for batch in batches)
    assert len(used) == 6


@pytest.mark.parametrize(
    ("data", "seeds"),
    [("plain", torch.zeros(200, dtype=torch.bool)), ("plain", torch.tensor([])), ("hetero", ("paper", torch.tensor([])))],
    ids=["mask", "ids", "ids of a type"],
    indirect=["data"],
)
def test_no_seeds_are_no_batches(data, seeds):
    """Empty seeds yield no batches, although ``torch.tensor([])`` has a float dtype."""
    assert list(hoptrain.pyg.NeighborLoader(data, [2], input_nodes=seeds)) == []


def test_loaders_draw_apart_and_repeat_by_the_seed(data):
    def drawn():
        torch.manual_seed(5)
        loaders = [hoptrain.pyg.NeighborLoader(data, [2], batch_size=200) for _ in range(2)]
        return [next(iter(loader)).e_id for loader in (*loaders, loaders[0])]

    first, again = drawn(), drawn()
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[0], first[2])


def test_gradients_flow_into_features(data):
    data.x.requires_grad_()
    batch = next(iter(hoptrain.pyg.NeighborLoader(data, [2], batch_size=20)))
    batch.x.sum().backward()
    assert torch.equal(data.x.grad.sum(1).nonzero().flatten(), batch.n_id.sort().values)


def test_features_in_any_layout(data):
    data.x = torch.rand(7, 200).T
    check_meaning(next(iter(hoptrain.pyg.NeighborLoader(data, [2], batch_size=20))), data)


def test_of_a_graph_the_last_conversion_is_kept(data):
    for _ in range(3):
        data.weight = torch.rand(1200)
        hoptrain.pyg.NeighborLoader(data, [2], weight_attr="weight")
        hoptrain.pyg.NeighborLoader(data, [2])
    kept = graphs._KEPT[data.edge_index]
    assert len(kept) == 2
    graph = graphs.convert(data).graph
    assert graphs.convert(data).graph is graph
    data.x, data.y, data.train_mask, data.born = torch.rand(250, 7), None, None, None
    assert graphs.convert(data).graph.num_nodes == 250


def test_workers_end_with_their_loader(data):
    loader, before = hoptrain.pyg.NeighborLoader(data, [2], batch_size=20, num_workers=1), child_processes()
    next(iter(loader))
    workers = child_processes() - before
    assert workers
    gc.disable()
    try:
        del loader
        assert not workers & child_processes()
    finally:
        gc.enable()


TIMED = {"born": "nodes", "made": "edges"}


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("time_attr", TIMED)
@each_graph
def test_nothing_is_later_than_its_seed(data, time_attr, direction):
    """No node or edge is later than its seed, in either direction; PyG does not support times in the backward direction."""
    seeds, seed_time = torch.arange(0, 80, 3), torch.arange(27)
    is_hetero = isinstance(data, HeteroData)
    sampler = hoptrain.pyg.NeighborSampler(data, [-1, -1], time_attr=time_attr, sample_direction=direction)
    found = sampler.sample_from_nodes(NodeSamplerInput(None, seeds, seed_time, "paper" if is_hetero else None))
    many = found.node if is_hetero else {None: found.node}
    for kind, nodes in many.items() if TIMED[time_attr] == "nodes" else ():
        trees = found.batch[kind] if is_hetero else found.batch
        times = (data[kind] if is_hetero else data)[time_attr]
        is_seed = torch.arange(len(nodes)) < (len(seeds) if kind in ("paper", None) else 0)
        assert (is_seed | (times[nodes] <= seed_time[trees])).all(), kind
    for relation, edges in (found.edge if is_hetero else {None: found.edge}).items() if TIMED[time_attr] == "edges" else ():
        trees = (found.batch[relation[2]] if is_hetero else found.batch)[found.col[relation] if is_hetero else found.col]
        numbers = sampler.perm[relation] if is_hetero else sampler.perm
        assert ((data[relation] if is_hetero else data)[time_attr][numbers[edges]] <= seed_time[trees]).all(), relation
    assert sum(map(len, many.values())) > 2 * len(seeds)


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("time_attr", TIMED)
@each_graph
def test_nothing_is_later_than_the_link_of_its_tree(data, time_attr, direction):
    times = torch.arange(30)
    is_hetero = isinstance(data, HeteroData)
    links = (data[WRITES] if is_hetero else data).edge_index[:, :30]
    loader = hoptrain.pyg.LinkNeighborLoader(
        data,
        [-1, -1],
        edge_label_index=(WRITES, links) if is_hetero else links,
        edge_label_time=times,
        batch_size=30,
        time_attr=time_attr,
        neighbor_sampler=hoptrain.pyg.NeighborSampler(data, [-1, -1], time_attr=time_attr, sample_direction=direction),
    )
    (batch,) = loader
    for kind, store in zip(batch.node_types if is_hetero else [None], batch.node_stores, strict=True):
        if TIMED[time_attr] == "nodes":
            is_end = torch.isin(store.n_id, links[0] if kind == "author" else links[1] if kind == "paper" else links)
            assert (is_end | (store[time_attr] <= times[store.batch % 30])).all(), kind
    for relation, store in zip(batch.edge_types if is_hetero else [None], batch.edge_stores, strict=True):
        if TIMED[time_attr] == "edges":
            trees = (batch[relation[2]] if is_hetero else batch).batch[store.edge_index[1]]
            assert (store[time_attr] <= times[trees % 30]).all(), relation
    assert sum(store.edge_index.shape[1] for store in batch.edge_stores) > 30


@pytest.mark.parametrize("given_as", [torch.Tensor.numpy, torch.Tensor.tolist])
@each_graph
def test_links_may_be_an_array_or_lists(data, given_as):
    links, relation = torch.tensor([[1, 2, 3], [4, 5, 6]]), WRITES if isinstance(data, HeteroData) else None
    batches = []
    for own in (links, given_as(links)):
        loader = hoptrain.pyg.LinkNeighborLoader(data, [-1], (relation, own) if relation else own, batch_size=3)
        batches.append(edge_stores(next(iter(loader)))[relation or (None, None, None)])
    assert torch.equal(*(batch.edge_label_index for batch in batches))
    assert torch.equal(*(batch.edge_index for batch in batches))
