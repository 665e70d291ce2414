"""What the registry holds for each data set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

from hoptrain.engine.dataset import Dataset
from hoptrain.engine.hetero_dataset import HeteroDataset

Load: TypeAlias = Callable[[str, Path | None, float], Dataset | HeteroDataset]
"""(name, root, scale) -> data set. ``root`` is a folder that exists, or None; ``scale`` is 1.0 unless the source is scalable."""


class Counts(NamedTuple):
    """Published sizes: V, stored directed edges, F, C."""

    num_nodes: int
    num_edges: int
    num_features: int
    num_classes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """One entry of the registry.

    Attributes:
        about: one line for the table of data sets.
        origin: where it comes from.
        load: obtains it.
        counts: published sizes, None if they are not known before it is there.
        is_scalable: whether ``scale`` may differ from 1.
        is_present: (name, root) -> whether it can be had without the network.
    """

    about: str
    origin: str
    load: Load
    counts: Counts | None = None
    is_scalable: bool = False
    is_present: Callable[[str, Path | None], bool] = lambda name, root: True
