"""Common behaviour of subgraph samplers: induced edges, seeds first, input errors; and ripple walks."""

import numpy as np
import pytest
from cases.mistakes import Mistake, each_of, refused
from cases.relabelling import relabelled_by
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import subgraph as reference
from subgraph_case import as_lists, check_loader, check_pure, fit, graphs, grid

from hoptrain.engine import Graph
from hoptrain.samplers import RippleWalkSampler, SaintWalkSampler, Workspace
from hoptrain.samplers.subgraphs.induced import Members, find_members, induced

ONE = np.array([0])


def members_and_block(graph, drawn, split, scratch):
    is_seed = np.isin(np.arange(graph.num_nodes), split)
    members = find_members(graph, np.array(drawn, graph.indices.dtype), is_seed, scratch)
    return members, induced(graph, members, scratch)


@settings(max_examples=80)
@given(graph=graphs(), hashed=st.booleans(), data=st.data())
def test_any_nodes_of_any_graph(graph, hashed, data):
    node = st.integers(0, graph.num_nodes - 1)
    with relabelled_by(hashed):
        scratch = Workspace()
        for _ in range(2):  # the second time with used scratch buffers
            drawn, split = data.draw(st.lists(node, min_size=1, max_size=40)), data.draw(st.sets(node))
            members, block = members_and_block(graph, drawn, list(split), scratch)
            nodes, num_seeds = reference.seeds_first(drawn, split)
            assert (members.nodes.tolist(), members.num_seeds) == (nodes, num_seeds)
            assert tuple(a.tolist() for a in (block.indptr, block.indices, block.edge_ids)) == reference.induced(graph, nodes)


@pytest.mark.parametrize("hashed", [False, True])
def test_columns_of_any_length(hashed):
    """Induced edges equal the reference's for columns of any length, from no edge to more than are prefetched at once."""
    rng, chunk = np.random.default_rng(0), 512
    degrees = [1, 3 * chunk, 0, chunk - 1, 1, chunk, 0, 2, 5 * chunk + 7, 0]
    indptr = np.r_[0, np.cumsum(degrees)]
    graph = Graph(indptr, rng.integers(0, 10, indptr[-1]))
    for drawn in ([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], [9, 8, 2, 0], [1], [9], [6, 5, 3]):
        with relabelled_by(hashed):
            members, block = members_and_block(graph, drawn, [2, 5], Workspace())
        assert tuple(a.tolist() for a in (block.indptr, block.indices, block.edge_ids)) == reference.induced(graph, members.nodes.tolist())


def test_a_large_subgraph(graph):
    """A subgraph of 120 nodes, large enough for column prefetching, equals that of a dense matrix."""
    nodes = np.random.default_rng(1).permutation(graph.num_nodes)[:120].astype(np.int32)
    scratch = Workspace()
    members, block = members_and_block(graph, nodes, [], scratch)
    assert members.num_seeds == 0
    dense, sub = np.zeros((200, 200), int), np.zeros((120, 120), int)
    np.add.at(dense, (np.repeat(np.arange(200), graph.in_degrees()), graph.indices), 1)
    np.add.at(sub, (np.repeat(np.arange(120), np.diff(block.indptr)), block.indices), 1)
    assert (sub == dense[np.ix_(nodes, nodes)]).all()


def test_an_empty_graph_between_isolated_nodes():
    graph = Graph.from_edges([], [], 3)
    block = induced(graph, Members(np.array([2, 0], np.int32), 0, np.array([2, 0, -1], np.int32)), Workspace())
    assert block.indptr.tolist() == [0, 0, 0]


# Ripple walks


@settings(max_examples=60)
@given(
    graph=graphs(),
    size=st.integers(1, 35),
    ratio=st.sampled_from([0.01, 0.3, 0.5, 1.0]),
    address=st.tuples(*[st.integers(0, 2**20 - 1)] * 2),
)
def test_ripple_walks_of_any_graph(graph, size, ratio, address):
    split = np.arange(0, graph.num_nodes, 2)
    sampler = RippleWalkSampler(size, ratio, num_layers=3).prepare(graph, split)
    epoch, batch = address
    drawn = reference.ripple(
        reference.columns_of(graph), split.tolist(), min(size, graph.num_nodes), round(ratio * 2**32), (5, epoch, batch, 0)
    )
    nodes, num_seeds = reference.seeds_first(drawn, set(split.tolist()))
    expected = num_seeds, nodes, *reference.induced(graph, nodes), None, None
    assert as_lists(sampler.sample(graph, ONE, seed=5, epoch=epoch, batch=batch)) == expected
    assert num_seeds > 0


def test_ripple_walks_take_any_neighbour_equally_often():
    """Ripple walks take each neighbour with the same frequency.

    From the centre of a star with ratio 0.25, 3 of 12 leaves are taken: each in a quarter of the batches, each pair in 3 * 2 / (12 * 11).
    """
    graph = Graph.from_edges(np.arange(1, 13), np.zeros(12, int))
    sampler, together, batches = RippleWalkSampler(4, 0.25).prepare(graph, ONE), np.zeros((13, 13)), 4000
    for batch in range(batches):
        nodes = sampler.sample(graph, ONE, batch=batch).node_ids
        assert len(nodes) == 4
        together[np.ix_(nodes, nodes)] += 1
    leaves = np.diag(together)[1:]
    assert leaves.sum() == 3 * batches
    assert ((leaves - batches / 4) ** 2).sum() / (
        batches / 4 * (1 - 1 / 4)
    ) * 11 / 12 < 31.3  # chi-square, 11 degrees of freedom, p = 0.001
    pairs, rate = together[1:, 1:][np.triu_indices(12, 1)], 1 / 22
    assert ((pairs - batches * rate) ** 2).sum() / (batches * rate * (1 - rate)) < 107 * 1.1  # 65 degrees of freedom, weakly dependent


@pytest.mark.parametrize(("ratio", "steps"), [(1.0, 2), (0.01, 12)])
def test_the_ratio_decides_how_a_ripple_walk_grows(ratio, steps):
    """The ratio decides how far a ripple walk reaches.

    With ratio 1 whole hops are added, so 13 nodes of the torus are a ball of radius 2. Near 0 single nodes are added, further away.
    """
    graph = grid(40)
    sampler = RippleWalkSampler(13, ratio).prepare(graph, np.array([820]))
    distance = np.zeros(20)
    for batch in range(20):
        row, column = np.divmod(sampler.sample(graph, ONE, batch=batch).node_ids, 40)
        distance[batch] = (abs(row - 20) + abs(column - 20)).max()
    assert (distance.max() == 2) if ratio == 1 else (2 < distance.mean() < distance.max() <= steps)


def test_a_ripple_walk_continues_elsewhere_and_ends():
    """A ripple walk continues at another node of the split, and ends if it has reached all nodes that it can."""
    graph = Graph.from_edges([0, 1, 2, 3], [1, 0, 3, 2], 5)
    whole = RippleWalkSampler(5, 0.5).prepare(graph, np.array([0, 2])).sample(graph, ONE)
    assert sorted(whole.node_ids.tolist()) == [0, 1, 2, 3]
    assert whole.num_seeds == 2


def test_ripple_walks_are_pure(graph):
    sampler = RippleWalkSampler(50, 0.4).prepare(graph, np.arange(0, 200, 3))
    batches = check_pure(sampler, graph, [ONE] * 5)
    assert len({tuple(nodes) for _, nodes, *_ in batches}) == 5


def test_ripple_walks_through_the_loader(dataset):
    batches = check_loader(dataset, RippleWalkSampler(60, 0.4), 1)
    assert len(batches) == 4  # ceil(200 / 60) subgraphs
    assert all(len(nodes) == 60 for _, nodes, *_ in batches)


@pytest.mark.filterwarnings("ignore")  # Lightning's warnings about a small run
def test_training_on_ripple_walks():
    accuracy, loss = fit(RippleWalkSampler(600, 0.5, num_subgraphs=16), 1)
    assert accuracy > 0.6
    assert loss < 2


# Errors


def test_preparing_leaves_the_sampler_as_it_was(graph):
    sampler = RippleWalkSampler(3)
    sampler.prepare(graph, ONE)
    assert sampler.num_subgraphs is None
    with refused("RippleWalkSampler", "not know nodes train", "sampler.prepare(graph, seeds)"):
        sampler.sample(graph, ONE)


@pytest.fixture
def prepared(graph):
    return RippleWalkSampler(3).prepare(graph, ONE)


MISTAKES = {
    "subgraphs of size 0": Mistake(lambda: RippleWalkSampler(0), value="0", rule="size num_subgraphs None least 1"),
    "no subgraphs": Mistake(lambda: RippleWalkSampler(3, num_subgraphs=0), value="num_subgraphs 0", rule="size 3 least 1"),
    **{
        f"a ratio of {wrong}": Mistake(
            lambda wrong=wrong: RippleWalkSampler(3, ratio=wrong), value=str(wrong), rule="ratio share neighbours", remedy="(0, 1]"
        )
        for wrong in (0.0, 1.5)
    },
    "a model of no layers": Mistake(lambda: RippleWalkSampler(3, num_layers=0), value="0", rule="num_layers model layers", remedy="1 4079"),
    "walks that were not prepared": Mistake(
        lambda graph: SaintWalkSampler(3).sample(graph, ONE),
        value="SaintWalkSampler",
        rule="not know nodes train",
        remedy="sampler.prepare(graph, seeds) SampleLoader",
    ),
    "items before preparing": Mistake(
        lambda graph: RippleWalkSampler(3).items(graph, ONE),
        value="RippleWalkSampler",
        rule="not know nodes train",
        remedy="sampler.prepare(graph, seeds) SampleLoader",
    ),
    "another graph than it was prepared for": Mistake(
        lambda prepared: prepared.sample(grid(), ONE),
        value="Graph(num_nodes=36, num_edges=144, is_sorted=True)",
        rule="not graph RippleWalkSampler prepared",
        remedy="prepare(graph, seeds)",
    ),
    "two subgraphs in a batch": Mistake(
        lambda graph, prepared: prepared.sample(graph, np.array([0, 1])),
        value="batch_size is 2",
        rule="batch RippleWalkSampler one",
        remedy="batch_size 1",
    ),
    **{
        f"subgraph {wrong}": Mistake(
            lambda graph, prepared, wrong=wrong: prepared.sample(graph, np.array([wrong])),
            value=f"subgraph {wrong}",
            rule="not exist",
            remedy="0 66",
        )
        for wrong in (67, -1)
    },
    "a number of a subgraph that is no integer": Mistake(
        lambda graph, prepared: prepared.sample(graph, np.array([0.5])),
        value="float64",
        rule="subgraphs shape",
        remedy="one-dimensional integer least one",
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
