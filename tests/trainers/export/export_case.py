"""Classifiers of a small random graph, and the files that they are exported to."""

import json

import numpy as np
import torch

from hoptrain.engine import Dataset
from hoptrain.samplers import NeighborSampler
from hoptrain.trainers import NodeClassifier, NodeDataModule
from hoptrain.trainers.commands import export
from hoptrain.trainers.export.files import FACTS

RNG = np.random.default_rng(3)
DATA = Dataset(
    name="hundred",
    edge_index=RNG.integers(0, 100, (2, 900)),
    x=RNG.random((100, 8), dtype=np.float32),
    y=np.arange(100) % 8,
    edge_attr=RNG.random((900, 2), dtype=np.float32),
    splits={"train": np.arange(70), "val": np.arange(70, 80), "test": np.arange(80, 100)},
)


def exported(out, sampler=None, batch_size=16, data=DATA, **options):
    """Export a task to ``out``, and return the task and its data module."""
    module = NodeDataModule(data, sampler or NeighborSampler([4, 3]), batch_size=batch_size, num_workers=0, seed=1)
    torch.manual_seed(0)
    task = NodeClassifier(8, 8, module.num_hops, hidden_channels=8, **options)
    trainer = export.Exporter(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
    trainer.export(task, module, str(out))
    return task, module


def read(path):
    facts = {FACTS: ""}
    program = torch.export.load(path, extra_files=facts).module()
    return program, json.loads(facts[FACTS])
