"""PyG's layers with the options that tests use, and a batch as their input."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch_geometric.data import Data

from hoptrain.pyg import NeighborLoader


@dataclass
class Layer:
    """A layer with options, and its inputs in addition to ``x`` and ``edge_index``."""

    make: Callable
    inputs: Callable = lambda batch: ()


def weights(batch):
    """Return a weight for each edge."""
    return (torch.linspace(0.5, 1.5, batch.edge_index.shape[1]),)


def features(batch):
    """Return three features for each edge."""
    return (torch.linspace(-1, 1, 3 * batch.edge_index.shape[1]).view(-1, 3),)


def mlp(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, outputs), nn.ReLU(), nn.Linear(outputs, outputs))


LAYERS = {
    "SAGEConv": Layer(lambda library, i, o: library.SAGEConv(i, o)),
    "SAGEConv sum": Layer(lambda library, i, o: library.SAGEConv(i, o, aggr="sum", normalize=True, bias=False)),
    "SAGEConv max": Layer(lambda library, i, o: library.SAGEConv(i, o, aggr="max", root_weight=False)),
    "SAGEConv project": Layer(lambda library, i, o: library.SAGEConv(i, o, project=True)),
    "SAGEConv pair": Layer(lambda library, i, o: library.SAGEConv((i, i), o)),
    "GraphConv": Layer(lambda library, i, o: library.GraphConv(i, o)),
    "GraphConv weights": Layer(lambda library, i, o: library.GraphConv(i, o, aggr="mean"), weights),
    "GINConv": Layer(lambda library, i, o: library.GINConv(mlp(i, o))),
    "GINConv eps": Layer(lambda library, i, o: library.GINConv(mlp(i, o), eps=0.3, train_eps=True)),
    "GCNConv": Layer(lambda library, i, o: library.GCNConv(i, o)),
    "GCNConv weights": Layer(lambda library, i, o: library.GCNConv(i, o, improved=True, bias=False), weights),
    "GCNConv no loops": Layer(lambda library, i, o: library.GCNConv(i, o, add_self_loops=False)),
    "GCNConv no norm": Layer(lambda library, i, o: library.GCNConv(i, o, normalize=False), weights),
    "GATConv": Layer(lambda library, i, o: library.GATConv(i, o // 2, heads=2)),
    "GATConv features": Layer(lambda library, i, o: library.GATConv(i, o, heads=2, concat=False, edge_dim=3, residual=True), features),
    "GATConv no loops": Layer(
        lambda library, i, o: library.GATConv(i, o, heads=3, concat=False, residual=True, bias=False, add_self_loops=False)
    ),
    "GATConv max": Layer(lambda library, i, o: library.GATConv(i, o // 2, heads=2, aggr="max")),
    "GATConv pair": Layer(lambda library, i, o: library.GATConv((i, i), o // 2, heads=2)),
    "GATv2Conv": Layer(lambda library, i, o: library.GATv2Conv(i, o // 2, heads=2)),
    "GATv2Conv shared": Layer(
        lambda library, i, o: library.GATv2Conv(i, o, heads=3, concat=False, residual=True, share_weights=True, add_self_loops=False)
    ),
    "GATv2Conv features": Layer(
        lambda library, i, o: library.GATv2Conv(i, o, heads=2, concat=False, edge_dim=3, add_self_loops=False), features
    ),
}


def make(library, name, inputs=6, outputs=8):
    """Return a layer of ``library`` with weights from a fixed random seed."""
    torch.manual_seed(0)
    return LAYERS[name].make(library, inputs, outputs)


def stack(library, name, number):
    """Return ``number`` layers, the first from 6 to 8 features, the others from 8 to 8."""
    torch.manual_seed(0)
    return nn.ModuleList(LAYERS[name].make(library, 8 if i else 6, 8) for i in range(number))


def some_data():
    """Return a graph of 200 nodes and 1,200 edges, with self-loops and parallel edges."""
    generator = torch.Generator().manual_seed(5)
    edge_index = (torch.rand(2, 1200, generator=generator) * torch.tensor([[200.0], [190.0]])).long()
    edge_index[0, :100] = edge_index[1, :100]
    return Data(x=torch.rand(200, 6, generator=generator) - 0.5, edge_index=edge_index, y=torch.arange(200) % 3)


def some_batch(**options):
    """Return a batch of 12 seeds with two hops."""
    torch.manual_seed(3)
    return next(iter(NeighborLoader(some_data(), [3, 2], input_nodes=torch.arange(12), batch_size=12, **options)))
