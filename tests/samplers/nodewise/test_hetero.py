"""HeteroSampler: bit-identical to its reference, and to NeighborSampler for a single relation."""

import json
import os

import numpy as np
import pytest
import torch
from cases.batches import contents
from cases.mistakes import Mistake, each_of
from hypothesis import example, given, settings
from hypothesis import strategies as st
from reference import hetero as reference

from hoptrain.engine import Graph, HeteroDataset
from hoptrain.engine.hetero_graph import HeteroGraph, relation_name
from hoptrain.samplers import HeteroSampler, NeighborSampler, SampleLoader, Workspace
from hoptrain.samplers.batch.serialise import header_of
from hoptrain.samplers.buffers import hop as one_hop
from hoptrain.samplers.buffers.alias import build_alias_tables
from hoptrain.samplers.loader.check_batch import check_batch


def as_lists(batch):
    hops = [
        {relation: (b.indptr.tolist(), b.indices.tolist(), b.edge_ids.tolist(), b.num_src) for relation, b in hop.items()}
        for hop in reversed(batch.blocks)
    ]
    return hops, {name: ids.tolist() for name, ids in batch.node_ids.items()}


TRIPLES = [("a", "r", "a"), ("b", "r", "a"), ("a", "s", "b"), ("c", "r", "b"), ("b", "s", "a")]


MODES = {
    "distinct": {},
    "replace": {"replace": True},
    "weighted": {"replace": True, "weighted": True},
    "weighted distinct": {"weighted": True},
}


@st.composite
def problems(draw):
    """Draw a graph of up to three types and five relations, two of them between the same types, seeds of one or two types, and fanouts."""
    num_nodes = {name: draw(st.integers(1, 12)) for name in "abc"}
    edges, weights = {}, {}
    for relation in draw(st.lists(st.sampled_from(TRIPLES), min_size=1, unique=True)):
        pair = st.tuples(st.integers(0, num_nodes[relation[0]] - 1), st.integers(0, min(4, num_nodes[relation[2]] - 1)))
        edges[relation] = tuple(np.array(draw(st.lists(pair, max_size=40)), np.int64).reshape(-1, 2).T)
        if not weights or draw(st.booleans()):
            number = len(edges[relation][0])
            own = draw(st.lists(st.sampled_from([0.0, 0.25, 1.0, 3.0]), min_size=number, max_size=number))
            weights[relation] = np.array(
                [own[0] or 1.0, *own[1:]] if own else [], np.float32
            )  # the weights of a relation must not all be 0
    graph = HeteroGraph.from_edges(num_nodes, edges, weights=weights)
    seed_type, hops = draw(st.sampled_from("abc")), draw(st.integers(1, 3))
    fanout = st.sampled_from([-1, 0, 1, 2, 5, 0.4])
    kinds = draw(st.sampled_from([[seed_type], sorted({seed_type, "b"})]))
    return {
        "graph": graph,
        "seed_type": seed_type if len(kinds) == 1 and draw(st.booleans()) else None,
        "fanouts": {relation: draw(st.lists(fanout, min_size=hops, max_size=hops)) for relation in graph.relations},
        "bulk": [
            {k: draw(st.lists(st.integers(0, num_nodes[k] - 1), min_size=1, max_size=5, unique=True)) for k in kinds}
            for _ in range(draw(st.sampled_from([1, 5])))
        ],
        "mode": draw(st.sampled_from(list(MODES))),
        "expand": draw(st.sampled_from(["all", "new"])),
    }


LONE = {
    "graph": HeteroGraph.from_edges({"a": 1, "b": 0}, {("a", "r", "a"): ([0, 0], [0, 0]), ("b", "r", "a"): ([], [])}),
    "seed_type": "a",
    "fanouts": {("a", "r", "a"): [1, -1], ("b", "r", "a"): [3, -1]},
    "bulk": [{"a": [0]}],
    "mode": "distinct",
    "expand": "all",
}


def tables_of(graph):
    """Return the weight tables from which the reference draws."""
    weighted = {relation: columns for relation, columns in graph.relations.items() if columns.weights is not None}
    return {relation: (*build_alias_tables(columns), columns.weights) for relation, columns in weighted.items()}


@pytest.mark.timeout(300)  # without a cache, every variant is compiled
@settings(max_examples=80)
@given(problem=problems(), threads=st.sampled_from([1, 2]), address=st.tuples(*[st.integers(0, 2**20 - 1)] * 2))
@example(problem=LONE, threads=1, address=(0, 0))
@example(problem=LONE | {"seed_type": None, "expand": "new"}, threads=2, address=(0, 0))
def test_any_problem(problem, threads, address):
    graph, seed_type, fanouts, (epoch, first) = problem["graph"], problem["seed_type"], problem["fanouts"], address
    options, expand = MODES[problem["mode"]], problem["expand"]
    named = {relation_name(relation): own for relation, own in fanouts.items()}
    sampler = HeteroSampler(named, seed_type, **options, expand=expand)
    tables = tables_of(graph) if "weighted" in options else None
    expected = [
        reference.batch(graph, seeds, fanouts, "replace" in options, (2**64 - 3, epoch, first + i), expand=expand, tables=tables)
        for i, seeds in enumerate(problem["bulk"])
    ]
    workspace = Workspace(threads)
    bulk = [np.array(seeds[seed_type]) if seed_type else graph.numbered(seeds) for seeds in problem["bulk"]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(one_hop, "EXACT_COUNT", 8)
        patch.setattr(one_hop, "WORTH_SHARING", 1)
        patch.setattr(one_hop, "PART_EDGES", 1)
        for _ in range(2):  # the second time with used scratch buffers
            batches = sampler.sample_bulk(graph, bulk, seed=2**64 - 3, epoch=epoch, first_batch=first, workspace=workspace)
            assert [as_lists(batch) for batch in batches] == expected
            for batch, items in zip(batches, bulk, strict=True):
                check_batch(batch, sampler, graph, items)
        items, at = bulk[0] if seed_type else problem["bulk"][0], {"seed": 2**64 - 3, "epoch": epoch, "batch": first}
        for _ in range(2):  # a workspace whose threads share hops
            assert as_lists(sampler.sample(graph, items, **at, workspace=workspace)) == expected[0]
    alone = sampler.sample(graph, items, **at)
    assert as_lists(alone) == expected[0]
    filled = header_of(alone).filled(alone.arrays())
    assert as_lists(filled) == expected[0]
    assert filled.node_counts[-1] == {name: len(ids) for name, ids in alone.node_ids.items()}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"replace": True},
        {"replace": True, "expand": "new"},
        {"weighted": True, "expand": "new"},
        {"weighted": True, "replace": True, "expand": "new"},
    ],
    ids=str,
)
def test_one_relation_is_neighbour_sampling(graph, options):
    relation, seeds, weights = ("v", "to", "v"), np.arange(0, 190, 7), np.random.default_rng(5).random(graph.num_edges, np.float32)
    plain = Graph(graph.indptr, graph.indices, weights=weights)
    hetero_graph = HeteroGraph({"v": graph.num_nodes}, {relation: (graph.indptr, graph.indices)}, weights={relation: weights})
    ours = HeteroSampler([4, -1, 3], "v", **options).sample(hetero_graph, seeds, seed=9, epoch=2, batch=5)
    theirs = NeighborSampler([4, -1, 3], **options).sample(plain, seeds, seed=9, epoch=2, batch=5)
    assert ours.nested == theirs.nested == ("expand" in options)
    assert ours.node_ids["v"].tolist() == theirs.node_ids.tolist()
    assert ours.num_edges == theirs.num_edges
    for hop, block in zip(ours.blocks, theirs.blocks, strict=True):
        for name, array in block.arrays().items():
            assert hop[relation].arrays()[name].tolist() == array.tolist()
            assert hop[relation].arrays()[name].dtype == array.dtype
        assert hop[relation].num_src == block.num_src


def test_relations_draw_independently(graph):
    """The draws of two relations with the same edges are uncorrelated, and each edge is drawn with the same frequency."""
    hub = int(graph.in_degrees().argmax())
    degree = int(graph.in_degrees()[hub])
    columns = (graph.indptr, graph.indices)
    hetero_graph = HeteroGraph({"v": graph.num_nodes}, {("v", "r", "v"): columns, ("v", "s", "v"): columns})
    both, counts = 0, np.zeros((2, degree))
    for number in range(1500):
        hop = HeteroSampler([8], "v").sample(hetero_graph, np.array([hub]), batch=number).blocks[0]
        drawn = [hop["v", name, "v"].edge_ids - graph.indptr[hub] for name in "rs"]
        both += len(set(drawn[0]) & set(drawn[1]))
        for row, offsets in zip(counts, drawn, strict=True):
            row[offsets] += 1
    expected = 1500 * 8 / degree
    # Drawn without replacement the counts vary less than multinomial ones; the bound is five deviations of chi-square.
    assert (((counts - expected) ** 2 / expected).sum(1) < degree - 1 + 5 * np.sqrt(2 * degree)).all()
    assert abs(both - 8 * expected) < 5 * np.sqrt(8 * expected)


def test_blocks_fit_together():
    rng = np.random.default_rng(0)
    num_nodes = {"a": 50, "b": 30, "c": 20}
    edges = {r: (rng.integers(0, num_nodes[r[0]], 300), rng.integers(0, num_nodes[r[2]], 300)) for r in TRIPLES}
    graph = HeteroGraph.from_edges(num_nodes, edges)
    batch = HeteroSampler([3, 3, 3], "b").sample(graph, np.array([4, 9]))
    assert batch.seeds.tolist() == [4, 9]
    sizes = {name: (2 if name == "b" else 0) for name in num_nodes}
    for hop in reversed(batch.blocks):
        after = dict(sizes)
        for (source, name, destination), block in hop.items():
            assert block.num_dst == sizes[destination]
            after[source] = block.num_src
            columns = graph.relations[source, name, destination]
            src, dst = block.edge_index().numpy()
            assert (columns.indices[block.edge_ids] == batch.node_ids[source][src]).all()
            assert (np.searchsorted(columns.indptr, block.edge_ids, side="right") - 1 == batch.node_ids[destination][dst]).all()
        sizes = after
    assert sizes == {name: len(ids) for name, ids in batch.node_ids.items()}


def test_a_fanout_of_zero_leaves_a_relation_out(graph):
    columns = (graph.indptr, graph.indices)
    hetero_graph = HeteroGraph({"v": graph.num_nodes}, {("v", "r", "v"): columns, ("v", "s", "v"): columns})
    batch = HeteroSampler({"v:r:v": [0, 2], "v:s:v": [2, 0]}, "v").sample(hetero_graph, np.arange(10))
    assert [[block.num_edges > 0 for block in hop.values()] for hop in batch.blocks] == [[True, False], [False, True]]


def test_edges_are_named_by_the_users_ids():
    rng = np.random.default_rng(0)
    num_nodes = {"a": 50, "b": 30, "c": 20}
    edges = {r: (rng.integers(0, num_nodes[r[0]], 300), rng.integers(0, num_nodes[r[2]], 300)) for r in TRIPLES}
    graph = HeteroGraph.from_edges(num_nodes, edges)
    data = HeteroDataset(graph=graph, seed_type="a", splits={"train": np.arange(20)})
    sampler = HeteroSampler([3, 2], "a")
    batches = [sampler.sample(graph, np.arange(9)), *SampleLoader(data, sampler, batch_size=20)]
    for batch in [*batches, batches[0].to("cpu")]:
        for hop in batch.blocks:
            for (source, name, destination), block in hop.items():
                src, dst = block.edge_index()
                ids = batch.ids_of((source, name, destination), block.edge_ids)
                assert type(ids) is type(block.edge_ids)
                assert edges[source, name, destination][0][ids].tolist() == batch.node_ids[source][src].tolist()
                assert edges[source, name, destination][1][ids].tolist() == batch.node_ids[destination][dst].tolist()


def test_tensors_share_memory(graph):
    hetero_graph = HeteroGraph({"v": graph.num_nodes}, {("v", "to", "v"): (graph.indptr, graph.indices)})
    batch = HeteroSampler([3], "v").sample(hetero_graph, np.arange(5))
    moved = batch.to("cpu")
    assert isinstance(moved.node_ids["v"], torch.Tensor)
    assert moved.blocks[0]["v", "to", "v"].indices.data_ptr() == batch.blocks[0]["v", "to", "v"].indices.ctypes.data


# The loader


def test_a_batch_of_a_loader():
    rng = np.random.default_rng(0)
    num_nodes = {"a": 50, "b": 30, "c": 20}
    edges = {r: (rng.integers(0, num_nodes[r[0]], 300), rng.integers(0, num_nodes[r[2]], 300)) for r in TRIPLES}
    graph, x, y = HeteroGraph.from_edges(num_nodes, edges), {"b": rng.random((30, 4)), "c": rng.random((20, 2))}, np.arange(50)
    data = HeteroDataset(graph=graph, seed_type="a", x=x, y=y, splits={"train": np.arange(45)})
    loader = SampleLoader(data, HeteroSampler([3, 2], "a"), batch_size=8, seed=5)
    batch = next(iter(loader))
    assert (batch.x["b"] == x["b"][batch.node_ids["b"]]).all()
    assert (batch.y == batch.seeds).all()
    assert as_lists(HeteroSampler([3, 2], "a").sample(graph, batch.seeds, seed=5)) == as_lists(batch)
    assert (batch.num_step_seeds, batch.pid) == (8, os.getpid())
    assert batch.made_at > 0
    assert loader.state_dict() == {"epoch": 0, "step": 1}


def test_seeds_are_sharded_across_ranks_and_a_run_resumes():
    graph = HeteroGraph.from_edges({"a": 50}, {("a", "to", "a"): (np.arange(50), np.roll(np.arange(50), 1))})

    def loader(rank):
        data = HeteroDataset(graph=graph, seed_type="a", splits={"train": np.arange(45)})
        return SampleLoader(data, HeteroSampler([1], "a"), batch_size=8, rank=rank, world_size=2)

    batches = [list(loader(rank)) for rank in (0, 1)]
    assert len(batches[0]) == len(batches[1]) == 3
    assert sorted(np.concatenate([batch.seeds for batch in batches[0] + batches[1]])) == list(range(45))
    stopped = loader(1)
    next(iter(stopped))
    resumed = loader(1)
    resumed.load_state_dict(stopped.state_dict())
    assert [contents(batch) for batch in resumed] == [contents(batch) for batch in batches[1][1:]]


# A real graph


@pytest.fixture(scope="module")
def acm(data_root):
    path = data_root / "hetero_acm.npz"
    if not path.exists():
        pytest.skip(f"the ACM graph is absent: no {path.name} in {data_root} (set HOPTRAIN_DATA)")
    with np.load(path, allow_pickle=False) as arrays:
        num_nodes = json.loads(str(arrays["meta"]))["node_types"]
        pairs = [("paper", "author"), ("author", "paper"), ("paper", "subject"), ("subject", "paper")]
        columns = {(s, "to", d): (arrays[f"rel_{s}__{d}_indptr"], arrays[f"rel_{s}__{d}_indices"]) for s, d in pairs}
        return HeteroGraph(num_nodes, columns), arrays["y"]


def test_papers_by_their_authors_and_subjects(acm):
    graph, _ = acm
    papers = np.arange(0, graph.num_nodes["paper"], 17)
    fanouts = {"paper:to:author": [0, 3], "author:to:paper": [4, 4], "paper:to:subject": [-1, 2], "subject:to:paper": [-1, -1]}
    batch = HeteroSampler(fanouts, "paper").sample(graph, papers, seed=3)
    by_relation = {tuple(name.split(":")): own for name, own in fanouts.items()}
    assert as_lists(batch) == reference.batch(graph, {"paper": papers.tolist()}, by_relation, False, (3, 0, 0))
    assert batch.num_edges > 1000


def test_a_model_of_sampled_relations_learns(acm):
    """A model learns a paper's class from its subject's other papers, two hops away, with an accuracy well above chance."""
    graph, y = acm
    sampler, torch_y = HeteroSampler([5, 5], "paper"), torch.from_numpy(y)
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[:2000], order[2000:]
    features = np.zeros((len(y), 3), np.float32)
    features[train] = np.eye(3, dtype=np.float32)[y[train]]  # known labels are features, except for a seed's own
    torch.manual_seed(0)
    layer = torch.nn.Linear(6, 3)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)

    def logits(papers, number):
        batch = sampler.sample(graph, papers, batch=number).to("cpu")
        x = torch.from_numpy(features[batch.node_ids["paper"]])
        x[: len(papers)] = 0
        means = []
        for name in ("author", "subject"):
            hidden = mean(batch.blocks[0]["paper", "to", name], x)
            means.append(mean(batch.blocks[1][name, "to", "paper"], hidden))
        return layer(torch.cat(means, 1))

    for number in range(40):
        papers = train[number % 10 * 200 : (number % 10 + 1) * 200]
        loss = torch.nn.functional.cross_entropy(logits(papers, number), torch_y[papers])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    accuracy = (logits(test, 100).argmax(1) == torch_y[test]).float().mean()
    assert accuracy > 0.6  # the largest class has about a third


def mean(block, x):
    src, dst = block.edge_index()
    total = torch.zeros(block.num_dst, x.shape[1]).index_add_(0, dst, x[src])
    return total / block.indptr.diff().clamp(min=1)[:, None]


def lone_data():
    return HeteroDataset(graph=LONE["graph"], seed_type="a", name="lone")


def sampled(fanouts, seed_type, seeds, **options):
    return HeteroSampler(fanouts, seed_type, **options).sample(LONE["graph"], np.array(seeds))


def many_relations():
    return HeteroGraph({"a": 1}, {("a", str(number), "a"): ([0, 0], []) for number in range(256)})


MISTAKES = {
    "data with a seed that the graph has not": Mistake(
        lambda: SampleLoader(lone_data(), HeteroSampler([1], "a"), split=np.array([1])), value="seed 1", rule="not graph", remedy="0"
    ),
    "another seed type than that of the data": Mistake(
        lambda: SampleLoader(lone_data(), HeteroSampler([1], "b")), value="'b'", rule="seed_type lone 'a'", remedy="data's"
    ),
    "a plain sampler on heterogeneous data": Mistake(
        lambda: SampleLoader(lone_data(), NeighborSampler([1])),
        value="NeighborSampler",
        rule="lone heterogeneous graph",
        remedy="HeteroSampler",
    ),
    "a heterogeneous sampler on plain data": Mistake(
        lambda dataset: SampleLoader(dataset, HeteroSampler([1], "a")),
        value="HeteroSampler",
        rule="random homogeneous HeteroDataset",
        remedy="HeteroGraph NeighborSampler",
    ),
    "fanouts for some relations of the data": Mistake(
        lambda: SampleLoader(lone_data(), HeteroSampler({"a:r:a": [1]}, "a"), split=np.array([0])),
        value="a:r:a",
        rule="fanouts graph's relations",
        remedy="b:r:a others default",
    ),
    "fanouts for some relations of the graph": Mistake(
        lambda: sampled({"a:r:a": [1]}, "a", [0]), value="a:r:a", rule="fanouts graph's relations", remedy="b:r:a others default"
    ),
    "no hops": Mistake(lambda: HeteroSampler([], "a"), value="0 hops", rule="fanouts", remedy="1 16 each hop"),
    "too many hops": Mistake(lambda: HeteroSampler([1] * 17, "a"), value="17 hops", rule="fanouts", remedy="1 16 each hop"),
    "fanouts for no relation": Mistake(lambda: HeteroSampler({}, "a"), value="no hops", rule="fanouts", remedy="1 16 each hop"),
    "relations with different numbers of hops": Mistake(
        lambda: HeteroSampler({"a:r:a": [1], "b:r:a": [1, 2]}, "a"), value="1 and 2", rule="fanouts", remedy="same number all relations"
    ),
    "a fanout below -1": Mistake(
        lambda: HeteroSampler([2, -2], "a"), value="fanout is -2", rule="hop edges share", remedy="0 67108863 -1 0.5"
    ),
    "an unknown seed type": Mistake(lambda: sampled([1], "d", [0]), value="'d'", rule="seed_type graph", remedy="a, b"),
    "a seed that the graph has not": Mistake(lambda: sampled([1], "a", [1]), value="seed 1", rule="not graph", remedy="0"),
    "a seed given twice": Mistake(lambda: sampled([1], "a", [0, 0]), value="seed 0", rule="given twice", remedy="numpy.unique(seeds)"),
    "too many relations": Mistake(
        lambda: HeteroSampler([1], "a").sample(many_relations(), np.array([0])),
        value="256",
        rule="relations HeteroSampler 255",
        remedy="join",
    ),
    "weighted and no weights": Mistake(
        lambda: sampled([1], "a", [0], weighted=True), value="weighted=True", rule="no relation weights", remedy="HeteroGraph unweighted"
    ),
    "missing nodes to expand": Mistake(lambda: HeteroSampler([1], "a", expand="old"), value="'old'", rule="expand hop", remedy="all new"),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
