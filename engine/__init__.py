"""Graphs, data sets, features, the schedule of an epoch, the shared-memory queue and its worker processes. No sampling algorithm, no torch import.

Names are imported at first use, so that the command line can check its options without waiting for NumPy and Numba.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hoptrain.engine.arrays import BFLOAT16, to_bfloat16
    from hoptrain.engine.dataset import Dataset
    from hoptrain.engine.datasets import load_dataset, load_hetero_dataset
    from hoptrain.engine.errors import InputError, WorkerError
    from hoptrain.engine.graph import Graph
    from hoptrain.engine.hetero_dataset import HeteroDataset
    from hoptrain.engine.hetero_graph import HeteroGraph
    from hoptrain.engine.queue.options import WorkerOptions
    from hoptrain.engine.schedule import Address, Schedule

_HOME = {
    "Address": "schedule",
    "BFLOAT16": "arrays",
    "Dataset": "dataset",
    "Graph": "graph",
    "HeteroDataset": "hetero_dataset",
    "HeteroGraph": "hetero_graph",
    "InputError": "errors",
    "WorkerOptions": "queue.options",
    "Schedule": "schedule",
    "WorkerError": "errors",
    "load_dataset": "datasets",
    "load_hetero_dataset": "datasets",
    "to_bfloat16": "arrays",
}

__all__ = [
    "BFLOAT16",
    "Address",
    "Dataset",
    "Graph",
    "HeteroDataset",
    "HeteroGraph",
    "InputError",
    "Schedule",
    "WorkerError",
    "WorkerOptions",
    "load_dataset",
    "load_hetero_dataset",
    "to_bfloat16",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    return value
