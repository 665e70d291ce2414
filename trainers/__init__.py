"""Lightning: command line, data modules, tasks, models, inference, and models in stages.

The names are imported when they are first used, so that ``hoptrain data`` and ``hoptrain doctor`` need not wait for torch, and the doctor
works where torch does not.
"""

from importlib import import_module
from typing import Any

_HOME = {
    "AdaptiveNodeClassifier": "tasks.adaptive",
    "EdgeDataModule": "tasks.pairs.edges",
    "EdgePredictor": "tasks.pairs.edges",
    "EventDataModule": "tasks.events.data",
    "EventPredictor": "tasks.events.predictor",
    "GNN": "models",
    "GraphClassifier": "tasks.items.graphs",
    "GraphDataModule": "tasks.node_data",
    "HeteroClassifier": "tasks.hetero",
    "HeteroDataModule": "tasks.hetero",
    "HeteroLinkDataModule": "tasks.pairs.typed_links",
    "HeteroLinkPredictor": "tasks.pairs.typed_links",
    "HopDataModule": "tasks.items.hops",
    "ImageClassifier": "tasks.items.images",
    "ImageDataModule": "tasks.items.images",
    "LinkDataModule": "tasks.pairs.link_data",
    "LinkPredictor": "tasks.pairs.links",
    "NodeClassifier": "tasks.node_classifier",
    "PipelineStrategy": "pipeline",
    "SIGNClassifier": "tasks.items.hops",
    "SmallGraphsDataModule": "tasks.items.graphs",
    "TripleDataModule": "tasks.pairs.triple_data",
    "TriplePredictor": "tasks.pairs.triples",
    "exact_logits": "models.inference",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
