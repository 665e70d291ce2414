"""Blocks of heterogeneous graphs equal DGL's: types of results, meaning of ids, edges where nothing is random, and distributions."""

import pytest
import torch
from cases.mistakes import Mistake, each_of
from dgl_case import chi_square_fits, dgl

import hoptrain.dgl

pytestmark = pytest.mark.filterwarnings("ignore:Dataloader CPU affinity")
TYPES = {
    ("author", "writes", "paper"): (80, 120, 400),
    ("paper", "cites", "paper"): (120, 110, 500),
    ("paper", "in", "venue"): (120, 6, 100),
}
WRITES = ("author", "writes", "paper")
SEEDS = {"paper": torch.tensor([11, 3, 70, 30]), "venue": torch.tensor([5, 0])}
BY_TYPE = {"writes": 2, "cites": 3, ("paper", "in", "venue"): 1}


def hetero_graph(dtype=torch.int64):
    """Return a graph of authors, papers and venues; venues have no out-edges."""
    generator = torch.Generator().manual_seed(5)
    edges = {
        relation: tuple((torch.rand(2, number, generator=generator) * torch.tensor([[float(src)], [float(dst)]])).to(dtype))
        for relation, (src, dst, number) in TYPES.items()
    }
    g = dgl.heterograph(edges, {"author": 80, "paper": 120, "venue": 6})
    g.nodes["paper"].data["feat"], g.nodes["author"].data["feat"] = (torch.rand(n, 5, generator=generator) for n in (120, 80))
    g.nodes["paper"].data["label"] = torch.arange(120) % 4
    for relation in TYPES:
        g.edges[relation].data["kind"] = torch.rand(g.num_edges(relation), 2, generator=generator)
    g.edges["writes"].data["weight"] = torch.where(torch.arange(400) % 3 == 0, 0.0, torch.rand(400, generator=generator))
    return g


@pytest.fixture(params=[torch.int64, torch.int32], ids=["int64", "int32"])
def g(request):
    return hetero_graph(request.param)


def seeds_of(g):
    return {kind: ids.to(g.idtype) for kind, ids in SEEDS.items()}


def check_block(g, block, nodes):
    """Check that all ids of a block have DGL's meaning, and that its features are those of the graph."""
    assert block.srctypes == block.dsttypes == g.ntypes
    for kind in g.ntypes:
        src, dst = block.srcnodes[kind].data[dgl.NID], block.dstnodes[kind].data[dgl.NID]
        assert torch.equal(src, nodes[kind][: len(src)])
        assert torch.equal(dst, src[: len(dst)])
        assert src.dtype == g.idtype
        if kind != "venue":
            assert torch.equal(block.srcnodes[kind].data["feat"], g.nodes[kind].data["feat"][src.long()])
    for relation in g.canonical_etypes:
        u, v = block.edges(etype=relation)
        ids = block.edges[relation].data[dgl.EID]
        ends = g.find_edges(ids, etype=relation)
        assert torch.equal(block.srcnodes[relation[0]].data[dgl.NID][u.long()], ends[0])
        assert torch.equal(block.dstnodes[relation[2]].data[dgl.NID][v.long()], ends[1])
        assert ids.dtype == block.idtype == g.idtype
        assert torch.equal(block.edges[relation].data["kind"], g.edges[relation].data["kind"][ids.long()])


def form(block):
    """Return the node and edge types, and the names and dtypes of their features."""
    views = [(block.srcnodes, block.srctypes), (block.dstnodes, block.dsttypes), (block.edges, block.canonical_etypes)]
    data = [view[kind].data for view, kinds in views for kind in kinds]
    schemes = [{key: (rows.dtype, rows.shape[1:]) for key, rows in own.items()} for own in data]
    return type(block).__name__, block.srctypes, block.dsttypes, block.canonical_etypes, block.idtype, schemes


def edge_ids(blocks):
    return [{relation: sorted(block.edges[relation].data[dgl.EID].tolist()) for relation in block.canonical_etypes} for block in blocks]


KINDS = {
    "neighbours": ("NeighborSampler", ([3, 4],), {}),
    "by type": ("NeighborSampler", ([3, BY_TYPE],), {}),
    "all": ("MultiLayerFullNeighborSampler", (2,), {}),
    "with replacement": ("NeighborSampler", ([3, 4],), {"replace": True}),
    "by weight": ("NeighborSampler", ([3, 4],), {"prob": "weight"}),
    "labor": ("LaborSampler", ([3, BY_TYPE],), {}),
    "labor, all": ("LaborSampler", ([-1, -1],), {}),
    "labor, two rounds": ("LaborSampler", ([3, BY_TYPE],), {"importance_sampling": 2}),
    "labor by weight": ("LaborSampler", ([3, 2],), {"prob": "weight", "importance_sampling": 1}),
    "all that have weight": ("NeighborSampler", ([-1, -1],), {"prob": "weight"}),
}


def check_weights(blocks):
    """Check that the edge weights of each node have the mean 1, and remove them, since DGL 2.1 returns none for heterogeneous graphs."""
    for block in blocks:
        for relation in block.canonical_etypes:
            weights = block.edges[relation].data.pop("edge_weights")
            sums = torch.zeros(block.num_dst_nodes(relation[2])).index_add_(0, block.edges(etype=relation)[1].long(), weights)
            torch.testing.assert_close(sums, block.in_degrees(etype=relation).float())


@pytest.mark.parametrize(("kind", "arguments", "options"), KINDS.values(), ids=KINDS)
def test_blocks(g, kind, arguments, options):
    ours = getattr(hoptrain.dgl, kind)(*arguments, **options)
    unfused = {} if kind == "LaborSampler" else {"fused": False}  # DGL's fused sampling loses input nodes of int32
    theirs = getattr(dgl.dataloading, kind)(*arguments, **options, **unfused)
    mine, wanted = ours.sample(g, seeds_of(g)), theirs.sample(g, seeds_of(g))
    if kind == "LaborSampler" and options:
        check_weights(mine[2])
    assert [form(block) for block in mine[2]] == [form(block) for block in wanted[2]]
    assert mine[1].keys() == wanted[1].keys()
    for block in mine[2]:
        check_block(g, block, mine[0])
    last, other = mine[2][-1], wanted[2][-1]
    for relation in (
        g.canonical_etypes if kind != "LaborSampler" else []
    ):  # each seed has the same number of edges, although they are random
        assert torch.equal(last.in_degrees(etype=relation), other.in_degrees(etype=relation))
    if "Full" in kind or arguments == ([-1, -1],):
        assert edge_ids(mine[2]) == edge_ids(wanted[2])
        assert all(sorted(mine[0][name].tolist()) == sorted(ids.tolist()) for name, ids in wanted[0].items())


def test_seeds_that_stand_there_twice():
    g, seeds = hetero_graph(), {"paper": torch.tensor([4, 9, 4])}
    _, _, blocks = hoptrain.dgl.NeighborSampler([3]).sample(g, seeds)
    first, again = (blocks[0].in_edges(place, form="eid", etype="writes") for place in (0, 2))
    ids = blocks[0].edges["writes"].data[dgl.EID]
    assert blocks[0].dstnodes["paper"].data[dgl.NID].tolist() == [4, 9, 4]
    assert torch.equal(ids[first], ids[again])
    assert len(first) > 0


def test_the_distribution_of_a_relation():
    """With fanout 2, each of the six pairs of a paper's four in-edges is equally likely."""
    g = hetero_graph()
    paper = int(g.in_degrees(etype="writes").eq(4).nonzero()[0])
    ids, found, sampler = g.in_edges(paper, form="eid", etype="writes"), {}, hoptrain.dgl.NeighborSampler([2])
    torch.manual_seed(3)
    for _ in range(6000):
        _, _, (block,) = sampler.sample(g, {"paper": torch.tensor([paper])})
        drawn = tuple(sorted(block.edges["writes"].data[dgl.EID].tolist()))
        found[drawn] = found.get(drawn, 0) + 1
    assert set().union(*found) == set(ids.tolist())
    assert chi_square_fits(list(found.values()), [1 / 6] * 6)


@pytest.mark.parametrize("options", [{"importance_sampling": 1}, {"prob": "p"}, {"prob": "p", "importance_sampling": 2}], ids=str)
def test_labor_keeps_each_edge_as_often_as_dgl_s(options):
    """Each edge is kept with the same frequency as in DGL.

    Edges are sorted by destination, since DGL 2.1 reads the wrong weights if they are not.
    """
    given, number, counts = hetero_graph(), 2000, []
    ends = {relation: given.edges(etype=relation) for relation in TYPES}
    orders = {relation: torch.argsort(v * 1000 + u) for relation, (u, v) in ends.items()}
    g = dgl.heterograph({relation: (u[orders[relation]], v[orders[relation]]) for relation, (u, v) in ends.items()})
    g.edges["writes"].data["p"] = torch.rand(400, generator=torch.Generator().manual_seed(2)) + 0.01
    torch.manual_seed(4)
    for sampler in (hoptrain.dgl.LaborSampler([2], **options), dgl.dataloading.LaborSampler([2], **options)):
        kept = {relation: torch.zeros(g.num_edges(relation)) for relation in TYPES}
        for _ in range(number):
            sampler.set_seed()  # otherwise DGL uses one random seed for all batches
            _, _, (block,) = sampler.sample(g, SEEDS)
            for relation, found in kept.items():
                found[block.edges[relation].data[dgl.EID]] += 1
        counts.append(torch.cat(list(kept.values())) / number)
    mine, wanted = counts
    p = (mine + wanted) / 2
    assert ((p > 0) & (p < 1)).sum() > 50
    assert ((mine - wanted).abs() <= 5 * (2 * p * (1 - p) / number).sqrt()).all()


def loader(g, num_workers, **options):
    sampler = hoptrain.dgl.NeighborSampler(
        [2, 3], prefetch_node_feats={"paper": ["feat"], "author": ["feat"]}, prefetch_labels={"paper": ["label"]}
    )
    indices = {"paper": torch.arange(100), "venue": torch.arange(6)}
    return hoptrain.dgl.DataLoader(g, indices, sampler, batch_size=20, num_workers=num_workers, **options)


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_loader_with_workers(shuffle):
    g = hetero_graph()

    def epochs(num_workers):
        torch.manual_seed(8)
        one = loader(g, num_workers, shuffle=shuffle)
        found = []
        for _ in range(2):
            for nodes, seeds, blocks in one:
                for block in blocks:
                    check_block(g, block, nodes)
                assert torch.equal(
                    blocks[-1].dstnodes["paper"].data["label"], g.nodes["paper"].data["label"][blocks[-1].dstnodes["paper"].data[dgl.NID]]
                )
                found.append(({kind: ids.tolist() for kind, ids in seeds.items()}, edge_ids(blocks)))
        one.close()
        return found

    here = epochs(0)
    assert here == epochs(2)
    assert sorted(v for seeds, _ in here[:6] for v in seeds.get("paper", [])) == list(range(100))
    if not shuffle:
        theirs = dgl.dataloading.DataLoader(
            g, {"paper": torch.arange(100), "venue": torch.arange(6)}, dgl.dataloading.NeighborSampler([2, 3]), batch_size=20
        )
        assert [seeds for seeds, _ in here[:6]] == [{kind: ids.tolist() for kind, ids in seeds.items()} for _, seeds, _ in theirs]


EXCLUSIONS = {
    "self": {"exclude": "self"},
    "reverse_types": {"exclude": "reverse_types", "reverse_etypes": {"writes": "written", "written": "writes"}},
    "with negatives": {"exclude": "self", "negative_sampler": dgl.dataloading.negative_sampler.Uniform(2)},
}


@pytest.mark.parametrize("options", EXCLUSIONS.values(), ids=EXCLUSIONS)
@pytest.mark.parametrize("num_workers", [0, 1])
def test_edges_as_seeds(options, num_workers):
    g = hetero_graph()
    u, v = g.edges(etype="writes")
    g = dgl.heterograph(
        {relation: g.edges(etype=relation) for relation in g.canonical_etypes} | {("paper", "written", "author"): (v, u)},
        {kind: g.num_nodes(kind) for kind in g.ntypes},
    )

    def drawn(module):
        torch.manual_seed(9)
        sampler = module.as_edge_prediction_sampler(module.NeighborSampler([-1, -1]), **options)
        workers = {"num_workers": num_workers} if module is hoptrain.dgl else {}
        one = module.DataLoader(g, {"writes": torch.arange(0, 400, 7)}, sampler, batch_size=20, **workers)
        found = [
            ({relation: pairs.edges[relation].data[dgl.EID].tolist() for relation in g.canonical_etypes}, edge_ids(blocks))
            for _, pairs, *_, blocks in one
        ]
        if module is hoptrain.dgl:
            one.close()
        return found

    mine, wanted = drawn(hoptrain.dgl), drawn(dgl.dataloading)
    assert [pairs for pairs, _ in mine] == [pairs for pairs, _ in wanted]
    if "negative_sampler" not in options:  # random negatives differ, and so do the seeds
        assert [blocks[-1] for _, blocks in mine] == [blocks[-1] for _, blocks in wanted]
    for pairs, blocks in mine:
        gone = set(pairs[WRITES])
        assert all(gone.isdisjoint(block[WRITES]) for block in blocks)
        if "reverse_etypes" in options:
            assert all(gone.isdisjoint(block["paper", "written", "author"]) for block in blocks)


@pytest.mark.parametrize("options", [{}, {"replace": True}, {"exclude_self_loops": False}], ids=str)
def test_global_negatives_join_the_types_of_their_edges(options):
    """Global negatives of a relation are pairs of a paper and a venue without an edge; they are distinct without ``replace``."""
    g, sampler = hetero_graph(), hoptrain.dgl.negative_sampler.GlobalUniform(3, **options)
    drawn = sampler(g, {("paper", "in", "venue"): torch.arange(60), "cites": torch.arange(20)})
    theirs = dgl.dataloading.negative_sampler.GlobalUniform(3, **options)(g, {("paper", "in", "venue"): torch.arange(60)})
    assert theirs.keys() <= drawn.keys()
    u, v = drawn["paper", "in", "venue"]
    assert len(u) == len(v) == 180
    assert (int(v.max()), len(v.unique())) == (5, 6)
    assert int(u.max()) > 100
    assert not g.has_edges_between(u, v, etype="in").any()
    assert len(set(zip(u.tolist(), v.tolist(), strict=True))) == 180 or "replace" in options


def test_a_function_may_exclude_beside_reverse_types():
    """If ``exclude`` is a function, ``reverse_etypes`` has no effect, as in DGL."""
    inner = hoptrain.dgl.NeighborSampler([-1])
    sampler = hoptrain.dgl.as_edge_prediction_sampler(inner, exclude=lambda edges: edges, reverse_etypes={"cites": "cites"})
    _, pairs, (block,) = next(iter(hoptrain.dgl.DataLoader(hetero_graph(), {"cites": torch.arange(9)}, sampler, batch_size=9)))
    assert not torch.isin(block.edges["cites"].data[dgl.EID], pairs.edges["cites"].data[dgl.EID]).any()


def test_graphs_that_are_held_to_a_layout():
    g = hetero_graph()
    wanted = edge_ids(hoptrain.dgl.NeighborSampler([-1]).sample(g, SEEDS)[2])
    for layout in ("coo", "csr", "csc"):
        assert edge_ids(hoptrain.dgl.NeighborSampler([-1]).sample(g.formats(layout), SEEDS)[2]) == wanted
        plain = g.edge_type_subgraph(["cites"]).formats(layout)
        assert hoptrain.dgl.NeighborSampler([-1]).sample(plain, SEEDS["paper"])[2][0].num_edges() == len(
            wanted[0]["paper", "cites", "paper"]
        )


def sample(seeds, *excluded, fanout=3, **options):
    return hoptrain.dgl.NeighborSampler([fanout], **options).sample(hetero_graph(), seeds, *excluded)


MISTAKES = {
    "fanouts for some types": Mistake(
        lambda: sample(SEEDS, fanout={"writes": 3}),
        value="paper:cites:paper, paper:in:venue",
        rule="fanouts layer lack",
        remedy="number every edge type",
    ),
    "seeds without a type": Mistake(lambda: sample(SEEDS["paper"]), value="tensor", rule="seeds types author, paper", remedy="dict type"),
    "seeds of an unknown type": Mistake(
        lambda: sample({"reader": SEEDS["paper"]}), value="'reader'", rule="seeds types author, venue", remedy="name one"
    ),
    "an unknown seed": Mistake(lambda: sample({"venue": torch.tensor([6])}), value="node 6", rule="'venue' not exist 5", remedy="drop"),
    "missing weights": Mistake(lambda: sample(SEEDS, prob="heavy"), value="'heavy'", rule="edges feature kind weight", remedy="name one"),
    "edges that lead out": Mistake(
        lambda: sample(SEEDS, edge_dir="out"), value="edge_dir is 'out'", rule="heterogeneous graphs 'in'", remedy="dgl.reverse"
    ),
    "an unknown edge to leave out": Mistake(
        lambda: sample(SEEDS, {"writes": torch.tensor([400])}),
        value="edge 400",
        rule="author:writes:paper not exist 399",
        remedy="leave",
    ),
    "seeds of ShaDow without a type": Mistake(
        lambda: hoptrain.dgl.ShaDowKHopSampler([3]).sample(hetero_graph(), SEEDS["paper"]),
        value="tensor",
        rule="seeds types author, paper",
        remedy="dict type",
    ),
    "GraphSAINT's nodes of a heterogeneous graph": Mistake(
        lambda: hoptrain.dgl.SAINTSampler("node", 3).sample(hetero_graph()),
        value="author:writes:paper",
        rule="graph edge types one",
        remedy="dgl.to_homogeneous(g)",
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
