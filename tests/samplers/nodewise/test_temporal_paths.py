"""TemporalSampler with times that increase along paths: bit-identical to its reference, and every path is increasing."""

import numpy as np
import pytest
from cases.mistakes import refused
from reference import temporal as reference

from hoptrain.engine import Graph
from hoptrain.samplers import TemporalSampler, Workspace

SEEDS = np.array([3, 17, 3, 0, 9])
TIMES = np.array([50, 12, 7, 99, 31])


@pytest.fixture(scope="module")
def graph():
    """Return 20 nodes with parallel edges, self loops, equal times, and a node without in-edges."""
    generator = np.random.default_rng(6)
    return Graph.from_edges(generator.integers(0, 20, 300), generator.integers(0, 19, 300), 20, times=generator.integers(0, 60, 300))


def as_lists(batch):
    block = batch.blocks[0]
    nodes = list(zip(batch.extra["trees"].tolist(), batch.node_ids.tolist(), strict=True))
    return (
        (block.indptr.tolist(), block.indices.tolist(), block.edge_ids.tolist()),
        [batch.num_seeds, *(b.num_src for b in batch.blocks[::-1])],
        nodes,
    )


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("options", [{}, {"replace": True}, {"strategy": "recent"}], ids=str)
@pytest.mark.parametrize("fanouts", [[2], [3, 2], [-1, 2, -1], [4, 4, 4]], ids=str)
def test_batches_are_those_of_the_reference(graph, fanouts, options, threads):
    sampler, scratch = TemporalSampler(fanouts, None, monotone=True, **options), Workspace(threads)
    for number in range(6):
        batch = sampler.sample(graph, SEEDS, times=TIMES + number, seed=7, epoch=2, batch=number, workspace=scratch)
        wanted = reference.batch_of_paths(
            graph, SEEDS.tolist(), (TIMES + number).tolist(), fanouts, sampler.strategy, sampler.replace, (7, 2, number)
        )
        assert as_lists(batch) == wanted
        assert batch.extra["seed_times"].tolist() == (TIMES + number).tolist()


def test_times_increase_along_every_path(graph):
    for number in range(20):
        batch = TemporalSampler([5, 5, 5], None, monotone=True).sample(graph, SEEDS, times=TIMES, batch=number)
        block = batch.blocks[0]
        src, dst = block.edge_index().numpy()
        assert sorted(src.tolist()) == list(range(5, len(batch.node_ids))), "every edge leads to a node of its own"
        reached = np.full(len(batch.node_ids), 1000)
        reached[src] = graph.times[block.edge_ids]
        first = dst < 5
        assert (graph.times[block.edge_ids[first]] <= TIMES[dst[first]]).all()
        assert (graph.times[block.edge_ids[~first]] < reached[dst[~first]]).all()
        assert (batch.extra["trees"][src] == batch.extra["trees"][dst]).all()


def test_all_paths_are_there_without_fanouts(graph):
    """Without fanouts, the number of paths equals that of a recursive count."""

    def paths(node, bound, hops):
        ids = [e for e in range(graph.indptr[node], graph.indptr[node + 1]) if graph.times[e] <= bound]
        return len(ids) + (sum(paths(int(graph.indices[e]), int(graph.times[e]) - 1, hops - 1) for e in ids) if hops > 1 else 0)

    batch = TemporalSampler([-1, -1, -1], None, monotone=True).sample(graph, SEEDS, times=TIMES)
    assert batch.blocks[0].num_edges == sum(paths(int(v), int(t), 3) for v, t in zip(SEEDS, TIMES, strict=True))


def test_what_cannot_be(graph, monkeypatch):
    with refused("monotone=True", "TemporalSampler no kernels CUDA", "cpu leave monotone out"):
        TemporalSampler([2], None, monotone=True).sample(graph, SEEDS, times=TIMES, device="cuda")
    monkeypatch.setattr("hoptrain.kernels.cpu.nodewise.temporal.MAX_TREES", 8)
    with refused("15 paths", "batch most 8", "smaller batches fanouts"):
        TemporalSampler([2], None, monotone=True).sample(graph, SEEDS, times=TIMES)
