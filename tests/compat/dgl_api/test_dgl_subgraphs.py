"""Subgraph samplers equal DGL's: types, meaning of ids, subgraphs of the same nodes, and distributions of random nodes."""

import pickle

import pytest
import torch
from cases.mistakes import Mistake, each_of, refused
from dgl_case import check_subgraph, dgl, form, graph

import hoptrain.dgl

SEEDS = torch.tensor([11, 3, 30])


@pytest.fixture(params=[torch.int64, torch.int32], ids=["int64", "int32"])
def g(request):
    return graph(request.param)


def edges_between(g, nodes):
    ends = torch.stack(g.edges())
    return torch.isin(ends, nodes).all(0).nonzero().flatten()


def check_induced(g, subgraph):
    check_subgraph(g, subgraph)
    assert torch.equal(subgraph.edata[dgl.EID].long().sort().values, edges_between(g, subgraph.ndata[dgl.NID]))


@pytest.mark.parametrize("options", [{}, {"replace": True}, {"prob": "weight"}], ids=str)
def test_shadow(g, options):
    ours, theirs = (module.ShaDowKHopSampler([2, 3], **options) for module in (hoptrain.dgl, dgl.dataloading))
    seeds = SEEDS.to(g.idtype)
    mine, wanted = ours.sample(g, seeds), theirs.sample(g, seeds)
    assert form(mine) == form(wanted)
    assert torch.equal(mine[1], seeds)
    assert torch.equal(mine[0][:3], seeds)
    assert torch.equal(mine[0], mine[2].ndata[dgl.NID])
    check_induced(g, mine[2])


def test_shadow_of_all_neighbours_without_some_edges(g):
    excluded = g.in_edges(SEEDS.to(g.idtype), form="eid")[::2]
    seeds = SEEDS.to(g.idtype)
    for edges in (None, excluded):
        mine, wanted = (module.ShaDowKHopSampler([-1]).sample(g, seeds, edges) for module in (hoptrain.dgl, dgl.dataloading))
        ids = [sorted(each[2].edata[dgl.EID].tolist()) for each in (mine, wanted)]
        if edges is None:
            assert ids[0] == ids[1]
            assert mine[0].sort().values.equal(wanted[0].sort().values)
        else:  # unlike DGL, hoptrain keeps a node that was reached only by excluded edges
            assert set(ids[1]) <= set(ids[0])
            assert not set(ids[0]) & set(edges.tolist())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # DGL leaves a file open
def test_clusters(g, tmp_path):
    ours = hoptrain.dgl.ClusterGCNSampler(g, 4, cache_path=str(tmp_path / "clusters"), prefetch_ndata=[])
    again = hoptrain.dgl.ClusterGCNSampler(g, 4, cache_path=str(tmp_path / "clusters"))
    assert torch.equal(ours.partition_node_ids, again.partition_node_ids)
    (tmp_path / "dgl.pkl").write_bytes(pickle.dumps((ours.partition_offset, ours.partition_node_ids.to(g.idtype))))
    theirs = dgl.dataloading.ClusterGCNSampler(g, 4, cache_path=str(tmp_path / "dgl.pkl"))
    parts = torch.tensor([2, 0])
    mine, wanted = ours.sample(g, parts), theirs.sample(g, parts)
    assert form(mine) == form(wanted)
    assert torch.equal(mine.ndata[dgl.NID], wanted.ndata[dgl.NID])
    check_induced(g, mine)
    assert mine.edata[dgl.EID].sort().values.equal(wanted.edata[dgl.EID].sort().values)
    for name, k, other, rule in (
        ("dgl.pkl", 4, g, "no clusters hoptrain"),
        ("clusters", 2, g, "60 nodes graph k"),
        ("clusters", 4, dgl.add_nodes(g, 1), "60 nodes graph k"),
    ):
        with refused(name, rule, "remove another cache_path"):
            hoptrain.dgl.ClusterGCNSampler(other, k, cache_path=str(tmp_path / name))


SAINT = {"node": 6, "edge": 4, "walk": (3, 2)}


@pytest.mark.parametrize("mode", SAINT)
def test_saint(g, mode):
    wide = g.long()  # DGL draws the roots of walks only in int64
    ours, theirs = (module.SAINTSampler(mode, SAINT[mode]) for module in (hoptrain.dgl, dgl.dataloading))
    assert form(ours.sample(wide)) == form(theirs.sample(wide, None))
    for number in range(5):
        subgraph = ours.sample(g, torch.tensor([number]))
        check_induced(g, subgraph)
        if mode != "walk":
            assert 0 < subgraph.num_nodes() <= SAINT[mode] * (2 if mode == "edge" else 1)


def test_walks_go_along_the_edges():
    walk, path = hoptrain.dgl.SAINTSampler("walk", (1, 2)), dgl.graph((torch.arange(5), torch.arange(1, 6)))
    found = {tuple(sorted(walk.sample(path).ndata[dgl.NID].tolist())) for _ in range(200)}
    assert found == {(0, 1, 2), (1, 2, 3), (2, 3, 4), (3, 4, 5), (4, 5), (5,)}


MISTAKES = {
    "an unknown mode": Mistake(
        lambda: hoptrain.dgl.SAINTSampler("other", 3), value="mode is 'other'", rule="'node' 'edge' 'walk'", remedy="choose one"
    ),
    "a subgraph of no draws": Mistake(
        lambda: hoptrain.dgl.SAINTSampler("node", 0), value="budget is 0", rule="subgraph 1 draws", remedy="range"
    ),
    "walks of no steps": Mistake(
        lambda: hoptrain.dgl.SAINTSampler("walk", (3, 0)), value="walk_length is 0", rule="walk one step", remedy="1 more"
    ),
    "a graph without edges": Mistake(
        lambda: hoptrain.dgl.SAINTSampler("node", 3).sample(dgl.graph(([], []), num_nodes=3)),
        value="no edges",
        rule="graph draws edges",
        remedy="another sampler",
    ),
    "fanouts by type of a graph with one": Mistake(
        lambda: hoptrain.dgl.ShaDowKHopSampler([{"_E": 3}]).sample(graph(), SEEDS),
        value="[{'_E': 3}]",
        rule="fanouts edge heterogeneous graph",
        remedy="one number layer",
    ),
    "clusters of a heterogeneous graph": Mistake(
        lambda: hoptrain.dgl.ClusterGCNSampler(dgl.heterograph({("a", "b", "c"): ([0], [0])}), 2),
        value="a:b:c",
        rule="graph edge types one",
        remedy="dgl.to_homogeneous(g)",
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
