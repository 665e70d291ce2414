"""Graph and feature stores, data sets, epoch schedule, shared-memory queue, worker pool. Knows no sampling algorithm, imports no torch."""

from hoptrain.engine.arrays import BFLOAT16, to_bfloat16
from hoptrain.engine.dataset import Dataset
from hoptrain.engine.datasets import load_dataset
from hoptrain.engine.errors import InputError, WorkerError
from hoptrain.engine.graph import Graph
from hoptrain.engine.hetero_dataset import HeteroDataset
from hoptrain.engine.hetero_graph import HeteroGraph
from hoptrain.engine.queue.options import QueueOptions
from hoptrain.engine.schedule import Address, Schedule

__all__ = [
    "BFLOAT16",
    "Address",
    "Dataset",
    "Graph",
    "HeteroDataset",
    "HeteroGraph",
    "InputError",
    "QueueOptions",
    "Schedule",
    "WorkerError",
    "load_dataset",
    "to_bfloat16",
]
