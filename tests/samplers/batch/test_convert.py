"""Conversions to PyG and DGL keep node ids, edge ids, repeated draws, weights and a sampler's extra arrays."""

from collections import Counter
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from cases.mistakes import Mistake, each_of
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data, HeteroData
from torch_geometric.utils import trim_to_layer

from hoptrain.engine import Dataset, Graph, HeteroDataset, HeteroGraph
from hoptrain.samplers import (
    ClusterSampler,
    HeteroSampler,
    LaborSampler,
    LadiesSampler,
    LinkSampler,
    MVSSampler,
    NeighborSampler,
    RandomWalk,
    SaintWalkSampler,
    SampleLoader,
    SamplingProgram,
    ShadowPPRSampler,
    ShadowSampler,
    TemporalSampler,
    randint,
)
from hoptrain.samplers.batch.dgl_compat import import_dgl

RNG = np.random.default_rng(7)
EDGES = np.stack([RNG.integers(0, 60, 900), (RNG.random(900) ** 3 * 55).astype(np.int64)])
EDGES[:, :30] = EDGES[:, 30:60]  # parallel edges
DATA = Data(
    edge_index=torch.from_numpy(EDGES),
    edge_weight=torch.from_numpy(RNG.random(900)),
    x=torch.rand(60, 3),
    y=torch.from_numpy(RNG.integers(0, 3, 60)),
    train_mask=torch.arange(60) < 40,
)
GRAPH = Graph.from_edges(*EDGES, 60, weights=DATA.edge_weight.numpy(), times=RNG.integers(0, 50, 900))
SEEDS = np.array([5, 2, 30])


class Draws(SamplingProgram):
    """A sampling program that draws edges of a transit node with replacement."""

    steps = 2

    def sample_size(self, step):
        return 4

    def next(self, transit, step, rng):
        return randint(rng, len(transit.neighbors))


SAMPLERS = {
    "neighbor": NeighborSampler([4, 3]),
    "full": NeighborSampler([-1, -1]),
    "new": NeighborSampler([4, 3, 2], expand="new"),
    "repeated": NeighborSampler([7, 5], replace=True),
    "repeated, new": NeighborSampler([7, 5], replace=True, expand="new"),
    "by weight": NeighborSampler([7, 5], replace=True, weighted=True),
    "one hop": NeighborSampler([30], replace=True),
    "labor": LaborSampler([4, 3]),
    "ladies": LadiesSampler([8, 8]),
    "links": LinkSampler(NeighborSampler([4, 3])),
    "links, repeated": LinkSampler(NeighborSampler([6, 6], replace=True)),
    "mvs": MVSSampler(NeighborSampler([6, 6], replace=True), num_draws=2),
    "shadow": ShadowSampler(2, 4),
    "temporal": TemporalSampler([4, 3], seed_times=np.full(60, 40)),
    "program": Draws(),
    "saint": SaintWalkSampler(3, 2, num_subgraphs=4),
}
REPEAT = {"repeated", "by weight", "links, repeated", "mvs", "program"}
"""Cases that draw with replacement, or expand a node in several hops."""


def sampled(name, graph=GRAPH, **address):
    sampler = SAMPLERS[name].prepare(graph, np.arange(40))
    seeds = sampler.items(graph, np.arange(40))[:1] if sampler.single_item else SEEDS
    return sampler.sample(graph, seeds, **address)


def hops_of(batch):
    """Return the (source, destination, edge id, weight) tuples of each hop, from the seeds outward."""
    hops = []
    for block in batch.blocks[:1] if batch.nested else batch.blocks[::-1]:
        src, dst = block.edge_index().tolist()
        weights = [None] * len(src) if block.weights is None else block.weights.tolist()
        hops.append(list(zip(src, dst, GRAPH.ids_of(block.edge_ids).tolist(), weights, strict=True)))
    return hops


def edges_of(data):
    return [(*ends, e) for *ends, e in zip(*data.edge_index.tolist(), data.e_id.tolist(), strict=True)]


@pytest.mark.parametrize("name", SAMPLERS)
def test_every_draw_is_an_edge_of_the_users_number(name):
    batch = sampled(name, seed=3, batch=2)
    data, hops = batch.to_pyg(), [[draw[:3] for draw in hop] for hop in hops_of(batch)]
    assert data.validate()
    assert data.n_id[data.edge_index].tolist() == EDGES[:, data.e_id].tolist()
    expected = sum((Counter(hop) for hop in hops), Counter())
    if name not in REPEAT:
        expected = Counter()
        for hop in hops:
            expected |= Counter(hop)  # an edge counts as often as in the hop that drew it most often
    assert Counter(edges_of(data)) == expected
    if name in REPEAT:
        assert data.num_edges == batch.num_edges > len(expected)


def test_repeated_draws_are_met():
    """The batches that other tests convert contain repeated draws."""
    assert all(max(Counter(edges_of(sampled(name).to_pyg())).values()) > 1 for name in (*REPEAT, "one hop", "repeated, new"))


def test_the_mean_over_edges_estimates_that_over_the_column():
    values = RNG.random(60)
    node = int(GRAPH.in_degrees().argmax())
    column = slice(GRAPH.indptr[node], GRAPH.indptr[node + 1])
    exact = np.average(values[GRAPH.indices[column]], weights=GRAPH.weights[column])
    sampler = NeighborSampler([40, 40], replace=True, weighted=True)
    means = []
    for number in range(300):
        data = sampler.sample(GRAPH, np.array([node]), batch=number).to_pyg()
        src, dst = data.n_id[data.edge_index].numpy()
        means.append(values[src[dst == node]].mean())
    error = np.std(means) / np.sqrt(len(means))
    assert abs(np.mean(means) - exact) < 4 * error
    assert error < 0.01 * exact


@pytest.mark.parametrize("name", [name for name in SAMPLERS if name in ("labor", "ladies", "saint")])
def test_weighted_sums_are_the_means_of_the_hops(name):
    batch = sampled(name, batch=1)
    data, hops = batch.to_pyg(), hops_of(batch)
    f = RNG.random(900)
    found = np.zeros(data.num_nodes)
    np.add.at(found, data.edge_index[1].numpy(), data.edge_weight.numpy() * f[data.e_id])
    blocks = batch.blocks[:1] if batch.nested else batch.blocks[::-1]
    expected, expanded = np.zeros(data.num_nodes), np.zeros(data.num_nodes)
    for hop, block in zip(hops, blocks, strict=True):
        expanded[: block.num_dst] += 1
        for _, dst, edge, weight in hop:
            expected[dst] += weight * f[edge]
    np.testing.assert_allclose(found, expected / np.maximum(expanded, 1), rtol=1e-5)
    assert data.edge_weight.dtype == torch.float32
    assert len(hops) == 1 or len(data.edge_weight) < batch.num_edges, "no edge was drawn in two hops: nothing was added up"


def test_without_weights_there_are_none():
    assert "edge_weight" not in sampled("neighbor").to_pyg()


@pytest.mark.parametrize("name", SAMPLERS)
def test_trimmed_to_a_layer(name):
    """After PyG's `trim_to_layer`, each layer has the nodes of its block. Edges match for the last layer, and for all layers of nested batches."""
    batch = sampled(name)
    data = batch.to_pyg()
    x, edges, ids = torch.arange(data.num_nodes), data.edge_index, data.e_id
    last = len(batch.blocks) - 1
    for layer, block in enumerate(batch.blocks):
        x, edges, ids = trim_to_layer(layer, data.num_sampled_nodes, data.num_sampled_edges, x, edges, ids)
        assert len(x) == block.num_src
        assert edges.numel() == 0 or edges.max() < block.num_src
        if batch.nested or layer == last:
            own = Counter(zip(*block.edge_index().tolist(), GRAPH.ids_of(block.edge_ids).tolist(), strict=True))
            assert Counter(zip(*edges.tolist(), ids.tolist(), strict=True)) == own
    assert sum(data.num_sampled_nodes) == data.num_nodes
    assert sum(data.num_sampled_edges) == data.num_edges
    assert data.num_sampled_nodes[0] == data.batch_size


# Further arrays of samplers


def test_seed_weights_and_extras_come_along():
    data = sampled("mvs").to_pyg()
    assert data.seed_weights.tolist() == sampled("mvs").seed_weights.tolist()
    batch = sampled("links")
    data = batch.to_pyg()
    for name in ("pairs", "edge_label_index"):
        assert (data[name].dtype, data[name].tolist()) == (torch.int64, batch.extra["pairs"].tolist())
    for name in ("labels", "edge_label"):
        assert data[name].tolist() == batch.extra["labels"].tolist()
    batch = sampled("temporal")
    data = batch.to_pyg()
    for name in ("trees", "batch"):
        assert data[name].tolist() == batch.extra["trees"].tolist()
    for name in ("seed_times", "seed_time"):
        assert data[name].tolist() == [40, 40, 40]


@pytest.mark.parametrize("sampler", [ShadowSampler(2, 3), ShadowPPRSampler(4, 0.4, 0.02)], ids=["hops", "pagerank"])
def test_the_subgraph_that_a_node_is_in(sampler):
    """``batch`` is the index of the subgraph that a node is in, and no edge connects two subgraphs."""
    with SampleLoader(Dataset.from_pyg(DATA), sampler, batch_size=16, num_workers=1) as loader:
        batches = [sampler.sample(GRAPH, SEEDS), *(batch.to_pyg() for batch in loader)]
    batches[0] = batches[0].to_pyg()
    for number, data in enumerate(batches):
        address = {"epoch": 0, "batch": max(0, number - 1)}
        for i, seed in enumerate(data.n_id[: data.batch_size].tolist()):
            alone = sampler.sample(GRAPH, np.array([seed]), **address)
            assert data.n_id[data.batch == i].tolist() == alone.node_ids.tolist()
        assert data.batch[data.edge_index[0]].tolist() == data.batch[data.edge_index[1]].tolist()
        assert len(data.batch) == data.num_nodes


def test_walks_have_no_edges_and_their_extra():
    batch = RandomWalk(3).sample(GRAPH, SEEDS)
    data = batch.to_pyg()
    assert (data.edge_index.shape, data.e_id.tolist(), data.walks.tolist()) == ((2, 0), [], batch.extra["walks"].tolist())


# Through the loader, back to the ids of the user's data


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("where", ["arrays", "folder"])
def test_batches_of_a_loader_name_the_edges_of_the_data(tmp_path, where, num_workers):
    data = Dataset.from_pyg(DATA)
    if where == "folder":
        data.save(tmp_path / "data")
        data = Dataset.open(tmp_path / "data")
    sampler = NeighborSampler([6, 5], replace=True)
    with SampleLoader(data, sampler, batch_size=16, num_workers=num_workers) as loader:
        for batch in loader:
            made = batch.to_pyg()
            assert made.n_id[made.edge_index].tolist() == DATA.edge_index[:, made.e_id].tolist()
            assert made.num_edges == batch.num_edges
            assert made.x.tolist() == DATA.x[made.n_id].tolist()
            assert DATA.edge_weight[made.e_id].tolist() == data.graph.weights[data.graph.csc_positions(made.e_id.numpy())].tolist()


@settings(max_examples=30)
@given(chosen=st.sets(st.integers(0, 899), min_size=1, max_size=20).map(sorted))
def test_links_are_chosen_by_the_users_numbers(chosen):
    sampler = LinkSampler(NeighborSampler([3]), edges=chosen, num_negatives=0).prepare(GRAPH, np.arange(40))
    batch = sampler.sample(GRAPH, sampler.items(GRAPH, np.arange(40)))
    assert batch.node_ids[batch.extra["pairs"]].tolist() == EDGES[:, chosen].tolist()


def test_clusters_name_the_edges_of_the_data():
    pytest.importorskip("pymetis")
    sampler = ClusterSampler(4).prepare(GRAPH, np.arange(40))
    data = sampler.sample(GRAPH, np.array([1, 3])).to_pyg()
    assert data.n_id[data.edge_index].tolist() == EDGES[:, data.e_id].tolist()


# DGL


@pytest.mark.skipif(find_spec("dgl") is None, reason="dgl is not installed: pip install hoptrain[dgl]")
@pytest.mark.parametrize("name", SAMPLERS)
def test_dgl_blocks_carry_ids_and_weights(name):
    dgl = import_dgl()
    batch = sampled(name)
    nodes, seeds, blocks = batch.to_dgl()
    assert seeds.tolist() == batch.seeds.tolist()
    for made, block in zip(blocks, batch.blocks, strict=True):
        src, dst = made.edges()
        assert torch.stack([nodes[src.long()], nodes[dst.long()]]).tolist() == EDGES[:, made.edata[dgl.EID]].tolist()
        assert made.edata[dgl.EID].dtype == made.idtype
        assert ("edge_weights" in made.edata) == (block.weights is not None)
        assert block.weights is None or made.edata["edge_weights"].tolist() == block.weights.tolist()
    if batch.seed_weights is not None:
        assert blocks[-1].dstdata["seed_weights"].tolist() == batch.seed_weights.tolist()


# Heterogeneous graphs

NUM_OF_TYPE = {"a": 50, "b": 30, "c": 20}
TRIPLES = [("a", "r", "a"), ("b", "r", "a"), ("a", "s", "b"), ("c", "r", "b")]
HETERO_RNG = np.random.default_rng(0)
HETERO_EDGES = {r: HETERO_RNG.integers(0, [[NUM_OF_TYPE[r[0]]], [NUM_OF_TYPE[r[2]]]], (2, 300)) for r in TRIPLES}
HETERO_GRAPH = HeteroGraph.from_edges(NUM_OF_TYPE, {relation: tuple(ends) for relation, ends in HETERO_EDGES.items()})
HETERO_X = {"b": HETERO_RNG.random((30, 4)).astype(np.float32), "c": HETERO_RNG.random((20, 2)).astype(np.float32)}


def loaded(sampler):
    data = HeteroDataset(graph=HETERO_GRAPH, seed_type="a", x=HETERO_X, y=np.arange(50), splits={"train": np.arange(9)})
    return next(iter(SampleLoader(data, sampler, batch_size=9)))


@pytest.mark.parametrize("expand", ["all", "new"])
def test_hetero_data_has_the_users_edges(expand):
    batch = loaded(HeteroSampler([3, 2], "a", expand=expand))
    data = batch.to_pyg()
    assert isinstance(data, HeteroData)
    assert data.validate()
    for relation in TRIPLES:
        store, (source, _, destination) = data[relation], relation
        src, dst = store.edge_index
        assert torch.stack([data[source].n_id[src], data[destination].n_id[dst]]).tolist() == HETERO_EDGES[relation][:, store.e_id].tolist()
        assert sum(store.num_sampled_edges) == len(store.e_id)
        assert len(store.e_id.unique()) == len(store.e_id), "an edge of several hops stands there once"
    assert (data["a"].batch_size, data["a"].n_id[:9].tolist(), data["a"].y.tolist()) == (9, *[batch.seeds.tolist()] * 2)
    assert "input_id" not in data["a"], "PyG means places in the list that a loader was given"
    assert torch.equal(data["b"].x, torch.from_numpy(HETERO_X["b"][batch.node_ids["b"]]))
    assert {name: sum(counts) for name, counts in data.num_sampled_nodes_dict.items()} == {n: len(i) for n, i in batch.node_ids.items()}
    assert data.num_sampled_nodes_dict["b"][0] == 0
    assert "batch_size" not in data["b"]


def test_hetero_data_of_nested_batches_is_trimmed_to_layers():
    """Trimming a nested batch to its second layer leaves the block of that layer."""
    data = loaded(HeteroSampler([3, 2], "a", expand="new")).to_pyg()
    x = {name: ids[:, None].float() for name, ids in data.n_id_dict.items()}
    x, edge_index, _ = trim_to_layer(1, data.num_sampled_nodes_dict, data.num_sampled_edges_dict, x, data.edge_index_dict)
    inner = loaded(HeteroSampler([3, 2], "a", expand="new")).blocks[-1]
    for relation, block in inner.items():
        assert edge_index[relation].tolist() == block.edge_index().tolist()
        assert len(x[relation[0]]) == block.num_src


def test_hetero_data_has_several_types_of_seeds():
    data = HeteroSampler([2]).sample(HETERO_GRAPH, {"b": [1, 0], "a": [3]}).to_pyg()
    assert (data["a"].batch_size, data["b"].batch_size) == (1, 2)
    assert data["b"].n_id[: data["b"].batch_size].tolist() == [1, 0]


def test_hetero_data_keeps_draws_with_replacement():
    batch = HeteroSampler([5, 4], "a", replace=True).sample(HETERO_GRAPH, np.arange(9))
    assert sum(len(store.e_id) for store in batch.to_pyg().edge_stores) == batch.num_edges


@pytest.mark.skipif(find_spec("dgl") is None, reason="dgl is not installed: pip install hoptrain[dgl]")
@pytest.mark.parametrize("expand", ["all", "new"])
def test_dgl_blocks_of_a_heterogeneous_graph(expand):
    dgl = import_dgl()
    batch = loaded(HeteroSampler([3, 2], "a", expand=expand))
    nodes, seeds, blocks = batch.to_dgl()
    assert {name: ids.tolist() for name, ids in seeds.items()} == {"a": batch.seeds.tolist()}
    assert torch.equal(blocks[0].srcnodes["b"].data["x"], torch.from_numpy(HETERO_X["b"])[nodes["b"].long()])
    assert blocks[-1].dstnodes["a"].data["y"].tolist() == batch.seeds.tolist()
    for made, hop in zip(blocks, batch.blocks, strict=True):
        for relation, block in hop.items():
            src, dst = made.edges(etype=relation)
            src, dst = made.srcnodes[relation[0]].data[dgl.NID][src.long()], made.dstnodes[relation[2]].data[dgl.NID][dst.long()]
            assert torch.stack([src, dst]).tolist() == HETERO_EDGES[relation][:, made.edges[relation].data[dgl.EID].long()].tolist()
            assert made.num_src_nodes(relation[0]) == block.num_src
            assert made.num_dst_nodes(relation[2]) == block.num_dst


def weights_in_one_block():
    batch = sampled("labor")
    replace(batch, blocks=(replace(batch.blocks[0], weights=None), batch.blocks[1])).to_pyg()


MISTAKES = {
    "an extra with a name that PyG has": Mistake(
        lambda: replace(sampled("neighbor"), extra={"e_id": np.zeros(2)}).to_pyg(),
        value="extra['e_id']",
        rule="name PyG's Data",
        remedy="rename sampler",
    ),
    "weights in some blocks only": Mistake(weights_in_one_block, value="weights", rule="some blocks none graph", remedy="use blocks"),
    "a link that the graph has not": Mistake(
        lambda: LinkSampler(NeighborSampler([3]), edges=[0, 900]).items(GRAPH, np.arange(40)),
        value="edge 900",
        rule="not graph edges",
        remedy="0 899",
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
