"""The page "Coming from PyG" lists exactly the arguments of PyG's and torch's loaders, and its examples run."""

import inspect
import re
from pathlib import Path

import torch_geometric.loader
from torch.utils.data import DataLoader

import hoptrain.pyg
from hoptrain.pyg.on_device import DEVICE_OPTIONS

PAGE = Path(__file__).parents[3] / "docs" / "coming_from_pyg.md"


def test_every_argument_is_in_the_table():
    rows = [line.split("|")[1] for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    documented = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    named = {"input_id", "custom_cls"}  # arguments of PyG's NodeLoader, which NeighborLoader accepts as keywords
    samplers = ("NeighborSampler", "BidirectionalNeighborSampler")  # torch_geometric.loader has an older class named NeighborSampler
    theirs = [getattr(torch_geometric.sampler if name in samplers else torch_geometric.loader, name) for name in hoptrain.pyg.__all__]
    for one in (*theirs, DataLoader):
        named |= set(inspect.signature(one).parameters)
    assert set(documented) == named - {"kwargs"} | {*DEVICE_OPTIONS}


def test_the_examples_run():
    names = {"__name__": "page"}
    for example in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(example, names)
    assert names["batch"].batch_size <= 32
    assert next(iter(names["loader"])).num_sampled_nodes[0] == 32, "PyG's own loader over hoptrain's sampler"
