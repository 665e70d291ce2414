"""Block samplers equal DGL's: types of results, meaning of ids, edges where nothing is random, and distributions of random edges."""

import pickle

import dgl_case
import numpy as np
import pytest
import torch
from cases.mistakes import Mistake, each_of
from dgl_case import check_block, chi_square_fits, dgl, edge_ids, form, graph

import hoptrain.dgl
from hoptrain import Graph, NeighborSampler

KINDS = {
    "neighbours": ("NeighborSampler", ([3, 4],), {}),
    "one hop": ("NeighborSampler", ([2],), {}),
    "all": ("MultiLayerFullNeighborSampler", (2,), {}),
    "with replacement": ("NeighborSampler", ([3, 4],), {"replace": True}),
    "by weight": ("NeighborSampler", ([3, 4],), {"prob": "weight"}),
    "by weight, with replacement": ("NeighborSampler", ([3, 4],), {"prob": "weight", "replace": True}),
    "all that have weight": ("NeighborSampler", ([-1, -1],), {"prob": "zeros"}),
    "masked": ("NeighborSampler", ([3, 4],), {"mask": "mask"}),
    "all that are not masked": ("MultiLayerFullNeighborSampler", (2,), {"mask": "mask"}),
    "labor": ("LaborSampler", ([3, 4],), {}),
    "labor, two rounds": ("LaborSampler", ([3, 4],), {"importance_sampling": 2}),
    "labor by weight": ("LaborSampler", ([3, 4],), {"prob": "weight"}),
    "labor by weight, a round": ("LaborSampler", ([3, 4],), {"prob": "weight", "importance_sampling": 1}),
    "labor, all": ("LaborSampler", ([-1, -1],), {}),
}
SEEDS = torch.tensor([11, 3, 59, 30, 2])


def both(kind, arguments, options):
    return [getattr(module, kind)(*arguments, **options) for module in (hoptrain.dgl, dgl.dataloading)]


@pytest.fixture(params=[torch.int64, torch.int32], ids=["int64", "int32"])
def g(request):
    made = graph(request.param)
    made.edata["zeros"] = torch.where(torch.arange(900) % 3 == 0, 0.0, made.edata["weight"])
    return made


@pytest.mark.parametrize(("kind", "arguments", "options"), KINDS.values(), ids=KINDS)
def test_blocks(g, kind, arguments, options):
    ours, theirs = both(kind, arguments, options)
    seeds = SEEDS.to(g.idtype)
    mine, wanted = ours.sample(g, seeds), theirs.sample(g, seeds)
    assert form(mine) == form(wanted)
    assert torch.equal(mine[1], seeds)
    for block, other in zip(mine[2], wanted[2], strict=True):
        check_block(g, block, mine[0])
        if not kind.startswith("Labor"):  # each seed has the same number of edges, although they are random
            assert torch.equal(block.in_degrees()[:5], other.in_degrees()[:5])
        if "edge_weights" in block.edata:
            sums = torch.zeros(block.num_dst_nodes()).index_add_(0, block.edges()[1].long(), block.edata["edge_weights"])
            torch.testing.assert_close(sums, block.in_degrees().float())
    assert len(mine[0]) == mine[2][0].num_src_nodes()
    if "all" in kind.lower() or arguments == ([-1, -1],) or "Full" in kind:
        assert edge_ids(mine[2]) == edge_ids(wanted[2])
        assert mine[0].sort().values.equal(wanted[0].sort().values)
    masked = options.get("mask") or (options.get("prob") == "zeros" and "zeros")
    assert not masked or all(g.edata[masked][block.edata[dgl.EID].long()].bool().all() for block in mine[2])


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_a_block_is_what_dgl_makes_of_the_same_edges(dtype):
    made = hoptrain.dgl.NeighborSampler([4]).sample(graph(dtype), SEEDS.to(dtype))[2][0]
    wanted = dgl.create_block({("_N", "_E", "_N"): made.edges()}, {"_N": made.num_src_nodes()}, {"_N": made.num_dst_nodes()})
    copy = pickle.loads(pickle.dumps(made))
    for one in (made, copy, made.to("cpu")):
        assert (one.is_block, one.idtype, one.canonical_etypes) == (True, dtype, wanted.canonical_etypes)
        assert (one.srctypes, one.dsttypes, repr(one)) == (wanted.srctypes, wanted.dsttypes, repr(wanted))
        assert torch.equal(torch.stack(one.edges()), torch.stack(wanted.edges()))
        assert torch.equal(one.out_degrees(), wanted.out_degrees())
        x = torch.rand(one.num_src_nodes(), 3)
        assert torch.equal(dgl.ops.copy_u_sum(one, x), dgl.ops.copy_u_sum(wanted, x))
    assert list(made.metagraph().edges) == list(wanted.metagraph().edges)


def test_values_of_edges_are_summed(g):
    """DGL's kernels, which read a block's edge ids as in ``GATConv``, sum edge values of the blocks correctly."""
    (block,) = hoptrain.dgl.NeighborSampler([3]).sample_blocks(g, SEEDS.to(g.idtype))[2]
    made = Graph.from_edge_index(np.random.default_rng(0).integers(0, 60, (2, 900)), 60)
    batch = NeighborSampler([3]).sample(made, np.arange(5))
    for own in (block, batch.to("cpu").to_dgl()[2][0]):
        own.edata["w"], own.srcdata["h"] = torch.rand(own.num_edges(), 2, 1), torch.rand(own.num_src_nodes(), 2, 4)
        own.update_all(dgl.function.u_mul_e("h", "w", "m"), dgl.function.sum("m", "out"))
        sources, destinations = own.edges()
        sums = torch.zeros(own.num_dst_nodes(), 2, 4).index_add(0, destinations.long(), own.srcdata["h"][sources.long()] * own.edata["w"])
        torch.testing.assert_close(own.dstdata["out"], sums)


def test_sources_are_ends_of_outgoing_edges_if_asked():
    g = graph()
    nodes, _, blocks = hoptrain.dgl.NeighborSampler([-1, 2], edge_dir="out").sample(g, SEEDS)
    for block in blocks:
        check_block(g, block, nodes, reverse=True)
    assert torch.equal(blocks[1].in_degrees(), g.out_degrees(SEEDS).clamp(max=2))


def test_a_seed_that_stands_there_twice_has_its_edges_twice():
    g, seeds = graph(), torch.tensor([11, 3, 11])
    nodes, outputs, blocks = hoptrain.dgl.NeighborSampler([3, 4]).sample(g, seeds)
    assert torch.equal(outputs, seeds)
    assert torch.equal(nodes[:3], seeds)
    for block in blocks:
        check_block(g, block, nodes)
    first, again = (blocks[-1].in_edges(place, form="eid") for place in (0, 2))
    ids = blocks[-1].edata[dgl.EID]
    assert len(first) == 4
    assert torch.equal(ids[first], ids[again])


def test_edges_are_excluded():
    """Excluded edges are removed after sampling, as in DGL, so no other edges are drawn instead of them."""
    g = graph()
    excluded = g.in_edges(SEEDS, form="eid")[::2]
    ours, theirs = both("MultiLayerFullNeighborSampler", (2,), {})
    assert edge_ids(ours.sample(g, SEEDS, excluded)[2]) == edge_ids(theirs.sample(g, SEEDS, excluded)[2])
    star = dgl.graph((torch.arange(1, 11), torch.zeros(10, dtype=torch.long)))
    counts = [
        torch.tensor([sampler.sample(star, torch.tensor([0]), torch.arange(5))[2][0].num_edges() for _ in range(400)])
        for sampler in both("NeighborSampler", ([5],), {})
    ]
    # ways to get 0 to 5 of the 5 edges that are not excluded, among 5 draws from 10 edges
    distribution = torch.tensor([1.0, 25, 100, 100, 25, 1])
    assert all(chi_square_fits(torch.bincount(each, minlength=6), distribution) for each in counts)


DISTRIBUTIONS = {
    "uniform": ({}, lambda g, ids: torch.ones(len(ids))),
    "uniform, with replacement": ({"replace": True}, lambda g, ids: torch.ones(len(ids))),
    "by weight": ({"prob": "weight", "replace": True}, lambda g, ids: g.edata["weight"][ids]),
    "by weight, in double precision": ({"prob": "double", "replace": True}, lambda g, ids: g.edata["weight"][ids]),
    "by weight, in half precision": ({"prob": "half", "replace": True}, lambda g, ids: g.edata["half"][ids].float()),
    "masked": ({"mask": "mask"}, lambda g, ids: g.edata["mask"][ids].float()),
    "outward": ({"edge_dir": "out"}, lambda g, ids: torch.ones(len(ids))),
}


@pytest.mark.parametrize(("options", "distribution"), DISTRIBUTIONS.values(), ids=DISTRIBUTIONS)
def test_draws_follow_their_distribution(options, distribution):
    """The sampled edges of a node follow the distribution of each option; a batch draws 1 edge without replacement, or 50 with it."""
    g = graph()
    g.edata["double"], g.edata["half"] = g.edata["weight"].double(), g.edata["weight"].half()
    node = torch.tensor([7])
    ids = (g.out_edges if options.get("edge_dir") == "out" else g.in_edges)(node, form="eid")
    draws = 50 if options.get("replace") else 1
    sampler, counts = hoptrain.dgl.NeighborSampler([draws], **options), torch.zeros(g.num_edges())
    torch.manual_seed(11)
    for _ in range(400):
        counts += torch.bincount(sampler.sample(g, node)[2][0].edata[dgl.EID], minlength=g.num_edges())
    assert counts.sum() == counts[ids].sum() == 400 * draws
    assert chi_square_fits(counts[ids], distribution(g, ids))


def test_a_graph_is_converted_once_until_it_changes():
    g, sampler = graph(), hoptrain.dgl.NeighborSampler([3], prob="weight")
    first = sampler.of(g)
    assert all(one is other for one, other in zip(first, sampler.of(g), strict=True))
    g.edata["weight"][0] = 2.5
    changed = sampler.of(g)[1]
    assert changed is not first[1]
    g.add_edges(torch.tensor([1]), torch.tensor([2]))
    assert sampler.of(g)[1].graph.num_edges == 901


def test_names_of_features_are_marked_for_the_loader():
    marked = hoptrain.dgl.NeighborSampler([3], prefetch_node_feats=["feat"], prefetch_labels=["label"], prefetch_edge_feats=["kind"])
    block = marked.sample(graph(), SEEDS)[2][0]
    lazy = [block.srcdata["feat"], block.dstdata["label"], block.edata["kind"]]
    assert all(isinstance(each, dgl_case.dgl.frame.LazyFeature) for each in lazy)


def sample(*ids, g=None, fanout=3, **options):
    return hoptrain.dgl.NeighborSampler([fanout], **options).sample(graph() if g is None else g, *(ids or [SEEDS]))


def negative_weight():
    g = graph()
    g.edata["weight"][3] = -1
    sample(g=g, prob="weight")


MISTAKES = {
    "a negative number of rounds": Mistake(
        lambda: hoptrain.dgl.LaborSampler([3], importance_sampling=-1),
        value="importance_sampling is -1",
        rule="number rounds",
        remedy="give 0",
    ),
    "layers that draw together": Mistake(
        lambda: hoptrain.dgl.LaborSampler([3], layer_dependency=True),
        value="layer_dependency=True",
        rule="batch_dependency=1 layer batch draws",
        remedy="leave out",
    ),
    "batches that draw together": Mistake(
        lambda: hoptrain.dgl.LaborSampler([3], batch_dependency=4),
        value="batch_dependency=4",
        rule="layer_dependency=False layer batch draws",
        remedy="leave out",
    ),
    "a seed of the sampler's own": Mistake(
        lambda: hoptrain.dgl.LaborSampler([3]).set_seed(4),
        value="random_seed is 4",
        rule="draws torch's seed",
        remedy="torch.manual_seed",
    ),
    "fanouts by type of a graph with one": Mistake(
        lambda: sample(fanout={"_E": 3}), value="[{'_E': 3}]", rule="fanouts edge heterogeneous graph", remedy="one number layer"
    ),
    "a hop without edges": Mistake(lambda: sample(fanout=0), value="fanout 0 in [0]", rule="hop 1 edges -1", remedy="share 0.5"),
    "an unknown direction": Mistake(lambda: sample(edge_dir="up"), value="edge_dir is 'up'", rule="'in' 'out'", remedy="choose one"),
    "missing weights": Mistake(lambda: sample(prob="none"), value="'none'", rule="edges no feature weight", remedy="name one"),
    "two numbers as a weight": Mistake(lambda: sample(prob="kind"), value="'kind'", rule="feature (900, one number", remedy="name feature"),
    "seeds by type of a graph with one": Mistake(
        lambda: sample({"_N": SEEDS}), value="dict of _N", rule="ids heterogeneous graphs", remedy="give tensor"
    ),
    "an unknown seed": Mistake(lambda: sample(torch.tensor([60])), value="seed 60", rule="not graph nodes 59", remedy="drop"),
    "an unknown edge to leave out": Mistake(
        lambda: sample(SEEDS, torch.tensor([900])), value="edge 900", rule="not exist 899", remedy="leave"
    ),
    "a graph of torch": Mistake(lambda: sample(g=torch.eye(3)), value="Tensor", rule="graph DGLGraph", remedy="give one"),
    "seeds without a type": Mistake(
        lambda: sample(g=dgl.heterograph({("a", "b", "c"): ([0], [0])})), value="tensor", rule="seeds types a, c", remedy="dict type"
    ),
    "a negative weight": Mistake(negative_weight, value="-1.0", rule="weight edge finite 0 more", remedy="drop"),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
