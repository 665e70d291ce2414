"""What the samplers with DGL's names share: they ask hoptrain for a mini-batch, here and now, or a loader's workers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from hoptrain.engine import InputError
from hoptrain.engine.arrays import Array
from hoptrain.samplers import Sampler, Workspace
from hoptrain.samplers.batch.transfer import as_tensor
from hoptrain.samplers.loader.given import Source


class Sampled:
    """A class inherits from it and from a sampler of DGL's.

    Attributes:
        source: what a loader has set: from items to the mini-batch that its workers made of them.
        rows: the features that came with the last mini-batch, by the type of their nodes and their name.
        rows_names: the features that a loader's workers gather, by type.
    """

    source: Source | None = None
    rows: dict[str, dict[str, Tensor]]
    rows_names: dict[str, str] = {}  # noqa: RUF012  # replaced, never changed
    _workspace: Workspace

    @abstractmethod
    def of(self, g: Any) -> tuple[Sampler[Any, Any], Any]:
        """The sampler of hoptrain's, prepared, and what was made of the graph. The same objects as long as nothing about them changes.

        Raises:
            InputError: an option or a graph that cannot be taken.
        """

    @abstractmethod
    def features(self) -> Any:
        """Names of the features of input nodes that are to be fetched; of heterogeneous graphs by type."""

    def batch(self, g: Any, items: Array) -> Any:
        """The mini-batch of some items; here and now it has an address of torch's generator, and is good until the next one."""
        if self.source is not None:
            return self.source(items)
        sampler, converted = self.of(g)
        seed = int(torch.empty((), dtype=torch.int64).random_())
        workspace = self.__dict__.setdefault("_workspace", Workspace())
        return sampler.sample(converted.graph, items, seed=seed, workspace=workspace)

    def gathered(self, g: Any) -> dict[str, Tensor]:
        """The features that come with the batch that was asked for, by type."""
        rows = {} if self.source is None else self.source.rows()
        return {name.partition(".")[2] or g.ntypes[0]: as_tensor(own) for name, own in rows.items()}

    def keep(self, rows: Mapping[str, Tensor], device: Any = None) -> None:
        """Note the gathered features by type, on the device where their block is."""
        self.rows = {kind: {self.rows_names[kind]: own if device is None else own.to(device)} for kind, own in rows.items()}


def as_fanouts(fanouts: Any) -> list[int]:
    """Fanouts from the seeds outward, from DGL's, which stand in the order of layers.

    Raises:
        InputError: those of heterogeneous graphs, or none.
    """
    if any(isinstance(fanout, dict) for fanout in fanouts):
        raise InputError(f"fanouts are {fanouts}: with one for each edge type they are of heterogeneous graphs; give one number a layer")
    return [int(fanout) for fanout in reversed(fanouts)]
