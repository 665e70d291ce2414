"""With edges as seeds, results equal DGL's: types, pairs and excluded edges; negatives follow their distribution."""

import pytest
import torch
from cases.mistakes import Mistake, each_of
from dgl_case import check_block, chi_square_fits, dgl, edge_ids, form, graph

import hoptrain.dgl
from hoptrain.dgl import negative_sampler

EDGES = torch.tensor([5, 700, 31, 5, 88])
REVERSE = torch.arange(900).flip(0)
EXCLUDE = {
    "nothing": {},
    "self": {"exclude": "self"},
    "reverse_id": {"exclude": "reverse_id", "reverse_eids": REVERSE},
    "function": {"exclude": lambda edges: torch.cat([edges, (edges + 1) % 900])},
    "tensor": {"exclude": torch.arange(0, 900, 7)},
}
NEGATIVES = {"none": None, "uniform": "Uniform", "global": "GlobalUniform"}


@pytest.fixture(params=[torch.int64, torch.int32], ids=["int64", "int32"])
def g(request):
    return graph(request.param)


def both(fanouts, negatives=None, kind="NeighborSampler", **options):
    made = []
    for module in (hoptrain.dgl, dgl.dataloading):
        draws = negatives and getattr(module.negative_sampler, negatives)(3)
        made.append(module.as_edge_prediction_sampler(getattr(module, kind)(fanouts), negative_sampler=draws, **options))
    return made


def as_of(g, options):
    return {name: value.to(g.idtype) if isinstance(value, torch.Tensor) else value for name, value in options.items()}


@pytest.mark.parametrize("options", EXCLUDE.values(), ids=EXCLUDE)
@pytest.mark.parametrize("negatives", NEGATIVES.values(), ids=NEGATIVES)
def test_edges(g, options, negatives):
    ours, theirs = both([3, 4], negatives, **as_of(g, options))
    edges = EDGES.to(g.idtype)
    mine, wanted = ours.sample(g, edges), theirs.sample(g, edges.clone())  # a clone, since DGL sorts the excluded edges in place
    assert form(mine) == form(wanted)
    pairs, blocks = mine[1], mine[-1]
    assert torch.equal(pairs.edata[dgl.EID], edges)
    u, v = pairs.edges()
    nodes = pairs.ndata[dgl.NID]
    assert torch.equal(torch.stack([nodes[u.long()], nodes[v.long()]]), torch.stack(g.find_edges(edges)))
    assert torch.equal(nodes, blocks[-1].dstdata[dgl.NID])
    if negatives:
        assert torch.equal(mine[2].ndata[dgl.NID], nodes)
        assert mine[2].num_edges() == wanted[2].num_edges() == 15
    if negatives == "Uniform":
        assert torch.equal(nodes[mine[2].edges()[0].long()], g.find_edges(edges)[0].repeat_interleave(3))
    for block in blocks:
        check_block(g, block, mine[0])


@pytest.mark.parametrize("options", EXCLUDE.values(), ids=EXCLUDE)
@pytest.mark.parametrize("kind", ["NeighborSampler", "LaborSampler"])
def test_exclusions_are_those_of_dgl(g, options, kind):
    ours, theirs = both([-1, -1], kind=kind, **as_of(g, options))
    mine, wanted = (sampler.sample(g, EDGES.to(g.idtype, copy=True)) for sampler in (ours, theirs))
    assert edge_ids(mine[2]) == edge_ids(wanted[2])
    assert mine[0].sort().values.equal(wanted[0].sort().values)


def test_the_class_of_dgl_s_function(g):
    """``EdgePredictionSampler`` is DGL's class, which samples with the sampler that it is given."""
    sampler = hoptrain.dgl.EdgePredictionSampler(hoptrain.dgl.NeighborSampler([-1, -1]), exclude="self")
    found = next(iter(hoptrain.dgl.DataLoader(g, EDGES.to(g.idtype), sampler, batch_size=5)))
    wanted = both([-1, -1], exclude="self")[0].sample(g, EDGES.to(g.idtype))
    assert edge_ids(found[2]) == edge_ids(wanted[2])


def test_around_shadow(g):
    ours, theirs = both([2], kind="ShaDowKHopSampler", exclude="self")
    mine, wanted = (sampler.sample(g, EDGES.to(g.idtype, copy=True)) for sampler in (ours, theirs))
    assert form(mine) == form(wanted)
    assert not torch.isin(mine[2].edata[dgl.EID], EDGES).any()


@pytest.mark.parametrize("options", [{}, {"exclude_self_loops": False}, {"replace": True}], ids=str)
def test_global_negatives_are_no_edges(g, options):
    draws, edges = negative_sampler.GlobalUniform(50, **options), EDGES.to(g.idtype)
    torch.manual_seed(2)
    src, dst = draws(g, edges)
    assert len(src) == len(dst) == 250
    assert src.dtype == dst.dtype == g.idtype
    assert not g.has_edges_between(src, dst).any()
    assert (src != dst).all() or "exclude_self_loops" in options
    assert len(torch.stack([src, dst]).unique(dim=1).T) == 250 or "replace" in options


def test_global_negatives_are_uniform():
    g = dgl.graph((torch.tensor([0, 0, 1, 3]), torch.tensor([1, 2, 2, 3])), num_nodes=5)
    torch.manual_seed(1)
    distribution = torch.ones(5, 5)
    distribution[g.edges()] = 0
    distribution.fill_diagonal_(0)
    counts = torch.zeros(5, 5)
    for replace in (True, False):
        draws = negative_sampler.GlobalUniform(100 if replace else 1, replace=replace)
        for _ in range(10 if replace else 200):
            counts.index_put_(draws(g, torch.tensor([0, 1, 2])), torch.ones(()), accumulate=True)
    assert chi_square_fits(counts.flatten(), distribution.flatten())


def test_a_dense_graph_has_fewer():
    ends = torch.cartesian_prod(torch.arange(6), torch.arange(6)).T[:, 2:]
    src, dst = negative_sampler.GlobalUniform(9)(dgl.graph((ends[0], ends[1])), torch.arange(4))
    assert torch.stack([src, dst]).T.tolist() == [[0, 1]]


def edge_sampler(**options):
    return hoptrain.dgl.as_edge_prediction_sampler(**({"sampler": hoptrain.dgl.NeighborSampler([3])} | options))


MISTAKES = {
    "a sampler of DGL's": Mistake(
        lambda: edge_sampler(sampler=dgl.dataloading.NeighborSampler([3])),
        value="sampler is a NeighborSampler",
        rule="edges sample hoptrain.dgl's",
        remedy="LaborSampler ShaDowKHopSampler",
    ),
    "reverse types that nobody states": Mistake(
        lambda: edge_sampler(exclude="reverse_types"),
        value="'reverse_types'",
        rule="exclude reverse_etypes None edge",
        remedy="give both",
    ),
    "reverse types that are not excluded": Mistake(
        lambda: edge_sampler(reverse_etypes={"a": "b"}),
        value="{'a': 'b'}",
        rule="exclude None reverse_etypes 'reverse_types'",
        remedy="give both",
    ),
    "reverse edges that nobody states": Mistake(
        lambda: edge_sampler(exclude="reverse_id"), value="'reverse_id'", rule="exclude without reverse_eids", remedy="give id reverse edge"
    ),
    "an unknown exclusion": Mistake(
        lambda: edge_sampler(exclude="others"),
        value="'others'",
        rule="'self' 'reverse_id' 'reverse_types' function",
        remedy="choose one",
    ),
    "negatives of DGL's": Mistake(
        lambda: edge_sampler(negative_sampler=dgl.dataloading.negative_sampler.GlobalUniform(2)),
        value="DGL's GlobalUniform",
        rule="negative_sampler draws not repeat",
        remedy="hoptrain.dgl.negative_sampler.GlobalUniform",
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
