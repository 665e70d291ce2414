"""A sampler that asks for the sources of the edges that it draws makes the batches of one that has the graph, several of them beside each other."""

import numpy as np
import pytest

from hoptrain.engine import Address, Graph
from hoptrain.samplers import LaborSampler, NeighborSampler, Workspace


def contents(batch):
    return {name: (array.dtype, array.tobytes()) for name, array in batch.arrays().items()} | {
        "at": (batch.epoch, batch.batch, batch.nested)
    }


@pytest.mark.parametrize("options", [{}, {"replace": True}, {"expand": "new"}])
@pytest.mark.parametrize("fanouts", [[5, 3], [1], [-1], [2, -1, 4], [100, 70], [0.3, 4], [3, 0.5]])
def test_batches_beside_each_other_are_those_of_a_graph_at_hand(graph, fanouts, options):
    sampler, draw = NeighborSampler(fanouts, **options), np.random.default_rng(0)
    blind = Graph(graph.indptr, np.full_like(graph.indices, graph.num_nodes - 1), validate=False, is_sorted=False)
    workspace, number = Workspace(), 4
    seeds = [draw.choice(graph.num_nodes, 12, replace=False) for _ in range(number)]
    asking = [sampler.asking(blind, seeds[i], Address(9, 1, i), workspace.part(i, 0)) for i in range(number)]
    places, made = [next(each) for each in asking], []
    for _ in fanouts:
        answers = [graph.indices[own] for _, own in places]
        for i, each in enumerate(asking):
            try:
                places[i] = each.send(answers[i])
            except StopIteration as end:
                made.append(end.value)
    assert [contents(batch) for batch in made] == [
        contents(sampler.sample(graph, seeds[i], seed=9, epoch=1, batch=i)) for i in range(number)
    ]


def test_who_can_ask(graph):
    class Own(NeighborSampler):
        pass

    assert NeighborSampler([3, -1]).can_ask
    assert NeighborSampler([3, 0.5]).can_ask
    assert NeighborSampler([3], weighted=True).can_ask
    assert not Own([3]).can_ask
    assert not getattr(LaborSampler([3]), "can_ask", False)
