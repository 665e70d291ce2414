"""LightGCN equals PyG's model on the whole graph, in embeddings and training steps, and is unbiased for sampled neighbours."""

import numpy as np
import pytest
import torch
from cases.mistakes import Mistake, each_of
from torch_geometric.nn import LightGCN as OfPyG

from hoptrain.engine import Dataset, Graph
from hoptrain.samplers import LaborSampler, NeighborSampler
from hoptrain.trainers.models.inference import layerwise_inference
from hoptrain.trainers.models.lightgcn import LightGCN


@pytest.fixture(scope="module")
def graph():
    """Return a graph with both directions of user-item pairs, in which node 59 has no edge."""
    rng = np.random.default_rng(0)
    places = rng.permutation(20 * 39)[:200]
    return Graph.from_pairs(places // 39, 20 + places % 39, 60)


def edge_index(graph):
    return torch.from_numpy(np.stack([graph.indices.astype(np.int64), graph.destinations()]))


def of(model, graph, table, nodes, sampler):
    batch = sampler.sample(graph, nodes).to("cpu")
    degrees = torch.from_numpy(graph.in_degrees()).float()
    return model(table[batch.node_ids.long()], batch.blocks, degrees[batch.node_ids.long()])


@pytest.mark.parametrize("expand", ["all", "new"])
@pytest.mark.parametrize("num_layers", [1, 3])
def test_vectors_are_pygs(graph, num_layers, expand):
    torch.manual_seed(0)
    theirs, ours, nodes = OfPyG(60, 8, num_layers), LightGCN(8, 8, 8, num_layers), np.array([59, 3, 40, 21])
    table = theirs.embedding.weight
    expected = theirs.get_embedding(edge_index(graph))[nodes]
    torch.testing.assert_close(of(ours, graph, table, nodes, NeighborSampler([-1] * num_layers, expand=expand)), expected)
    exact = layerwise_inference(ours, Dataset(graph=graph), nodes, normalize=False, device=torch.device("cpu"), x=table)
    torch.testing.assert_close(exact, expected)


@pytest.mark.parametrize("sampler", [NeighborSampler([2]), LaborSampler([2])])
def test_sampled_neighbours_stand_for_the_others(graph, sampler):
    """The mean embedding over many batches of sampled neighbours equals the embedding from all neighbours."""
    table, model, nodes = torch.randn(60, 4, generator=torch.Generator().manual_seed(0)), LightGCN(4, 4, 4, 1), np.arange(10)
    degrees = torch.from_numpy(graph.in_degrees()).float()
    drawn = []
    for number in range(3000):
        batch = sampler.sample(graph, nodes, batch=number).to("cpu")
        drawn.append(model(table[batch.node_ids.long()], batch.blocks, degrees[batch.node_ids.long()]))
    each = torch.stack(drawn)
    error = (each.mean(0) - of(model, graph, table, nodes, NeighborSampler([-1]))).abs()
    assert (error < 5 * each.std(0) / 3000**0.5 + 1e-6).all()


SIZES_RULE = {"rule": "lightgcn layers channels equal widths", "remedy": "hidden_channels out_channels width"}
OPTIONS_RULE = {"rule": "lightgcn layers no weights options", "remedy": "leave out"}
MISTAKES = {
    "fewer channels at the end": Mistake(lambda: LightGCN(8, 8, 4, 2), value="to 4 channels", **SIZES_RULE),
    "fewer channels in the middle": Mistake(lambda: LightGCN(8, 4, 8, 2), value="over 4", **SIZES_RULE),
    "no layers": Mistake(lambda: LightGCN(8, 8, 8, 0), value="0 layers", **SIZES_RULE),
    "dropout": Mistake(lambda: LightGCN(8, 8, 8, 2, dropout=0.5), value="dropout is 0.5", **OPTIONS_RULE),
    "heads": Mistake(lambda: LightGCN(8, 8, 8, 2, heads=4, norm="none"), value="heads is 4", **OPTIONS_RULE),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
