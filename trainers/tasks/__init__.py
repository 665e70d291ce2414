"""Tasks of the command line: for each task its model class, its data module class, and the arguments that the model takes from the data."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import yaml

from hoptrain.engine import InputError
from hoptrain.engine.errors import did_you_mean
from hoptrain.engine.files.untrusted_yaml import read_yaml

TaskName: TypeAlias = Literal[
    "nodes", "adaptive", "images", "graphs", "links", "edges", "kg", "hetero", "hetero_links", "temporal_links", "sign", "full_batch", "sse"
]


class Task(NamedTuple):
    """A task of ``hoptrain fit``: its module in ``hoptrain.trainers.tasks``, its classes, and the arguments that the command line links between them.

    Attributes:
        module: name of the module that defines the model class.
        model: name of the model class.
        from_data: maps properties of the data module to the model arguments that they fill.
        metric: name of the default metric, such as ``acc``. It is logged as ``val_acc`` and so on; the best checkpoint has the best ``val_acc``.
    """

    module: str
    model: str
    from_data: Mapping[str, str]
    metric: str = "acc"

    def classes(self) -> tuple[Any, Any]:
        """Return the model class and the data module class."""
        model = getattr(import_module(f"hoptrain.trainers.tasks.{self.module}"), self.model)
        return model, model.data_class


_SIZES = {"num_features": "in_channels", "num_classes": "num_classes"}
_OF_GRAPHS = {"num_hops": "num_layers", "num_edge_features": "edge_channels"}
_OF_LINKS = {"num_features": "in_channels", "num_nodes": "num_nodes", "default_metric": "default_metric"}
_OF_ITEMS = {"is_multilabel": "multilabel", "num_edge_features": "edge_channels"} | {
    name: name for name in ("node_categories", "edge_categories")
}
_TYPES = {name: name for name in ("num_nodes", "relations", "seed_type", "edge_channels")}
TASKS: dict[TaskName, Task] = {
    "nodes": Task("nodes.task", "NodeClassifier", _SIZES | _OF_GRAPHS | {"is_multilabel": "multilabel"}),
    "adaptive": Task("adaptive", "AdaptiveNodeClassifier", _SIZES | _OF_GRAPHS | {"is_multilabel": "multilabel"}),
    "images": Task("items.images", "ImageClassifier", {"image_shape": "image_shape", "num_classes": "num_classes"}),
    "graphs": Task("items.graphs", "GraphClassifier", _SIZES | _OF_ITEMS),
    "links": Task("links.task", "LinkPredictor", _OF_LINKS | _OF_GRAPHS, metric="auc"),
    "kg": Task(
        "kg",
        "TriplePredictor",
        {"num_nodes": "num_nodes", "num_relations": "num_relations", "num_hops": "num_layers"},
        metric="mrr",
    ),
    "edges": Task("edges", "EdgePredictor", _SIZES | _OF_GRAPHS | {"is_multilabel": "multilabel"}),
    "hetero": Task("nodes.task", "HeteroClassifier", _SIZES | {"num_hops": "num_layers", "is_multilabel": "multilabel"} | _TYPES),
    "hetero_links": Task(
        "links.task",
        "HeteroLinkPredictor",
        {"num_features": "in_channels", "num_hops": "num_layers"}
        | {name: name for name in ("num_nodes", "relations", "link_relation", "edge_channels")},
        metric="auc",
    ),
    "temporal_links": Task(
        "temporal_links",
        "EventPredictor",
        {"num_nodes": "num_nodes", "message_channels": "message_channels"},
        metric="ap",
    ),
    "sign": Task("items.sign", "SIGNClassifier", _SIZES | {"num_hops": "num_hops"}),
    "sse": Task(
        "sse",
        "SteadyStateClassifier",
        _SIZES | {"num_hops": "num_layers", "num_nodes": "num_nodes", "is_multilabel": "multilabel"},
    ),
    "full_batch": Task("full_batch.task", "WholeGraphClassifier", _SIZES | _OF_GRAPHS | {"is_multilabel": "multilabel"}),
}


def task_of(arguments: Sequence[str]) -> Task:
    """Return the task that command-line arguments or configuration files name (the last one counts). The task decides which options exist.

    Raises:
        InputError: the task is unknown, or a configuration cannot be read.
    """
    name = "nodes"
    for option, value in options_of(arguments):
        if option == "--task":
            name = value
        elif option in ("--config", "-c") and value:
            name = _task_in(Path(value), name)
    if name not in TASKS:
        hint = did_you_mean(name, list(TASKS)) or f"choose one of {', '.join(TASKS)}"
        raise InputError(f"task {name!r} is unknown: {hint}")
    return TASKS[name]


def options_of(arguments: Sequence[str]) -> list[tuple[str, str]]:
    """Return (name, value) pairs of the options in ``arguments``, which may be written as ``--name=value`` or ``--name value``."""
    found = []
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        option, is_joined, value = argument.partition("=")
        found.append((option, value if is_joined else following))
    return found


def _task_in(path: Path, otherwise: str) -> str:
    """Return the ``task`` in a configuration file, or ``otherwise`` if the file names no task.

    Raises:
        InputError: the file cannot be read, or is not a mapping of options.
    """
    try:
        content = read_yaml(path)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise InputError(
            f"the configuration {path} cannot be read ({reason}): name a file, or a configuration that 'hoptrain configs' lists"
        ) from None
    except (ValueError, yaml.YAMLError) as error:
        place = getattr(error, "problem_mark", None)
        where = "" if place is None else f", line {place.line + 1}"
        is_text = not isinstance(error, UnicodeError | yaml.YAMLError)
        problem = " ".join(str(getattr(error, "problem", None) or (error if is_text else "it is not text")).split())
        raise InputError(f"the configuration {path} is not valid YAML ({problem}{where}): fix the file") from None
    if not isinstance(content, dict):
        raise InputError(
            f"the configuration {path} has no options: it must be a mapping with keys such as seed_everything, data, model and trainer; add them"
        )
    return str(content.get("task", otherwise))
