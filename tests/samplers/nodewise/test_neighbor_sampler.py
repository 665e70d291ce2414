"""NeighborSampler equals a slow reference and rejects invalid arguments."""

import numpy as np
import pytest
from cases.mistakes import Mistake, each_of
from conftest import make_graph
from reference import neighbor as reference

from hoptrain.engine import Graph
from hoptrain.samplers import NeighborSampler, Workspace


def as_lists(batch):
    """Return a mini-batch in the form of the reference."""
    hops = [(b.indptr.tolist(), b.indices.tolist(), b.edge_ids.tolist(), b.num_src) for b in reversed(batch.blocks)]
    return hops, batch.node_ids.tolist()


@pytest.mark.parametrize("expand", ["all", "new"])
@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("fanouts", [[5, 3], [1], [-1], [2, -1, 4], [100, 70], [0.25, 3]])
def test_equal_to_the_reference(graph, fanouts, replace, expand):
    rng = np.random.default_rng(0)
    workspace = Workspace()
    for batch in range(5):
        seeds = rng.choice(graph.num_nodes, 12, replace=False)
        address = {"seed": 2**63 + 7, "epoch": 3, "batch": batch}
        sampled = NeighborSampler(fanouts, replace, expand=expand).sample(graph, seeds, workspace=workspace, **address)
        assert as_lists(sampled) == reference.batch(graph, seeds.tolist(), fanouts, replace, **address, expand=expand)


def test_blocks_fit_together(graph):
    batch = NeighborSampler([4, 3, 2]).sample(graph, np.arange(20))
    assert batch.blocks[0].num_src == len(batch.node_ids)
    assert batch.blocks[-1].num_dst == batch.num_seeds == 20
    for outer, inner in zip(batch.blocks[:-1], batch.blocks[1:], strict=True):
        assert outer.num_dst == inner.num_src
    assert batch.seeds.tolist() == list(range(20))
    assert len(set(batch.node_ids.tolist())) == len(batch.node_ids)


def test_every_edge_exists_and_is_what_it_says(graph):
    batch = NeighborSampler([6, 6]).sample(graph, np.arange(0, 190, 7))
    for block in batch.blocks:
        src, dst = block.edge_index().numpy()
        assert (graph.indices[block.edge_ids] == batch.node_ids[src]).all()
        owner = np.searchsorted(graph.indptr, block.edge_ids, side="right") - 1
        assert (owner == batch.node_ids[dst]).all()


def test_without_replacement_takes_distinct_edges_or_all(graph):
    degrees = graph.in_degrees()
    block = NeighborSampler([8]).sample(graph, np.arange(graph.num_nodes)).blocks[0]
    assert (np.diff(block.indptr) == np.minimum(degrees, 8)).all()
    assert len(set(block.edge_ids.tolist())) == block.num_edges


def test_isolated_nodes_self_loops_and_multi_edges():
    graph = Graph.from_edges(np.array([0, 0, 0, 2]), np.array([0, 1, 1, 1]), 4)
    batch = NeighborSampler([-1]).sample(graph, np.array([3, 0, 1]))
    block = batch.blocks[0]
    assert batch.node_ids.tolist() == [3, 0, 1, 2]
    assert block.indptr.tolist() == [0, 0, 1, 4]  # 3 is isolated, 0 has a self loop, 1 has two in-edges from 0 and one from 2
    assert block.indices.tolist() == [1, 1, 1, 3]
    with_replacement = NeighborSampler([5], replace=True).sample(graph, np.array([3, 0])).blocks[0]
    assert with_replacement.indptr.tolist() == [0, 0, 5]


def test_a_bulk_is_its_batches(graph):
    sampler, seeds = NeighborSampler([3, 2]), [np.arange(5), np.arange(50, 60), np.array([7])]
    bulk = sampler.sample_bulk(graph, seeds, seed=1, epoch=2, first_batch=10)
    alone = [sampler.sample(graph, s, seed=1, epoch=2, batch=10 + i) for i, s in enumerate(seeds)]
    assert [as_lists(b) for b in bulk] == [as_lists(b) for b in alone]
    assert [b.batch for b in bulk] == [10, 11, 12]


def test_each_part_of_the_address_changes_the_draws(graph):
    def draw(**address):
        return as_lists(NeighborSampler([3, 3]).sample(graph, np.arange(30), **({"seed": 0, "epoch": 0, "batch": 0} | address)))

    first = draw()
    assert first == draw()
    assert all(first != draw(**{name: 1}) for name in ("seed", "epoch", "batch"))


def test_a_neighbour_is_drawn_as_often_as_any_other():
    """Each neighbour is drawn with the same frequency: of 10, 3 are drawn, so each is in 30 % of the batches (chi-square test)."""
    graph = Graph.from_edges(np.arange(1, 11), np.zeros(10, np.int64))
    sampler, seeds, counts = NeighborSampler([3]), np.array([0]), np.zeros(11)
    for batch in range(4000):
        counts[sampler.sample(graph, seeds, batch=batch).node_ids[1:]] += 1
    # Drawn without replacement the counts vary less than multinomial ones, so the bound (p = 0.001) is on the safe side.
    assert ((counts[1:] - 1200) ** 2 / 1200).sum() < 27.9


def test_ids_are_as_narrow_as_they_can_be(graph):
    batch = NeighborSampler([3]).sample(graph, np.arange(5, dtype=np.int64))
    assert batch.node_ids.dtype == batch.blocks[0].indices.dtype == batch.blocks[0].edge_ids.dtype == np.int32


def test_a_workspace_serves_graphs_of_different_sizes():
    workspace, sampler = Workspace(), NeighborSampler([4, 4])
    for seed, size in ((0, 300), (1, 50), (2, 500)):
        graph = make_graph(size, 10 * size, seed)
        with_scratch = sampler.sample(graph, np.arange(20), workspace=workspace)
        assert as_lists(with_scratch) == as_lists(sampler.sample(graph, np.arange(20)))


def sampled(graph, seeds, **address):
    return NeighborSampler([2]).sample(graph, np.array(seeds), **address)


MISTAKES = {
    **{
        f"seed {wrong}": Mistake(
            lambda graph, wrong=wrong: sampled(graph, [wrong]), value=f"seed {wrong}", rule="not graph", remedy="0 199"
        )
        for wrong in (200, -1)
    },
    "a seed given twice": Mistake(
        lambda graph: sampled(graph, [4, 5, 4]), value="seed 4", rule="given twice", remedy="numpy.unique(seeds)"
    ),
    **{
        f"seeds {wrong}": Mistake(
            lambda graph, wrong=wrong: sampled(graph, wrong),
            value=value,
            rule="seeds shape",
            remedy="one-dimensional integer array least one",
        )
        for wrong, value in (([], "(0,)"), ([[1, 2]], "(1, 2)"), ([1.5], "float64"))
    },
    **{
        f"{name} {wrong} of random numbers": Mistake(
            lambda graph, name=name, wrong=wrong: sampled(graph, [0], **{name: wrong}),
            value=f"{name} is {wrong}",
            rule="part random number's address",
            remedy=f"[0, {limit})",
        )
        for name, wrong, limit in (
            ("seed", -1, 1 << 64),
            ("seed", 1 << 64, 1 << 64),
            ("epoch", 1 << 20, 1 << 20),
            ("batch", 1 << 32, 1 << 32),
        )
    },
    "no fanouts": Mistake(lambda: NeighborSampler([]), value="[]", rule="fanouts", remedy="one number each hop [15, 10]"),
    **{
        f"fanouts {wrong}": Mistake(
            lambda wrong=wrong: NeighborSampler(wrong),
            value=f"fanout {wrong[-1]} in {wrong}",
            rule="hop edges share",
            remedy="1 67108863 -1 0.5",
        )
        for wrong in ([0], [5, 0], [-2], [1 << 26], [2.5], [0.0], [-0.5], [float("nan")])
    },
    **{
        f"fanouts {wrong}, which are no numbers": Mistake(
            lambda wrong=wrong: NeighborSampler(wrong), value=str(wrong), rule="fanouts", remedy="whole number share each hop"
        )
        for wrong in (["0.5"], [2, "3"], 5, [True])
    },
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
