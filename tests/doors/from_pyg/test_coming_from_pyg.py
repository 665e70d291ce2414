"""The page's table names every argument of PyG's loaders and of torch's, and no other."""

import inspect
import re
from pathlib import Path

import torch_geometric.loader
from torch.utils.data import DataLoader

import hoptrain.pyg

PAGE = Path(__file__).parents[3] / "docs" / "coming_from_pyg.md"


def test_every_argument_is_in_the_table():
    rows = [line.split("|")[1] for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    told = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    named = {"input_id", "custom_cls"}  # of PyG's NodeLoader, which its NeighborLoader hands on by keyword
    loaders = [getattr(torch_geometric.loader, name) for name in hoptrain.pyg.__all__ if name != "NeighborSampler"]
    for loader in (*loaders, torch_geometric.sampler.NeighborSampler, DataLoader):
        named |= set(inspect.signature(loader).parameters)
    assert set(told) == named - {"kwargs"}
