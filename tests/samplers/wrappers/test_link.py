"""LinkSampler: bit-identical to its reference, correct distribution of negatives, and no message along a predicted edge."""

import numpy as np
import pytest
import torch
from cases.batches import contents
from cases.mistakes import Mistake, each_of, refused
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from reference import link as reference

from hoptrain.engine import Dataset, Graph
from hoptrain.kernels.shared.draws import bounded_wide
from hoptrain.samplers import LaborSampler, LinkSampler, NeighborSampler, SampleLoader, ShadowSampler, TemporalSampler, Workspace
from hoptrain.samplers.wrappers.ends import tables_by_degree
from hoptrain.trainers.models import GNN


def as_lists(batch):
    hops = [(b.indptr.tolist(), b.indices.tolist(), b.edge_ids.tolist(), b.num_src) for b in reversed(batch.blocks)]
    pairs = batch.node_ids[batch.extra["pairs"]].T.tolist()
    return [tuple(pair) for pair in pairs], hops, batch.node_ids.tolist()


@st.composite
def problems(draw):
    """Draw a graph with parallel edges, self loops, reverse edges and isolated nodes, edges as seeds, and all options."""
    num_nodes = draw(st.integers(1, 25))
    node = st.integers(0, num_nodes - 1)
    edges = draw(st.lists(st.tuples(node, node | st.integers(0, min(2, num_nodes - 1))), min_size=1, max_size=80))
    edges += [(v, u) for u, v in edges[: len(edges) // 3]]
    return {
        "graph": Graph.from_edges(*np.array(edges).T, num_nodes),
        "bulk": [
            draw(st.lists(st.integers(0, len(edges) - 1), min_size=1, max_size=5, unique=True))
            for _ in range(draw(st.sampled_from([1, 3])))
        ],
        "options": (
            draw(st.sampled_from(["uniform", "in_batch", "degree", "filtered", "pairs"])),
            draw(st.integers(0, 3)),
            draw(st.sampled_from(["none", "self", "reverse"])),
            draw(st.just((0, num_nodes)) | st.tuples(node, node).map(lambda ends: (min(ends), max(ends) + 1))),
        ),
        "fanouts": draw(st.lists(st.sampled_from([-1, 1, 3]), min_size=1, max_size=3)),
        "expand": draw(st.sampled_from(["all", "new"])),
    }


LOOP = {
    "graph": Graph.from_edges([0, 0], [0, 0]),
    "bulk": [[1]],
    "options": ("uniform", 2, "self", (0, 1)),
    "fanouts": [-1, 2],
    "expand": "all",
}
ALONE = LOOP | {"options": ("in_batch", 2, "reverse", (0, 1)), "expand": "new"}


@pytest.mark.timeout(300)  # without a cache, every variant is compiled
@settings(max_examples=60)
@given(problem=problems(), threads=st.sampled_from([1, 2]), address=st.tuples(*[st.integers(0, 2**20 - 1)] * 2))
@example(problem=LOOP, threads=1, address=(0, 0))
@example(problem=ALONE, threads=2, address=(3, 1))
def test_any_problem(problem, threads, address):
    """Batches equal the reference's, and no block contains a predicted edge, which the test checks independently."""
    graph, (negatives, count, exclude, bounds) = problem["graph"], problem["options"]
    assume(negatives != "pairs" or bounds == (0, graph.num_nodes))
    assume(negatives != "degree" or graph.indptr[bounds[0]] < graph.indptr[bounds[1]])  # otherwise rejected, as tested below
    dst_range = None if bounds == (0, graph.num_nodes) else bounds
    inner = NeighborSampler(problem["fanouts"], expand=problem["expand"])
    sampler = LinkSampler(inner, negatives, count, exclude, dst_range=dst_range)
    table = tables_by_degree(graph, sampler.bounds(graph)) if negatives == "degree" else None
    epoch, first = address
    expected = [
        reference.batch(graph, edges, problem["options"], problem["fanouts"], problem["expand"], (2**64 - 3, epoch, first + i), table)
        for i, edges in enumerate(problem["bulk"])
    ]
    workspace, bulk = Workspace(threads), [np.array(edges) for edges in problem["bulk"]]
    for _ in range(2):  # the second time with used scratch buffers
        batches = sampler.sample_bulk(graph, bulk, seed=2**64 - 3, epoch=epoch, first_batch=first, workspace=workspace)
        assert [as_lists(batch) for batch in batches] == expected
        for batch, edges in zip(batches, bulk, strict=True):
            assert_no_predicted_edge(graph, batch, edges, exclude)
    alone = sampler.sample(graph, bulk[0], seed=2**64 - 3, epoch=epoch, batch=first, workspace=workspace)
    assert as_lists(alone) == expected[0]


def assert_no_predicted_edge(graph, batch, edges, exclude):
    ends = np.searchsorted(graph.indptr, edges, side="right") - 1
    predicted = set(zip(graph.indices[edges].tolist(), ends.tolist(), strict=True))
    reverse = {(v, u) for u, v in predicted}
    sampled = set()
    for block in batch.blocks:
        src, dst = batch.node_ids[block.edge_index().numpy()]
        assert (graph.indices[block.edge_ids] == src).all()
        sampled |= set(zip(src.tolist(), dst.tolist(), strict=True))
    assert exclude == "none" or not sampled & predicted
    assert exclude != "reverse" or not sampled & reverse


def test_labels_and_pairs(graph):
    batch = LinkSampler(NeighborSampler([3]), num_negatives=2).sample(graph, np.array([5, 900, 17]))
    pairs, labels = batch.extra["pairs"], batch.extra["labels"]
    assert labels.dtype == np.float32
    assert labels.tolist() == [1] * 3 + [0] * 6
    assert pairs.shape == (2, 9)
    assert pairs[0, 3:].tolist() == np.repeat(pairs[0, :3], 2).tolist()
    assert sorted(set(pairs.ravel().tolist())) == list(range(batch.num_seeds))
    assert batch.node_ids[pairs[0, :3]].tolist() == graph.indices[[5, 900, 17]].tolist()


def test_messages_pass_unless_they_are_excluded(graph):
    """Full neighbourhoods contain every predicted edge with ``exclude="none"``, and fewer edges the more are excluded."""
    edges = np.arange(0, 300, 3)
    kept = {
        exclude: LinkSampler(NeighborSampler([-1]), exclude=exclude).sample(graph, edges).num_edges
        for exclude in ("none", "self", "reverse")
    }
    whole = LinkSampler(NeighborSampler([-1]), exclude="none").sample(graph, edges)
    assert set(edges) <= set(whole.blocks[0].edge_ids.tolist())
    assert kept["none"] > kept["self"] > kept["reverse"]


def test_a_batch_of_one_edge_has_no_other_to_borrow_from(graph):
    batch = LinkSampler(NeighborSampler([3]), "in_batch", 4).sample(graph, np.array([7]))
    assert batch.extra["labels"].tolist() == [1]


@pytest.mark.parametrize("exclude", ["self", "reverse"])
def test_a_node_that_is_several_nodes_hides_no_edge(graph, exclude):
    """In ShaDow's subgraphs, where a seed also occurs in the subgraphs of other seeds, every predicted edge is excluded."""
    edges, inner = np.arange(0, 300, 11), ShadowSampler(1, 500, num_layers=2)
    whole = LinkSampler(inner, exclude="none").sample(graph, edges)
    assert len(set(whole.node_ids.tolist())) < len(whole.node_ids)
    batch = LinkSampler(inner, exclude=exclude).sample(graph, edges)
    assert_no_predicted_edge(graph, batch, edges, exclude)
    assert 0 < batch.num_edges < whole.num_edges


def test_weights_stay_with_their_edges(graph):
    """The edges that remain after the exclusion keep their LABOR weights."""
    edges = np.arange(0, 300, 11)
    blocks = [LinkSampler(LaborSampler([8]), exclude=exclude).sample(graph, edges).blocks[0] for exclude in ("none", "reverse")]
    whole, left = (dict(zip(block.edge_ids.tolist(), block.weights.tolist(), strict=True)) for block in blocks)
    assert len(set(whole.values())) > 5
    assert left.items() < whole.items()


# Distributions


def chi_square(counts, expected):
    return ((counts - expected) ** 2 / expected).sum()


def negatives_of(graph, negatives, edges, batches, count=20):
    """Return how often each node is a negative over many batches."""
    sampler = LinkSampler(NeighborSampler([1]), negatives, count)
    counts = np.zeros(graph.num_nodes)
    for number in range(batches):
        batch = sampler.sample(graph, edges, batch=number, seed=11)
        counts += np.bincount(batch.node_ids[batch.extra["pairs"][1, len(edges) :]], minlength=graph.num_nodes)
    return counts


@settings(max_examples=200)
@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(1, 2**32 - 1))
@example(2**32 - 1, 2**32 - 1, 2**32 - 1)
def test_64_bits_of_a_place(high, low, limit):
    assert bounded_wide(high, low, limit) == ((high << 32) + low) * limit >> 64


STAR = Graph.from_edges(np.arange(16) % 9, np.array([0] * 8 + [1] * 4 + [2] * 2 + [3] * 2), 10)


def test_uniform_negatives():
    counts = negatives_of(STAR, "uniform", np.arange(4), 250)
    assert chi_square(counts, counts.sum() / 10) < 27.9  # 9 degrees of freedom, p = 0.001


def test_pairs_of_any_two_nodes():
    """Each of the hundred pairs is drawn as a negative with the same frequency, whatever the edge."""
    sampler, edges, counts = LinkSampler(NeighborSampler([1]), "pairs", 20), np.arange(4), np.zeros((10, 10))
    for number in range(250):
        batch = sampler.sample(STAR, edges, batch=number, seed=11)
        np.add.at(counts, tuple(batch.node_ids[batch.extra["pairs"][:, 4:]]), 1)
    assert chi_square(counts.reshape(-1), counts.sum() / 100) < 148  # 99 degrees of freedom, p = 0.001


def test_negatives_by_degree():
    counts = negatives_of(STAR, "degree", np.arange(4), 250)
    assert (counts[4:] == 0).all()
    weights = np.array([8, 4, 2, 2]) ** 0.75
    assert chi_square(counts[:4], weights / weights.sum() * counts.sum()) < 16.3  # 3 degrees of freedom
    linear = np.array([8, 4, 2, 2]) / 16
    assert chi_square(counts[:4], linear * counts.sum()) > 100  # the test distinguishes the power from the degree itself


def test_in_batch_negatives():
    """An edge's in-batch negatives are the destinations of the other edges: three edges draw node 0 with probability 1/3 each.

    Edge 0 ends at node 0, the others at 1, 2 and 3.
    """
    edges = np.array([0, 8, 12, 14])
    counts = negatives_of(STAR, "in_batch", edges, 250)
    assert chi_square(counts[:4], counts.sum() / 4) < 16.3
    batch = LinkSampler(NeighborSampler([1]), "in_batch", 200).sample(STAR, edges)
    drawn = batch.node_ids[batch.extra["pairs"][1, 4:]].reshape(4, 200)
    for i in range(4):
        others = np.bincount(drawn[i], minlength=4)
        assert others[i] == 0
        assert chi_square(np.delete(others, i), 200 / 3) < 13.9  # 2 degrees of freedom


@pytest.mark.parametrize("graph", [STAR, Graph(STAR.indptr, np.concatenate([c[::-1] for c in np.split(STAR.indices, STAR.indptr[1:-1])]))])
def test_filtered_negatives(graph):
    """Filtered negatives are drawn with the same frequency from all nodes to which the source has no edge, in sorted and unsorted columns."""
    for edge in (0, 8, 12):
        source, counts = graph.indices[edge], negatives_of(graph, "filtered", np.array([edge]), 100)
        allowed = np.setdiff1d(np.arange(10), [source, *graph.destinations()[graph.indices == source]])
        assert counts[allowed].sum() == 2000
        assert chi_square(counts[allowed], 2000 / len(allowed)) < 27.9  # at most 9 degrees of freedom


def test_a_node_linked_with_all_keeps_its_last_draw():
    graph = Graph.from_edges(np.zeros(10, int), np.arange(10), 10)
    assert negatives_of(graph, "filtered", np.array([3]), 100).min() > 0


def test_each_part_of_the_address_changes_the_negatives(graph):
    sampler, edges = LinkSampler(NeighborSampler([-1]), num_negatives=3), np.arange(20)

    def draw(**address):
        return as_lists(sampler.sample(graph, edges, **address))[0]

    assert draw() == draw()
    assert all(draw() != draw(**{name: 1}) for name in ("seed", "epoch", "batch"))


# Items and the loader


def test_items_are_the_edges_into_the_split(graph):
    sampler, split = LinkSampler(NeighborSampler([2])), np.array([195, 3, 150, 0])
    expected = [e for v in split for e in range(graph.indptr[v], graph.indptr[v + 1])]
    assert sampler.items(graph, split).tolist() == expected
    ids = graph.ids_of(np.array([4, 9]))
    assert LinkSampler(NeighborSampler([2]), edges=ids).items(graph, split).tolist() == [4, 9]


def test_items_and_negatives_are_among_the_destinations(graph):
    sampler = LinkSampler(NeighborSampler([2]), dst_range=(20, 60), num_negatives=4)
    items = sampler.items(graph, np.array([195, 59, 3, 20]))
    assert items.tolist() == [e for v in (59, 20) for e in range(graph.indptr[v], graph.indptr[v + 1])]
    for negatives in ("uniform", "degree", "filtered", "in_batch"):
        sampler = LinkSampler(NeighborSampler([2]), negatives, dst_range=(20, 60), num_negatives=4)
        batch = sampler.sample(graph, items)
        drawn = batch.node_ids[batch.extra["pairs"][1]]
        assert drawn.min() >= 20
        assert drawn.max() < 60
        assert len(set(drawn[len(items) :].tolist())) > 1


def test_a_model_learns_to_predict_links():
    """A model learns to distinguish links: all edges are within the two halves of a graph, so pairs within a half get higher logits."""
    rng = np.random.default_rng(0)
    half = rng.integers(0, 2, 4000)
    graph = Graph.from_edges(*(rng.integers(0, 100, (2, 4000)) + 100 * half), 200)
    x = np.r_[np.ones(100), np.zeros(100)][:, None] + rng.normal(size=(200, 4))
    data = Dataset(name="halves", graph=graph, x=x.astype(np.float32), splits={"train": np.arange(200)})
    torch.manual_seed(0)
    model, degrees = GNN("sage", 4, 16, 8, 2), torch.from_numpy(graph.in_degrees()).float()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    loader = SampleLoader(data, LinkSampler(NeighborSampler([5, 5])), batch_size=200, seed=1)
    for batch in [b.to("cpu") for _ in range(2) for b in loader]:
        h = model(batch.x, batch.blocks, degrees[batch.node_ids.long()])
        src, dst = batch.extra["pairs"].long()
        logits = (h[src] * h[dst]).sum(1)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, batch.extra["labels"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    same = (batch.node_ids[:, None] < 100)[src] == (batch.node_ids[:, None] < 100)[dst]
    assert logits[same[:, 0]].mean() > logits[~same[:, 0]].mean() + 0.5


# Links in time


@pytest.mark.parametrize("exclude", ["none", "reverse"])
@pytest.mark.parametrize("negatives", ["uniform", "in_batch"])
def test_pairs_are_asked_for_at_the_time_of_their_edge(graph, negatives, exclude):
    timed = Graph(graph.indptr, graph.indices, times=np.random.default_rng(0).integers(0, 50, graph.num_edges))
    edges = np.array([5, 900, 17, 2999])
    sampler = LinkSampler(TemporalSampler([5, 5]), negatives, 2, exclude)
    batch, plain = (s.sample(timed, edges, seed=4) for s in (sampler, LinkSampler(NeighborSampler([5]), negatives, 2)))
    pairs = batch.extra["pairs"]
    assert batch.node_ids[pairs].tolist() == plain.node_ids[plain.extra["pairs"]].tolist()
    assert batch.extra["labels"].tolist() == plain.extra["labels"].tolist()
    bounds = timed.times[np.r_[edges, np.repeat(edges, 2)]] - (exclude != "none")
    assert (batch.extra["seed_times"][pairs] == bounds).all()
    trees, (_, dst) = batch.extra["trees"], batch.blocks[0].edge_index().numpy()
    assert batch.num_edges > 20
    assert (timed.times[batch.blocks[0].edge_ids] <= batch.extra["seed_times"][trees[dst]]).all()
    with refused("times", "graph no times", "Graph.from_edges NeighborSampler"):
        sampler.sample(graph, edges)


def test_links_in_time_through_the_loader(dataset):
    graph = Graph(dataset.graph.indptr, dataset.graph.indices, times=np.arange(3000))
    data = Dataset(name="timed", graph=graph, x=dataset.x, splits=dataset.splits)
    loader = SampleLoader(data, LinkSampler(TemporalSampler([3], strategy="recent")), batch_size=400)
    batches = [contents(batch) for batch in loader]
    assert len(batches) == len(loader) > 2
    assert all("extra.pairs" in batch for batch in batches)


def link(*arguments, **options):
    return LinkSampler(NeighborSampler([2]), *arguments, **options)


def edge_beside_the_destinations(graph):
    link(edges=graph.ids_of(graph.indptr[[70, 3]]), dst_range=(20, 80)).items(graph, np.arange(200))


MISTAKES = {
    "an unknown distribution of negatives": Mistake(
        lambda: link("some"), value="'some'", rule="negatives", remedy="uniform degree in_batch filtered pairs"
    ),
    "an unknown exclusion": Mistake(lambda: link(exclude="all"), value="'all'", rule="exclude", remedy="none self reverse"),
    "a negative number of negatives": Mistake(lambda: link(num_negatives=-1), value="-1", rule="num_negatives 0 16777215"),
    "a sampler that chooses its seeds": Mistake(
        lambda: LinkSampler(link()), value="LinkSampler", rule="sampler chooses seeds", remedy="NeighborSampler"
    ),
    "pairs within destinations": Mistake(
        lambda: link("pairs", dst_range=(0, 3)), value='"pairs"', rule="negatives dst_range source", remedy="uniform"
    ),
    "pairs with times": Mistake(
        lambda: LinkSampler(TemporalSampler([1]), "pairs"), value='"pairs"', rule="negatives TemporalSampler source", remedy="uniform"
    ),
    "negatives by degrees that are all zero": Mistake(
        lambda: link("degree", dst_range=(4, 10)).sample(STAR, np.arange(2)),
        value="[4, 10)",
        rule="negatives degree no edge",
        remedy="uniform",
    ),
    **{
        f"destinations {wrong}": Mistake(
            lambda wrong=wrong: link(dst_range=wrong), value=str(wrong), rule="dst_range begin end", remedy="0 <= begin < end"
        )
        for wrong in ((3, 3), (-1, 4), (0, 4, 5))
    },
    "destinations beyond the graph": Mistake(
        lambda graph: link(dst_range=(0, 201)).sample(graph, np.array([3])), value="(0, 201)", rule="dst_range graph 200 nodes"
    ),
    "an edge that leads elsewhere": Mistake(
        edge_beside_the_destinations, value="node 3", rule="edge dst_range (20, 80)", remedy="leave out"
    ),
    "an edge beyond the last": Mistake(
        lambda graph: link().sample(graph, np.array([0, 3000])), value="edge 3000", rule="not graph edges", remedy="0 2999"
    ),
    "a negative edge": Mistake(
        lambda graph: link().sample(graph, np.array([-1])), value="edge -1", rule="not graph edges", remedy="0 2999"
    ),
    "no edges": Mistake(
        lambda graph: link().sample(graph, np.array([])), value="(0,)", rule="edges shape", remedy="one-dimensional integer least one"
    ),
    "edges that are no integers": Mistake(
        lambda graph: link().sample(graph, np.array([0.5])), value="float64", rule="edges", remedy="one-dimensional integer least one"
    ),
    "a split without links": Mistake(
        lambda graph: link().items(graph, np.array([198, 199])), value="2 nodes", rule="no edge leads split", remedy="another"
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
