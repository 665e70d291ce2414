"""The Lightning layer: command line, data modules, tasks, models, inference, pipelines, resuming and export.

Public names are imported on first use. So ``hoptrain data`` does not wait for torch, and ``hoptrain doctor`` works even if torch does not load.
"""

from importlib import import_module
from typing import Any

from hoptrain.trainers.lightning_package import unite_packages

_HOME = {
    "AdaptiveNodeClassifier": "tasks.adaptive",
    "EdgeDataModule": "tasks.edges",
    "EdgePredictor": "tasks.edges",
    "EventDataModule": "tasks.temporal_links",
    "EventPredictor": "tasks.temporal_links",
    "GNN": "models",
    "GraphClassifier": "tasks.items.graphs",
    "NodeDataModule": "tasks.nodes.data",
    "HeteroClassifier": "tasks.nodes.task",
    "HeteroDataModule": "tasks.nodes.data",
    "HeteroLinkDataModule": "tasks.links.data",
    "HeteroLinkPredictor": "tasks.links.task",
    "SIGNDataModule": "tasks.items.sign",
    "ImageClassifier": "tasks.items.images",
    "ImageDataModule": "tasks.items.images",
    "LinkDataModule": "tasks.links.data",
    "LinkPredictor": "tasks.links.task",
    "NodeClassifier": "tasks.nodes.task",
    "PipelineStrategy": "pipeline",
    "SIGNClassifier": "tasks.items.sign",
    "GraphDataModule": "tasks.items.graphs",
    "TripleDataModule": "tasks.kg",
    "TriplePredictor": "tasks.kg",
    "layerwise_inference": "models.inference",
}

__all__ = sorted(_HOME)

unite_packages()  # called before a module of this package imports Lightning


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
