"""On heterogeneous graphs, the loaders of ``hoptrain.pyg`` equal PyG's with a reference sampler: attributes and meaning of ids."""

from itertools import chain

import pyg_reference
import pytest
import torch
import torch_geometric.data
from cases.mistakes import refused
from pyg_case import some_data, some_hetero_data
from torch_geometric.nn import GraphSAGE, HeteroConv, SAGEConv, to_hetero
from torch_geometric.sampler import NodeSamplerInput, NumNeighbors
from torch_geometric.utils import trim_to_layer

import hoptrain.pyg
from hoptrain.samplers.loader.external_seed_loader import ExternalSeedLoader

WRITES = ("author", "writes", "paper")
BY_TYPE = {
    ("paper", "cites", "paper"): [3, 2],
    WRITES: [-1, 1],
    ("paper", "of", "author"): [0, 4],
    ("paper", "in", "venue"): [2, 2],
}


@pytest.fixture
def data():
    return some_hetero_data()


NODES = {
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
}
LINKS = {
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
}


def loaders(kind, data, num_neighbors=(4, 3), **options):
    """Return a loader of hoptrain and the equivalent one of PyG."""
    if kind == "Neighbor":
        options.setdefault("input_nodes", ("paper", data["paper"].train_mask))
    ours, theirs = (getattr(module, f"{kind}Loader") for module in (hoptrain.pyg, pyg_reference))
    num_neighbors = list(num_neighbors) if isinstance(num_neighbors, tuple) else num_neighbors
    return ours(data, num_neighbors, **options), theirs(data, num_neighbors, **options)


def check_meaning(batch, data):
    """Check that all ids of a batch have PyG's meaning."""
    for kind in data.node_types:
        for name in ("x", "y", "born"):
            assert (name in batch[kind]) == (name in data[kind])
            if name in data[kind]:
                assert torch.equal(batch[kind][name], data[kind][name][batch[kind].n_id])
        assert ("num_nodes" in batch[kind]) == ("num_nodes" in data[kind])
        assert batch[kind].num_nodes == len(batch[kind].n_id)
    for relation in data.edge_types:
        store, whole, (source, _, destination) = batch[relation], data[relation], relation
        if "e_id" not in store:
            continue  # PyG omits the ids if it adds the reversed edges of another relation
        assert torch.equal(store.edge_attr, whole.edge_attr[store.e_id])
        ends = torch.stack([batch[source].n_id[store.edge_index[0]], batch[destination].n_id[store.edge_index[1]]])
        wanted = whole.edge_index[:, store.e_id]
        assert ((ends == wanted) | (ends == wanted.flip(0))).all()


def form(batch):
    """Return names, types, dtypes and numbers of dimensions of the attributes of every node and edge type."""
    return {
        str(key): {name: (value.dtype, value.dim()) if isinstance(value, torch.Tensor) else type(value) for name, value in store.items()}
        for key, store in [("", batch.stores[0]), *batch.node_items(), *batch.edge_items()]
    }


def edges_of(batch, relation, options):
    """Return the multiset of edges, each with its id and the nodes that it joins, with their trees if there are any."""
    (source, _, destination), store = relation, batch[relation]
    who = {kind: batch[kind].n_id + (batch[kind].batch * 1000 if "batch" in batch[kind] else 0) for kind in (source, destination)}
    numbers = torch.zeros(store.num_edges) if options.get("subgraph_type") == "bidirectional" else store.e_id
    return sorted(
        zip(who[source][store.edge_index[0]].tolist(), who[destination][store.edge_index[1]].tolist(), numbers.tolist(), strict=True)
    )


def check_alike(mine, wanted, data, options):
    """Check that a batch of hoptrain equals a batch of PyG with the same seeds."""
    assert form(mine) == form(wanted)
    check_meaning(mine, data)
    assert mine.name == "graph"
    if "num_sampled_edges" in mine["paper", "cites", "paper"]:
        assert all(sum(mine[kind].num_sampled_nodes) == mine[kind].num_nodes for kind in data.node_types)
        assert all(sum(mine[relation].num_sampled_edges) == mine[relation].num_edges for relation in data.edge_types)
    if options.get("num_neighbors") == [-1, -1] or options.get("temporal_strategy") == "last":
        for relation in data.edge_types:
            assert edges_of(mine, relation, options) == edges_of(wanted, relation, options)
        for kind in data.node_types:
            assert mine[kind].get("num_sampled_nodes") == wanted[kind].get("num_sampled_nodes")


@pytest.mark.filterwarnings("ignore:Cannot convert to bidirectional graph:UserWarning")
@pytest.mark.parametrize("options", NODES.values(), ids=NODES)
def test_batches_of_nodes(data, options):
    ours, theirs = loaders("Neighbor", data, batch_size=20, **options)
    assert len(ours) == len(theirs)
    kind = "paper" if "input_nodes" not in options else ours.input_data.input_type
    for mine, wanted in zip(ours, theirs, strict=True):
        check_alike(mine, wanted, data, options)
        size = mine[kind].batch_size
        assert size == wanted[kind].batch_size
        assert torch.equal(mine[kind].n_id[:size], wanted[kind].n_id[:size])
        assert torch.equal(mine[kind].input_id, wanted[kind].input_id)


@pytest.mark.parametrize("options", LINKS.values(), ids=LINKS)
def test_batches_of_links(data, options):
    ours, theirs = loaders("LinkNeighbor", data, batch_size=100, **options)
    relation = ours.input_data.input_type
    source, _, destination = relation
    for mine, wanted in zip(ours, theirs, strict=True):
        # The states of torch's generator differ, and so do the negatives: only positives are compared.
        alone = {} if {"neg_sampling_ratio", "neg_sampling"} & options.keys() else options
        check_alike(mine, wanted, data, alone)
        if "edge_label_index" in mine[relation]:
            label, other = mine[relation].edge_label_index, wanted[relation].edge_label_index
            number = len(mine[relation].input_id)
            assert label.shape == other.shape
            for end, kind in enumerate((source, destination)):
                assert torch.equal(mine[kind].n_id[label[end, :number]], wanted[kind].n_id[other[end, :number]])
        else:
            assert torch.equal(mine[source].n_id[mine[source].src_index], wanted[source].n_id[wanted[source].src_index])
            assert mine[destination].dst_neg_index.shape == wanted[destination].dst_neg_index.shape


def test_numbers_that_nothing_drawn_decides(data):
    """The seeds have as many edges of each relation as in PyG."""
    ours, theirs = loaders("Neighbor", data, num_neighbors=BY_TYPE, batch_size=20)
    for mine, wanted in zip(ours, theirs, strict=True):
        for relation in data.edge_types:
            assert mine[relation].num_sampled_edges[0] == wanted[relation].num_sampled_edges[0]


def test_a_seed_that_stands_there_twice_has_its_edges_twice(data):
    batch = next(iter(loaders("Neighbor", data, batch_size=3, input_nodes=("paper", torch.tensor([5, 9, 5])), num_neighbors=(3,))[0]))
    store = batch[WRITES]
    first, again = (store.e_id[store.edge_index[1] == place] for place in (0, 2))
    assert batch["paper"].n_id[:3].tolist() == [5, 9, 5]
    assert torch.equal(first, again)
    assert len(first) > 0


@pytest.mark.parametrize("kind", ["nodes", "links"])
def test_workers_change_nothing(data, kind):
    def epochs(num_workers):
        torch.manual_seed(7)
        options = {"batch_size": 150, "shuffle": True, "num_workers": num_workers}
        if kind == "nodes":
            loader = hoptrain.pyg.NeighborLoader(data, [3, 3], "author", **options)
        else:
            loader = hoptrain.pyg.LinkNeighborLoader(data, [3, 3], WRITES, neg_sampling="binary", **options)
        found = [[batch.clone().to_dict() for batch in loader] for _ in range(2)]
        loader.close()
        return found

    here, there = epochs(0), epochs(2)
    for one, other in zip(chain(*here), chain(*there), strict=True):
        tensors = {(key, name): value for key, store in one.items() if isinstance(store, dict) for name, value in store.items()}
        assert all(torch.equal(value, other[key][name]) for (key, name), value in tensors.items() if isinstance(value, torch.Tensor))


def check_induced(batch, data):
    """Check that a batch has all edges between its nodes, and no counts of hops."""
    check_meaning(batch, data)
    for relation, store in data.edge_items():
        source, _, destination = relation
        inside = torch.isin(store.edge_index[0], batch[source].n_id) & torch.isin(store.edge_index[1], batch[destination].n_id)
        assert torch.equal(batch[relation].e_id.sort().values, inside.nonzero().flatten())
    assert "num_sampled_nodes" not in batch["paper"]


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("num_workers", [0, 1])
def test_induced_subgraphs(data, monkeypatch, num_workers, direction):
    hops = hoptrain.pyg.NeighborSampler(data, [3, 2], "induced", sample_direction=direction)
    options = {"subgraph_type": "induced"} if direction == "forward" else {"neighbor_sampler": hops}
    loader = hoptrain.pyg.NeighborLoader(data, [3, 2], ("paper", None), batch_size=30, num_workers=num_workers, **options)
    for number, batch in enumerate(loader):
        check_induced(batch, data)
        assert batch["paper"].n_id[:30].tolist() == list(range(30 * number, 30 * number + 30))
        assert 0 < batch["author"].num_nodes < 80
    assert number == 3
    with monkeypatch.context() as patch:
        patch.setattr(ExternalSeedLoader, "close", lambda feed: pytest.fail("workers stay from epoch to epoch"))
        assert len(list(loader)) == 4
    loader.close()


def test_an_induced_subgraph_of_links(data):
    loader = hoptrain.pyg.LinkNeighborLoader(data, [2], WRITES, subgraph_type="induced", neg_sampling="binary", batch_size=100)
    for batch in loader:
        check_induced(batch, data)
        assert batch[WRITES].edge_label.shape == (200,)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_random_vertices_are_those_of_pyg(data, num_workers):
    for kind, number in (("paper", 120), ("author", 80), ("venue", 6)):
        data[kind].number = torch.arange(number)
    ours = hoptrain.pyg.RandomNodeLoader(data, 4, shuffle=True, num_workers=num_workers)
    mine = [batch.clone() for batch in ours]
    ours.close()
    theirs = list(torch_geometric.loader.RandomNodeLoader(data, 4, shuffle=True))
    assert sorted(batch.num_nodes for batch in mine) == sorted(batch.num_nodes for batch in theirs)
    for batch in mine:
        wanted = data.subgraph({kind: batch[kind].number for kind in data.node_types})
        assert form(batch) == form(wanted) == form(theirs[0])
        for one, other in zip(batch.stores, wanted.stores, strict=True):
            assert all(torch.equal(one[name], value) for name, value in other.items() if isinstance(value, torch.Tensor))
    for kind in data.node_types:
        assert torch.cat([batch[kind].number for batch in mine]).sort().values.equal(data[kind].number)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_budgets(data, num_workers):
    """``HGTLoader`` samples the requested number of nodes of each type in each hop, and all edges between them."""
    numbers = {"paper": [5, 4], "author": [3, 3], "venue": [1, 0]}
    loader = hoptrain.pyg.HGTLoader(data, numbers, ("paper", data["paper"].train_mask), batch_size=10, num_workers=num_workers)
    seeds = []
    for batch in loader:
        size = batch["paper"].batch_size
        seeds += batch["paper"].n_id[:size].tolist()
        if size == 10:  # a smaller batch may reach too few nodes; no batch reaches a venue
            assert {kind: batch[kind].num_nodes for kind in data.node_types} == {"paper": 19, "author": 6, "venue": 0}
        check_induced(batch, data)
    assert seeds == data["paper"].train_mask.nonzero().flatten().tolist()
    loader.close()
    with refused("data is a Data", "loader samples type", "HeteroData NeighborLoader"):
        hoptrain.pyg.HGTLoader(torch_geometric.data.Data(), [2], "paper")


def test_weighted_edges_are_drawn_by_weight(data):
    data[WRITES].weight = torch.where(torch.arange(400) % 2 == 0, 0.0, data[WRITES].weight)
    loader = hoptrain.pyg.NeighborLoader(data, [2], "paper", batch_size=50, weight_attr="weight")
    edges = torch.cat([batch[WRITES].e_id for batch in loader])
    assert len(edges) > 100
    assert (edges % 2 == 1).all()


def test_vertices_are_drawn_backward(data):
    hops = hoptrain.pyg.NeighborSampler(data, {**BY_TYPE, WRITES: [-1, 0]}, sample_direction="backward")
    batch = next(iter(hoptrain.pyg.NeighborLoader(data, [-1], "author", batch_size=20, neighbor_sampler=hops)))
    check_meaning(batch, data)
    assert torch.equal(batch[WRITES].e_id.sort().values, (data[WRITES].edge_index[0] < 20).nonzero().flatten())


def test_models_of_pyg_train_and_trim(data):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.convs = torch.nn.ModuleList(
                HeteroConv({relation: SAGEConv((-1, -1), 8) for relation in data.edge_types}) for _ in range(2)
            )

        def forward(self, batch, *, trims):
            x, edges = dict(batch.x_dict), batch.edge_index_dict
            for layer, conv in enumerate(self.convs):
                if trims:
                    x, edges, _ = trim_to_layer(layer, batch.num_sampled_nodes_dict, batch.num_sampled_edges_dict, x, edges)
                x = conv(x, edges)
            return x["paper"][: batch["paper"].batch_size]

    data["venue"].x = torch.ones(6, 2)
    loader, model = hoptrain.pyg.NeighborLoader(data, [3, 3], ("paper", data["paper"].train_mask), batch_size=10), Model()
    for batch in loader:
        torch.testing.assert_close(model(batch, trims=True), model(batch, trims=False))
    of_types = to_hetero(GraphSAGE((-1, -1), 8, 2, 3), data.metadata())
    assert of_types(batch.x_dict, batch.edge_index_dict)["paper"].shape == (batch["paper"].num_nodes, 3)


def test_a_change_is_seen(data):
    loader = hoptrain.pyg.NeighborLoader(data, [2], "paper", batch_size=60, num_workers=1)
    for change in range(3):
        if change == 1:
            data["paper"].x += 1
        if change == 2:
            data["author"].x = torch.rand(80, 4)
        for batch in loader:
            check_meaning(batch, data)
    loader.close()
    data[WRITES].edge_index = data[WRITES].edge_index.flip(1).contiguous()
    check_meaning(next(iter(hoptrain.pyg.NeighborLoader(data, [2], "paper", batch_size=60))), data)


def test_features_of_other_numbers_of_vertices_are_refused(data):
    loader = hoptrain.pyg.NeighborLoader(data, [2], "paper", batch_size=60)
    next(iter(loader))
    data["author"].num_nodes, data["author"].x = 80, torch.rand(50, 3)
    with refused("x.author has 50", "rows 80 nodes", "give one each loader"):
        next(iter(loader))


@pytest.mark.filterwarnings("ignore:Unable to accurately infer 'num_nodes'")
def test_a_type_whose_vertices_nobody_counts_is_refused(data):
    del data["venue"]
    data["paper", "in", "venue"].edge_index = torch.tensor([[0, 1], [1, 0]])
    with refused("venue", "num_nodes number nodes", "data['venue'].num_nodes features"):
        hoptrain.pyg.NeighborLoader(data, [2], "paper")


TIMED = {"born": "nodes", "made": "edges"}


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("time_attr", TIMED)
@pytest.mark.parametrize("make", [some_data, some_hetero_data], ids=["homogeneous", "heterogeneous"])
def test_nothing_is_later_than_its_seed(make, time_attr, direction):
    """No node or edge is later than its seed, in both directions; PyG does not support times backward."""
    data, seeds, seed_time = make(), torch.arange(0, 80, 3), torch.arange(27)
    is_hetero = isinstance(data, torch_geometric.data.HeteroData)
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
@pytest.mark.parametrize("make", [some_data, some_hetero_data], ids=["homogeneous", "heterogeneous"])
def test_nothing_is_later_than_the_link_of_its_tree(make, time_attr, direction):
    data, times = make(), torch.arange(30)
    is_hetero = isinstance(data, torch_geometric.data.HeteroData)
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


def test_trees_of_data_without_times(data):
    """With ``disjoint``, each seed has its own tree with all nodes, also if a seed occurs twice."""
    whole, trees = (
        next(iter(hoptrain.pyg.NeighborLoader(data, [-1, -1], ("paper", torch.tensor([7, 7])), batch_size=2, disjoint=disjoint)))
        for disjoint in (False, True)
    )
    for kind in data.node_types:
        for tree in range(2):
            assert trees[kind].n_id[trees[kind].batch == tree].sort().values.equal(whole[kind].n_id.unique())


def test_fanouts_by_default_alone(data):
    ours, wanted = ({"num_neighbors": fanouts, "input_nodes": "paper"} for fanouts in (NumNeighbors({}, default=[-1, -1]), [-1, -1]))
    batches = [next(iter(hoptrain.pyg.NeighborLoader(data, batch_size=50, **options))) for options in (ours, wanted)]
    assert all(torch.equal(one, other) for one, other in zip(*(batch.edge_index_dict.values() for batch in batches), strict=True))


@pytest.mark.parametrize("form", [torch.Tensor.numpy, torch.Tensor.tolist])
def test_links_may_be_an_array_or_lists(data, form):
    for graph, name in ((data, WRITES), (some_data(), None)):
        links = torch.tensor([[1, 2, 3], [4, 5, 6]])
        given = [links if name is None else (name, links), form(links) if name is None else (name, form(links))]
        ours, wanted = (next(iter(hoptrain.pyg.LinkNeighborLoader(graph, [-1], own, batch_size=3))) for own in given)
        (ours, wanted) = (batch[name] if name else batch for batch in (ours, wanted))
        assert torch.equal(ours.edge_label_index, wanted.edge_label_index)
        assert torch.equal(ours.edge_index, wanted.edge_index)


def test_no_seeds_are_no_batches(data):
    """Empty seeds yield no batches, although ``torch.tensor([])`` has a float dtype."""
    assert list(hoptrain.pyg.NeighborLoader(some_data(), [2], input_nodes=torch.tensor([]))) == []
    assert list(hoptrain.pyg.NeighborLoader(data, [2], input_nodes=("paper", torch.tensor([])))) == []


def test_fanouts_that_lack_a_relation_are_refused_by_pyg(data):
    with pytest.raises(ValueError, match="Missing number of neighbors for edge type"):
        next(iter(hoptrain.pyg.NeighborLoader(data, {WRITES: [2]}, "paper", batch_size=50)))


def test_of_many_types_a_message_names_a_few():
    data = torch_geometric.data.HeteroData({"a": {"x": torch.ones(3, 2)}})
    relations = [("a", f"r{number}", "a") for number in range(20)]
    for relation in relations:
        data[relation].edge_index = torch.zeros(2, 4, dtype=torch.long)
    whole = {relation: [2, 2] for relation in relations}
    wrong = [
        ({relations[3]: 2}, "is 2", "num_neighbors a:r3:a list hop", "[15, 10]"),
        ({relations[3]: [2, -3]}, "fanout is -3", "a:r3:a hop 0 -1", "share"),
    ]
    for change, *told in wrong:
        with refused(*told) as raised:
            next(iter(hoptrain.pyg.NeighborLoader(data, whole | change, "a")))
        assert len(str(raised.value)) < 200
    with refused("('a', 'r20', 'a')", "HeteroData edge type", "a:r0:a a:r6:a 13 more"):
        hoptrain.pyg.LinkNeighborLoader(data, whole, ("a", "r20", "a"))
