"""The functions of ``hoptrain.dgl.sampling`` and SpotTarget equal DGL's: types, results where nothing is random, and distributions."""

import numpy as np
import pytest
import torch
from cases.mistakes import Mistake, each_of
from dgl_case import chi_square_fits, dgl, graph

import hoptrain.dgl
from hoptrain.dgl import sampling

NODES = torch.tensor([3, 17, 3, 59, 40])
WALKS = {
    "uniform": {"length": 4},
    "by weight": {"length": 4, "prob": "weight"},
    "that end": {"length": 4, "restart_prob": 0.3},
    "that end by step": {"length": 3, "restart_prob": torch.tensor([0.0, 0.5, 1.0])},
    "along a metapath": {"metapath": ["_E"] * 3},
}

TOP = [{}, {"ascending": True}, {"edge_dir": "out"}, {"nodes": NODES.unique()}, {"copy_ndata": False}, {"copy_edata": False}]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("options", WALKS.values(), ids=WALKS)
def test_walks_are_along_edges(options, dtype):
    g = graph(dtype)
    found, theirs = (module.random_walk(g, NODES.to(dtype), return_eids=True, **options) for module in (sampling, dgl.sampling))
    assert [(each.dtype, each.shape) for each in found[:2]] == [(each.dtype, each.shape) for each in theirs[:2]]
    assert found[2].dtype == theirs[2].dtype == dtype
    assert torch.equal(found[2], theirs[2])
    traces, ids, _ = found
    taken = ids >= 0
    src, dst = g.find_edges(ids[taken])
    assert torch.equal(traces[:, :-1][taken], src)
    assert torch.equal(traces[:, 1:][taken], dst)
    assert (traces[:, 1:][~taken] == -1).all()
    assert len(sampling.random_walk(g, NODES.to(dtype), **options)) == 2
    packed, wanted = (module.pack_traces(traces, theirs[2]) for module in (sampling, dgl.sampling))
    assert all(torch.equal(one, other.to(one.dtype)) for one, other in zip(packed, wanted, strict=True))


@pytest.mark.parametrize("prob", [None, "weight"])
def test_steps_follow_the_distribution_of_dgl(prob):
    """The steps of hoptrain's walks follow the distribution of DGL's, and so do the ends of walks."""
    g, start = graph(), torch.full((4000,), 7)
    torch.manual_seed(3)
    dgl.seed(3)
    edges = g.out_edges(7, form="eid")
    distribution = torch.ones(len(edges)) if prob is None else g.edata["weight"][edges]
    for module in (sampling, dgl.sampling):
        _, ids, _ = module.random_walk(g, start, length=1, prob=prob, restart_prob=0.25, return_eids=True)
        counts = torch.bincount(ids[:, 0] + 1, minlength=901)
        assert chi_square_fits(counts[1:][edges], distribution)
        assert chi_square_fits(torch.tensor([counts[0], 4000 - counts[0]]), torch.tensor([0.25, 0.75]))


def test_walks_repeat_by_torch_s_seed_and_take_one_number():
    g = graph()

    def drawn():
        torch.manual_seed(8)
        found = [sampling.random_walk(g, NODES, length=5)[0] for _ in range(2)]
        return found, torch.rand(1)

    (first, second), after = drawn()
    assert not torch.equal(first, second)
    assert torch.equal(drawn()[0][0], first)
    assert torch.equal(drawn()[1], after)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize(
    "options",
    [{}, {"ascending": True}, {"edge_dir": "out"}, {"nodes": NODES.unique()}, {"copy_ndata": False}, {"copy_edata": False}],
    ids=str,
)
@pytest.mark.parametrize("k", [0, 3, -1])
def test_the_heaviest_edges_are_those_of_dgl(options, k, dtype):
    g = graph(dtype)
    g.edata["own"] = torch.randperm(900, generator=torch.Generator().manual_seed(2)) - 400
    options = {name: value.to(dtype) if torch.is_tensor(value) else value for name, value in options.items()}
    for weight in ("weight", "own"):
        ours, theirs = (module.select_topk(g, k, weight, **options) for module in (sampling, dgl.sampling))
        assert sorted(zip(*map(torch.Tensor.tolist, ours.edges()), strict=True)) == sorted(
            zip(*map(torch.Tensor.tolist, theirs.edges()), strict=True)
        )
        assert (ours.num_nodes(), ours.idtype) == (60, dtype)
        assert (set(ours.ndata), set(ours.edata)) == (set(theirs.ndata), set(theirs.edata))
        if dgl.EID in ours.edata:
            assert torch.equal(ours.edata[dgl.EID].sort().values, theirs.edata[dgl.EID].sort().values)
            assert torch.equal(ours.edata["kind"], g.edata["kind"][ours.edata[dgl.EID].long()])
        for name in ours.ndata:
            assert torch.equal(ours.ndata[name], g.ndata[name])


@pytest.mark.parametrize("one", [3, [3], torch.tensor(3), torch.tensor([3])], ids=repr)
def test_one_node_may_be_a_number(one):
    g = graph()
    expected = dgl.sampling.select_topk(g, 2, "weight", torch.tensor([3]))
    for nodes in (one, {"_N": one}):
        assert torch.equal(sampling.select_topk(g, 2, "weight", nodes).edata[dgl.EID], expected.edata[dgl.EID])


def test_nodes_of_several_types_are_tensors_arrays_lists_or_numbers():
    ends = {("user", "plays", "game"): ([0, 1, 2, 0], [0, 0, 1, 1]), ("game", "by", "user"): ([0, 1, 1, 0], [0, 0, 1, 2])}
    g = dgl.heterograph(ends, idtype=torch.int32)
    for relation in g.canonical_etypes:
        g.edges[relation].data["weight"] = torch.tensor([0.4, 0.1, 0.3, 0.2])
    expected = dgl.sampling.select_topk(g, 1, "weight", {"user": [0, 1], "game": 0})
    for user, game in (([0, 1], 0), (np.array([0, 1]), np.int64(0)), (range(2), torch.tensor(0)), (torch.tensor([0, 1]), [0])):
        found = sampling.select_topk(g, 1, "weight", {"user": user, "game": game})
        for relation in g.canonical_etypes:
            assert torch.equal(found.edges[relation].data[dgl.EID], expected.edges[relation].data[dgl.EID])
    for one in (2, [2], torch.tensor(2)):
        traces, types = sampling.random_walk(g, one, metapath=["plays", "by"])
        theirs = dgl.sampling.random_walk(g, 2, metapath=["plays", "by"])
        assert (traces.shape, traces.dtype, traces[0, 0]) == (theirs[0].shape, theirs[0].dtype, 2)
        assert torch.equal(types, theirs[1])


@pytest.mark.parametrize("num_workers", [0, 1])
def test_spot_target_excludes_edges_of_low_degrees(num_workers):
    g = graph()
    excluder = hoptrain.dgl.SpotTarget(g, exclude="self", degree_threshold=14)
    sampler = hoptrain.dgl.as_edge_prediction_sampler(hoptrain.dgl.NeighborSampler([-1]), exclude=excluder)
    loader = hoptrain.dgl.DataLoader(g, torch.arange(200), sampler, batch_size=100, num_workers=num_workers)
    lost = 0
    for edges, (_, pairs, blocks) in zip(torch.arange(200).split(100), loader, strict=True):
        is_low = g.in_degrees(torch.stack(g.find_edges(edges)).view(-1)).view(2, -1).min(0).values < 14
        around = g.in_edges(pairs.ndata[dgl.NID], form="eid")
        wanted = around[~torch.isin(around, edges[is_low])]
        assert torch.equal(blocks[0].edata[dgl.EID].sort().values, wanted.sort().values)
        lost += int(is_low.sum())
    assert 0 < lost < 200
    loader.close()


MISTAKES = {
    "an unknown node": Mistake(
        lambda: sampling.random_walk(graph(), [60], length=2), value="seed 60", rule="not graph nodes 59", remedy="drop"
    ),
    "a node as a fraction": Mistake(
        lambda: sampling.random_walk(graph(), [0.5], length=2),
        value="torch.float32 of shape (1,)",
        rule="ids (N,) integers",
        remedy="give tensor",
    ),
    "a list of lists": Mistake(
        lambda: sampling.random_walk(graph(), [[1]], length=2),
        value="torch.int64 of shape (1, 1)",
        rule="ids (N,) integers",
        remedy="give tensor",
    ),
    "a truth value as a node": Mistake(
        lambda: sampling.select_topk(graph(), 1, "weight", {"_N": [True]}),
        value="torch.bool of shape (1,)",
        rule="ids (N,) integers",
        remedy="give tensor",
    ),
    "a text as a node": Mistake(
        lambda: sampling.select_topk(graph(), 1, "weight", {"_N": "a"}), value="'a'", rule="ids (N,) integers", remedy="give tensor"
    ),
    "a walk without a length": Mistake(
        lambda: sampling.random_walk(graph(), [1]), value="length is None", rule="metapath None steps walk", remedy="give one"
    ),
    "an unknown step": Mistake(
        lambda: sampling.random_walk(graph(), [1], metapath=["other"]),
        value="['other']",
        rule="metapath steps types _N:_E:_N",
        remedy="choose",
    ),
    "a probability above 1": Mistake(
        lambda: sampling.random_walk(graph(), [1], length=2, restart_prob=2.0),
        value="ends is 2.0",
        rule="walk 2 probability 1",
        remedy="give instance 0.1",
    ),
    "a walk by missing weights": Mistake(
        lambda: sampling.random_walk(graph(), [1], length=2, prob="none"), value="'none'", rule="edges no feature weight", remedy="name one"
    ),
    "a negative number of edges": Mistake(
        lambda: sampling.select_topk(graph(), -2, "weight"), value="k is -2", rule="node keeps 0 -1", remedy="give"
    ),
    "the heaviest edges by missing weights": Mistake(
        lambda: sampling.select_topk(graph(), 1, "none"), value="'none'", rule="edges no feature weight", remedy="name one"
    ),
    "two numbers as a weight": Mistake(
        lambda: sampling.select_topk(graph(), 1, "kind"), value="'kind'", rule="feature (900, one number", remedy="name feature"
    ),
    "weights of edges without features": Mistake(
        lambda: sampling.select_topk(dgl.heterograph({("a", "b", "c"): ([0], [0])}), 1, "w"),
        value="'w'",
        rule="edges a:b:c no none",
        remedy="name one",
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
