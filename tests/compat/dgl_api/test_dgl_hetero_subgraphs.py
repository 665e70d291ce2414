"""Subgraphs and walks of heterogeneous graphs compared with DGL: ShaDow, top-k edges, metapath walks."""

import pytest
import torch
from cases.mistakes import Mistake, each_of
from dgl_case import chi_square_fits, dgl
from test_dgl_hetero import BY_TYPE, SEEDS, form, hetero_graph, seeds_of

import hoptrain.dgl
from hoptrain.dgl import sampling

WRITES = ("author", "writes", "paper")
pytestmark = pytest.mark.filterwarnings("ignore:Dataloader CPU affinity")


@pytest.fixture(params=[torch.int64, torch.int32], ids=["int64", "int32"])
def g(request):
    return hetero_graph(request.param)


def check_induced(g, subgraph):
    """Check that all ids have DGL's meaning, that features are those of the graph, and that no edge between the nodes is missing."""
    nodes = {kind: subgraph.nodes[kind].data[dgl.NID] for kind in g.ntypes}
    for kind, ids in nodes.items():
        assert len(ids.unique()) == len(ids)
        assert ids.dtype == g.idtype
        if kind != "venue":
            assert torch.equal(subgraph.nodes[kind].data["feat"], g.nodes[kind].data["feat"][ids.long()])
    for relation in g.canonical_etypes:
        (source, _, destination), (u, v) = relation, subgraph.edges(etype=relation)
        ids = subgraph.edges[relation].data[dgl.EID]
        ends = g.find_edges(ids, etype=relation)
        assert torch.equal(nodes[source][u.long()], ends[0])
        assert torch.equal(nodes[destination][v.long()], ends[1])
        assert torch.equal(subgraph.edges[relation].data["kind"], g.edges[relation].data["kind"][ids.long()])
        src, dst = g.edges(etype=relation)
        inside = torch.isin(src, nodes[source]) & torch.isin(dst, nodes[destination])
        assert torch.equal(ids.long().sort().values, inside.nonzero().flatten())


SHADOWS = {
    "plain": ([2, 3], {}),
    "by type": ([3, BY_TYPE], {}),
    "with replacement": ([2, 3], {"replace": True}),
    "by weight": ([2, 3], {"prob": "weight"}),
    "all": ([-1, -1], {}),
}


@pytest.mark.parametrize(("fanouts", "options"), SHADOWS.values(), ids=SHADOWS)
def test_shadow(g, fanouts, options):
    ours, theirs = (module.ShaDowKHopSampler(fanouts, **options) for module in (hoptrain.dgl, dgl.dataloading))
    mine, wanted = ours.sample(g, seeds_of(g)), theirs.sample(g, seeds_of(g))
    assert form(mine[2]) == form(wanted[2])
    assert mine[0].keys() == wanted[0].keys()
    assert all(torch.equal(mine[1][kind], ids) for kind, ids in wanted[1].items())
    for kind, seeds in SEEDS.items():
        assert torch.equal(mine[0][kind][: len(seeds)].long(), seeds)
        assert torch.equal(mine[0][kind], mine[2].nodes[kind].data[dgl.NID])
    check_induced(g, mine[2])
    if fanouts == [-1, -1]:
        assert all(mine[0][kind].sort().values.equal(ids.sort().values) for kind, ids in wanted[0].items())


def test_of_a_graph_whose_types_stand_in_another_order():
    """Subgraphs keep the graph's order of edge types, here the order given to ``edge_type_subgraph``."""
    g = hetero_graph().edge_type_subgraph(["cites", "writes"])
    _, _, subgraph = hoptrain.dgl.ShaDowKHopSampler([3]).sample(g, {"paper": SEEDS["paper"]})
    assert subgraph.canonical_etypes == g.canonical_etypes
    check_induced(g, subgraph)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_shadow_through_the_loader(num_workers):
    g = hetero_graph()
    names = {"prefetch_node_feats": {"paper": ["feat"], "author": ["feat"]}, "prefetch_edge_feats": {WRITES: ["kind"]}}

    def drawn(num_workers):
        torch.manual_seed(4)
        sampler = hoptrain.dgl.ShaDowKHopSampler([2, 2], **names)
        loader = hoptrain.dgl.DataLoader(g, {"paper": torch.arange(90)}, sampler, batch_size=20, shuffle=True, num_workers=num_workers)
        found = []
        for nodes, seeds, subgraph in loader:
            check_induced(g, subgraph)
            assert torch.equal(nodes["paper"][: len(seeds["paper"])], seeds["paper"])
            found.append([subgraph.edges[relation].data[dgl.EID].tolist() for relation in g.canonical_etypes])
        loader.close()
        return found

    assert drawn(num_workers) == drawn(0)


def test_shadow_without_the_edges_that_are_asked_for():
    g, ids = hetero_graph(), torch.arange(0, 400, 7)
    sampler = hoptrain.dgl.as_edge_prediction_sampler(hoptrain.dgl.ShaDowKHopSampler([3, 3]), exclude="self")
    for _, pairs, subgraph in hoptrain.dgl.DataLoader(g, {WRITES: ids}, sampler, batch_size=20):
        asked = pairs.edges[WRITES].data[dgl.EID]
        assert len(asked) > 0
        assert not torch.isin(subgraph.edges[WRITES].data[dgl.EID], asked).any()
        assert subgraph.num_edges(WRITES) > 0


TOP = {
    "all nodes": (2, {}),
    "by type": ({"writes": 2, ("paper", "cites", "paper"): -1, "in": 0}, {}),
    "of some": (1, {"nodes": {"paper": torch.tensor([3, 90, 4])}, "ascending": True}),
    "outward": (2, {"edge_dir": "out", "nodes": {"author": torch.tensor([7, 2]), "paper": torch.tensor([1])}}),
    "without features": (2, {"copy_ndata": False, "copy_edata": False}),
}


@pytest.mark.parametrize(("k", "options"), TOP.values(), ids=TOP)
def test_the_heaviest_edges_are_those_of_dgl(g, k, options):
    for relation in g.canonical_etypes:
        g.edges[relation].data["own"] = torch.randperm(g.num_edges(relation), generator=torch.Generator().manual_seed(2)) - 40
    if "nodes" in options:
        options = options | {"nodes": {kind: ids.to(g.idtype) for kind, ids in options["nodes"].items()}}
    mine, wanted = (module.select_topk(g, k, "own", **options) for module in (sampling, dgl.sampling))
    assert mine.num_nodes("paper") == 120
    assert (mine.idtype, mine.canonical_etypes) == (g.idtype, g.canonical_etypes)
    for relation in g.canonical_etypes:
        ends = [sorted(zip(*map(torch.Tensor.tolist, made.edges(etype=relation)), strict=True)) for made in (mine, wanted)]
        assert ends[0] == ends[1]
        assert set(mine.edges[relation].data) == set(wanted.edges[relation].data)
    assert all(set(mine.nodes[kind].data) == set(wanted.nodes[kind].data) for kind in g.ntypes)


PATHS = {
    "uniform": (["writes", "cites", "in"], {}),
    "by weight, where there are some": (["writes", "cites"], {"prob": "weight"}),
    "that end": ([WRITES, "cites", "cites"], {"restart_prob": torch.tensor([0.0, 0.5, 0.5])}),
}


@pytest.mark.parametrize(("metapath", "options"), PATHS.values(), ids=PATHS)
def test_walks_along_a_metapath(g, metapath, options):
    nodes = (torch.arange(300) % 80).to(g.idtype)
    mine, wanted = (module.random_walk(g, nodes, metapath=metapath, return_eids=True, **options) for module in (sampling, dgl.sampling))
    assert [(each.dtype, each.shape) for each in mine[:2]] == [(each.dtype, each.shape) for each in wanted[:2]]
    assert torch.equal(mine[2], wanted[2].long())
    traces, ids, _ = mine
    assert (ids >= 0).sum() > 300
    for step, etype in enumerate(metapath):
        taken = ids[:, step] >= 0
        src, dst = g.find_edges(ids[taken, step], etype=etype)
        assert torch.equal(traces[taken, step], src)
        assert torch.equal(traces[taken, step + 1], dst)
        assert (traces[~taken, step + 1] == -1).all()
        if "prob" in options and etype == "writes":
            assert (g.edges[etype].data["weight"][ids[taken, step].long()] > 0).all()
    assert len(sampling.random_walk(g, nodes, metapath=metapath)) == 2


@pytest.mark.parametrize("prob", [None, "weight"])
def test_steps_follow_the_distribution_of_dgl(prob):
    g, author = hetero_graph(), 7
    edges = g.out_edges(author, form="eid", etype="writes")
    distribution = torch.ones(len(edges)) if prob is None else g.edges["writes"].data["weight"][edges]
    torch.manual_seed(3)
    dgl.seed(3)
    for module in (sampling, dgl.sampling):
        _, ids, _ = module.random_walk(g, torch.full((4000,), author), metapath=["writes", "in"], prob=prob, return_eids=True)
        counts = torch.bincount(ids[:, 0], minlength=400)
        assert counts[edges].sum() == 4000
        assert chi_square_fits(counts[edges], distribution)


MISTAKES = {
    "a walk of any types": Mistake(
        lambda: sampling.random_walk(hetero_graph(), [1], length=2),
        value="author:writes:paper",
        rule="graph edge types one",
        remedy="dgl.to_homogeneous(g)",
    ),
    "a step from where no walk is": Mistake(
        lambda: sampling.random_walk(hetero_graph(), [1], metapath=["writes", "writes"]),
        value="['writes', 'writes']",
        rule="metapath begins 'author' walk",
        remedy="choose another step",
    ),
    "an unknown step": Mistake(
        lambda: sampling.random_walk(hetero_graph(), [1], metapath=["reads"]),
        value="['reads']",
        rule="metapath steps edge types",
        remedy="choose",
    ),
    "an unknown node": Mistake(
        lambda: sampling.random_walk(hetero_graph(), [80], metapath=["writes"]), value="seed 80", rule="not graph nodes 79", remedy="drop"
    ),
    "a walk by missing weights": Mistake(
        lambda: sampling.random_walk(hetero_graph(), [1], metapath=["cites"], prob="weight"),
        value="'weight'",
        rule="paper:cites:paper no feature kind",
        remedy="name one",
    ),
    "numbers of edges for some types": Mistake(
        lambda: sampling.select_topk(hetero_graph(), {"writes": 1}, "weight"),
        value="paper:cites:paper, paper:in:venue",
        rule="values k lack",
        remedy="number every edge type",
    ),
    "the heaviest edges by missing weights": Mistake(
        lambda: sampling.select_topk(hetero_graph(), 1, "weight"),
        value="'weight'",
        rule="paper:cites:paper no feature kind",
        remedy="name one",
    ),
    "nodes without a type": Mistake(
        lambda: sampling.select_topk(hetero_graph(), 1, "kind", torch.tensor([1])),
        value="tensor",
        rule="nodes types author, venue",
        remedy="dict type",
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
