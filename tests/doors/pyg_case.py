"""A graph as PyG's users have them."""

import torch
from torch_geometric.data import Data


def some_data():
    """200 vertices and 1,200 edges in a user's order, with multi-edges and self-loops, and attributes of all kinds."""
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
