"""Graphs as users of PyG have them, with unsorted edges and all kinds of attributes."""

import torch
from torch_geometric.data import Data, HeteroData


def some_data():
    """Return a graph of 200 nodes and 1,200 unsorted edges, with parallel edges, self-loops, and attributes of all kinds."""
    generator = torch.Generator().manual_seed(5)

    def rand(*shape):
        return torch.rand(*shape, generator=generator)

    edge_index = (rand(2, 1200) * torch.tensor([[200.0], [190.0]])).long()
    return Data(
        x=rand(200, 7),
        edge_index=edge_index,
        edge_attr=rand(1200, 3),
        y=(rand(200) * 4).long(),
        train_mask=rand(200) < 0.4,
        born=(rand(200) * 50).long(),
        made=(rand(1200) * 50).long(),
        weight=rand(1200),
        name="graph",
    )


def some_hetero_data():
    """Return a graph of papers, authors and venues, two of which have features."""
    generator = torch.Generator().manual_seed(6)

    def rand(*shape):
        return torch.rand(*shape, generator=generator)

    data = HeteroData()
    data["paper"].x, data["paper"].y, data["paper"].born = rand(120, 5), (rand(120) * 3).long(), (rand(120) * 40).long()
    data["paper"].train_mask = rand(120) < 0.4
    data["author"].x, data["author"].born = rand(80, 3), (rand(80) * 40).long()
    data["venue"].num_nodes, data["venue"].born = 6, torch.arange(6)
    numbers = {"paper": 120, "author": 80, "venue": 6}
    edges = {
        ("paper", "cites", "paper"): 500,
        ("author", "writes", "paper"): 400,
        ("paper", "of", "author"): 300,
        ("paper", "in", "venue"): 100,
    }
    for (source, name, destination), number in edges.items():
        store = data[source, name, destination]
        store.edge_index = (rand(2, number) * torch.tensor([[numbers[source]], [numbers[destination] * 0.9]])).long()
        store.edge_attr, store.made, store.weight = rand(number, 2), (rand(number) * 40).long(), rand(number)
    data.name = "graph"
    return data
