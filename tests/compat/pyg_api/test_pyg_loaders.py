"""The loaders of ``hoptrain.pyg`` equal PyG's with a reference sampler: attributes, meaning of ids, and edges where nothing is random."""

import copy
import gc
from itertools import chain, islice

import pyg_reference
import pytest
import torch
from cases.mistakes import refused
from conftest import child_processes
from pyg_case import some_data
from torch_geometric.nn import GraphSAGE
from torch_geometric.sampler import NegativeSampling, NumNeighbors
from torch_geometric.utils import trim_to_layer

import hoptrain.pyg
from hoptrain.pyg import graphs


@pytest.fixture
def data():
    return some_data()


NODES = {
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
    "given times": {"time_attr": "made", "input_nodes": torch.arange(100), "input_time": torch.arange(100) % 37, "num_neighbors": [-1, -1]},
    "the last": {"time_attr": "made", "input_nodes": torch.arange(100), "input_time": torch.full((100,), 30), "temporal_strategy": "last"},
    "seeds twice": {"input_nodes": torch.tensor([5, 9, 5, 7, 9, 5, 8]), "num_neighbors": [-1, -1]},
}
LINKS = {
    "plain": {},
    "labels": {"edge_label": torch.arange(1200) % 3},
    "binary": {"neg_sampling_ratio": 1.5, "num_neighbors": [-1, -1]},
    "binary with labels": {"neg_sampling": "binary", "edge_label": torch.arange(1200) % 3},
    "triplet": {"neg_sampling": NegativeSampling("triplet", 2)},
    "weighted": {"neg_sampling": NegativeSampling("binary", 1, src_weight=torch.arange(200.0), dst_weight=torch.ones(200))},
    "disjoint": {"disjoint": True, "neg_sampling": "triplet"},
    "at times": {"time_attr": "made", "edge_label_time": torch.arange(1200) % 50, "neg_sampling": "binary", "num_neighbors": [-1, -1]},
    "some": {"edge_label_index": torch.arange(600).view(2, 300) % 190},
}


def loaders(kind, data, num_neighbors=(4, 3), **options):
    """Return a loader of hoptrain and the equivalent one of PyG."""
    if kind == "Neighbor" and "input_nodes" not in options:
        options["input_nodes"] = data.train_mask
    ours, theirs = (getattr(module, f"{kind}Loader") for module in (hoptrain.pyg, pyg_reference))
    num_neighbors = list(num_neighbors) if isinstance(num_neighbors, tuple) else num_neighbors
    return ours(data, num_neighbors, **options), theirs(data, num_neighbors, **options)


def check_meaning(batch, data):
    """Check that all ids of a batch have PyG's meaning."""
    assert torch.equal(batch.x, data.x[batch.n_id])
    assert torch.equal(batch.y, data.y[batch.n_id])
    assert torch.equal(batch.edge_attr, data.edge_attr[batch.e_id])
    ends, wanted = batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id]
    assert ((ends == wanted) | (ends == wanted.flip(0))).all()


def form(batch):
    """Return names, types, dtypes, numbers of dimensions, and the sizes that do not depend on random draws."""
    return {
        name: (value.dtype, value.dim(), value.shape[1:] if value.dim() > 1 and value.shape[0] != 2 else None)
        if isinstance(value, torch.Tensor)
        else type(value)
        for name, value in batch.to_dict().items()
    }


def same(one, other):
    """Return whether both are None or equal tensors."""
    return one is other if one is None or other is None else torch.equal(one, other)


def edges_of(batch, options):
    """Return the multiset of edges, each with its id and the nodes that it joins, with their trees if there are any."""
    who = batch.n_id if batch.get("batch") is None else batch.batch * 1000 + batch.n_id
    # When PyG adds reverse edges, it keeps an arbitrary one of parallel edges.
    numbers = torch.zeros_like(batch.e_id) if options.get("subgraph_type") == "bidirectional" else batch.e_id
    return sorted(map(tuple, torch.cat([who[batch.edge_index], numbers[None]]).T.tolist()))


@pytest.mark.parametrize("options", NODES.values(), ids=NODES)
def test_batches_of_nodes(data, options):
    ours, theirs = loaders("Neighbor", data, batch_size=20, **options)
    assert len(ours) == len(theirs)
    for mine, wanted in zip(ours, theirs, strict=True):
        assert form(mine) == form(wanted)
        check_meaning(mine, data)
        assert mine.name == "graph"
        assert torch.equal(mine.n_id[: mine.batch_size], wanted.n_id[: wanted.batch_size])
        assert torch.equal(mine.input_id, wanted.input_id)
        assert same(mine.get("seed_time"), wanted.get("seed_time"))
        if "num_sampled_edges" in mine:
            assert (
                mine.num_sampled_edges[0] == wanted.num_sampled_edges[0]
            )  # each seed has the same number of edges, although they are random
            assert sum(mine.num_sampled_nodes) == mine.num_nodes
            assert sum(mine.num_sampled_edges) == mine.num_edges
        if options.get("num_neighbors") == [-1, -1] or options.get("temporal_strategy") == "last":
            assert edges_of(mine, options) == edges_of(wanted, options)
            if "num_sampled_nodes" in mine:
                assert (mine.num_sampled_nodes, mine.num_sampled_edges) == (wanted.num_sampled_nodes, wanted.num_sampled_edges)


@pytest.mark.parametrize("options", LINKS.values(), ids=LINKS)
def test_batches_of_links(data, options):
    ours, theirs = loaders("LinkNeighbor", data, batch_size=200, **options)
    asked = options.get("edge_label_index", data.edge_index)
    for number, (mine, wanted) in enumerate(zip(ours, theirs, strict=True)):
        assert form(mine) == form(wanted)
        check_meaning(mine, data)
        assert torch.equal(mine.input_id, wanted.input_id)
        seeds = asked[:, 200 * number : 200 * number + len(mine.input_id)]
        if "edge_label_index" in mine:
            assert torch.equal(mine.n_id[mine.edge_label_index[:, : seeds.shape[1]]], seeds)
            assert mine.edge_label_index.shape == wanted.edge_label_index.shape
            assert same(mine.get("edge_label"), wanted.get("edge_label"))
        else:
            assert torch.equal(torch.stack([mine.n_id[mine.src_index], mine.n_id[mine.dst_pos_index]]), seeds)
            assert mine.dst_neg_index.shape == wanted.dst_neg_index.shape


def test_an_induced_subgraph_has_all_edges_between_its_vertices(data):
    ours, _ = loaders("Neighbor", data, batch_size=20, subgraph_type="induced")
    for batch in ours:
        check_meaning(batch, data)
        inside = torch.isin(data.edge_index, batch.n_id).all(0).nonzero().flatten()
        assert torch.equal(batch.e_id.sort().values, inside)
        assert "num_sampled_nodes" not in batch


def test_a_seed_that_stands_there_twice_has_its_edges_twice(data):
    batch = next(iter(loaders("Neighbor", data, batch_size=3, input_nodes=torch.tensor([5, 9, 5]), num_neighbors=(3,))[0]))
    first, again = (batch.e_id[batch.edge_index[1] == place] for place in (0, 2))
    assert batch.n_id[:3].tolist() == [5, 9, 5]
    assert torch.equal(first, again)
    assert len(first) == 3


SPREAD = {
    "nodes": (hoptrain.pyg.NeighborLoader, {"replace": True}),
    "induced": (hoptrain.pyg.NeighborLoader, {"subgraph_type": "induced"}),
    "links": (hoptrain.pyg.LinkNeighborLoader, {"neg_sampling": "binary"}),
    "times": (
        hoptrain.pyg.LinkNeighborLoader,
        {"neg_sampling": "triplet", "time_attr": "made", "edge_label_time": torch.arange(1200) % 50},
    ),
}


@pytest.mark.promise
@pytest.mark.parametrize(("kind", "options"), SPREAD.values(), ids=SPREAD)
def test_workers_change_nothing(data, kind, options):
    def epochs(num_workers):
        torch.manual_seed(7)
        loader = kind(data, [3, 3], batch_size=150, shuffle=True, num_workers=num_workers, **options)
        found = [[batch.clone().to_dict() for batch in loader] for _ in range(2)]
        loader.close()
        return found

    here, there = epochs(0), epochs(2)
    for one, other in zip(chain(*here), chain(*there), strict=True):
        assert all(same(value, other[name]) for name, value in one.items() if isinstance(value, torch.Tensor))
    assert not same(here[0][0]["n_id"], here[1][0]["n_id"])


@pytest.mark.parametrize("num_workers", [0, 1])
def test_features_that_are_changed_are_seen_in_the_next_epoch(data, num_workers):
    loader = hoptrain.pyg.NeighborLoader(data, [2], batch_size=100, num_workers=num_workers)
    for change in ("none", "in place", "another"):
        if change == "in place":
            data.x += 1
        elif change == "another":
            data.x = torch.rand(200, 9)
        for batch in loader:
            check_meaning(batch, data)
    loader.close()


def test_a_loader_keeps_the_edges_that_it_was_made_of(data):
    """A loader keeps the edges that the data had when it was made, as in PyG; a new loader uses the new edges."""
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


def test_weighted_edges_are_drawn_by_weight(data):
    data.weight = torch.where(torch.arange(1200) % 2 == 0, 0.0, data.weight)
    loader = hoptrain.pyg.NeighborLoader(data, [5], batch_size=50, weight_attr="weight")
    edges = torch.cat([batch.e_id for batch in loader])
    assert len(edges) > 300
    assert (edges % 2 == 1).all()


def test_vertices_are_drawn_backward(data):
    hops = hoptrain.pyg.NeighborSampler(data, [-1], sample_direction="backward")
    batch = next(iter(hoptrain.pyg.NeighborLoader(data, [-1], batch_size=20, neighbor_sampler=hops)))
    check_meaning(batch, data)
    assert torch.equal(batch.e_id.sort().values, (data.edge_index[0] < 20).nonzero().flatten())


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


def test_samplers_of_torch_and_pyg_deal_out_the_seeds(data):
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
    assert all(found == here for found, _ in (first(1), first(2), first(0, trained=5)))
    assert all(torch.equal(state, after) for _, after in (first(1), first(2))), "the training draws what it draws without"


def test_a_sampler_may_learn_from_the_training(data):
    """Without workers, a sampler chooses each batch after the previous one was used."""
    used = []

    def adapting():
        for step in range(6):
            assert len(used) == step
            yield [step, sum(used) % 200]

    batches = hoptrain.pyg.NeighborLoader(data, [2], batch_sampler=adapting())
    used.extend(int(batch.e_id.sum()) + 10 for batch in batches)
    assert len(used) == 6


def test_no_seeds_are_no_batches(data):
    assert list(hoptrain.pyg.NeighborLoader(data, [2], input_nodes=torch.zeros(200, dtype=torch.bool))) == []


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
