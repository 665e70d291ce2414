import pytest
import torch
from torch_geometric.data import Data


@pytest.fixture
def data():
    """300 vertices and 2,400 edges in a user's order, with multi-edges and self-loops, and attributes of all kinds."""
    generator = torch.Generator().manual_seed(5)

    def rand(*shape):
        return torch.rand(*shape, generator=generator)

    edge_index = (rand(2, 2400) * torch.tensor([[300.0], [290.0]])).long()
    return Data(
        x=rand(300, 7),
        edge_index=edge_index,
        edge_attr=rand(2400, 3),
        y=(rand(300) * 4).long(),
        train_mask=rand(300) < 0.4,
        born=(rand(300) * 50).long(),
        made=(rand(2400) * 50).long(),
        weight=rand(2400),
        name="graph",
    )
