"""Lightning: command line, data module, node classification, models, exact inference.

The names are imported when they are first used, so that ``hoptrain data`` and ``hoptrain doctor`` need not wait for torch, and the doctor
works where torch does not.
"""

from importlib import import_module
from typing import Any

_HOME = {
    "AdaptiveNodeClassifier": "tasks.adaptive",
    "GraphDataModule": "tasks.node_data",
    "NodeClassifier": "tasks.node_classifier",
    "GNN": "models",
}

__all__ = ["GNN", "AdaptiveNodeClassifier", "GraphDataModule", "NodeClassifier"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
