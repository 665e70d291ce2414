"""Base class of the samplers in ``hoptrain.dgl``: it gets a mini-batch from a loader's workers, or samples one in this process."""

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
from hoptrain.samplers.loader.external_seeds import BatchSource


class Sampled:
    """A mixin that makes a DGL sampler sample with hoptrain. A sampler inherits from it and from a sampler class of DGL.

    Attributes:
        source: Function from seeds to the mini-batch that workers sampled. A loader sets it; None samples in this process.
        rows: Features gathered for the last mini-batch, by node type and name.
        rows_names: Name of the feature that workers gather, by node type.
    """

    source: BatchSource | None = None
    rows: dict[str, dict[str, Tensor]]
    rows_names: dict[str, str] = {}  # noqa: RUF012  # replaced, never changed
    _workspace: Workspace

    @abstractmethod
    def of(self, g: Any) -> tuple[Sampler[Any, Any], Any]:
        """Return hoptrain's sampler, prepared for ``g``, and the converted graph. The objects are the same until an option or ``g`` changes.

        Raises:
            InputError: hoptrain does not support an option or the graph.
        """

    @abstractmethod
    def features(self) -> Any:
        """Return the names of the input nodes' features to gather; for heterogeneous graphs a dictionary by node type."""

    def batch(self, g: Any, items: Array) -> Any:
        """Return the mini-batch of ``items``, from ``source`` or sampled in this process with a random seed of torch's generator.

        A mini-batch sampled in this process is valid until the next call.
        """
        if self.source is not None:
            return self.source(items)
        sampler, converted = self.of(g)
        seed = int(torch.empty((), dtype=torch.int64).random_())
        workspace = self.__dict__.setdefault("_workspace", Workspace())
        return sampler.sample(converted.graph, items, seed=seed, workspace=workspace)

    def gathered(self, g: Any) -> dict[str, Tensor]:
        """Return the features that workers gathered for the current batch, by node type."""
        rows = {} if self.source is None else self.source.rows()
        return {name.partition(".")[2] or g.ntypes[0]: as_tensor(own) for name, own in rows.items()}

    def keep(self, rows: Mapping[str, Tensor], device: Any = None) -> None:
        """Set ``rows`` to gathered features by node type, moved to ``device`` unless it is None."""
        self.rows = {kind: {self.rows_names[kind]: own if device is None else own.to(device)} for kind, own in rows.items()}


def as_fanouts(fanouts: Any) -> list[int]:
    """Return the fanouts in hoptrain's order, from the seeds outward; DGL's are in the order of layers.

    Raises:
        InputError: a fanout is a dictionary by edge type.
    """
    if any(isinstance(fanout, dict) for fanout in fanouts):
        raise InputError(f"fanouts are {fanouts}: fanouts by edge type need a heterogeneous graph; give one number for each layer")
    return [int(fanout) for fanout in reversed(fanouts)]
