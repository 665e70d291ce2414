"""The weights of a divided model: each stage stores only those of its own layers, and can gather all of them temporarily."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from hoptrain.trainers.models.layered import PipelineModule


class Whole:
    """A manager that divides the weights of a model among the stages of a model copy. Parameter names stay those of the whole model.

    Attributes:
        names: names of the whole model's parameters, in order.
        is_whole: whether this process currently has all weights.
    """

    def __init__(self, model: nn.Module, runs: Sequence[range], mesh: DeviceMesh) -> None:
        """Broadcast rank 0's weights, then drop the layers of other stages.

        Args:
            model: the whole model, a ``PipelineModule``.
            runs: layers of each run.
            mesh: device mesh (data, stages) of the processes.
        """
        self.names = [name for name, _ in model.named_parameters()]
        self.is_whole = True
        self._model, self._group, self._device = model, mesh.get_group("stages"), next(model.parameters()).device
        stage, stages = mesh.get_local_rank("stages"), mesh.size(1)
        mine = {i for run in range(stage, len(runs), stages) for i in runs[run]}
        layered = cast(PipelineModule, model)
        self._foreign = {name: nn.Module() for i in range(layered.num_layers) if i not in mine for name in layered.modules_of(i)}
        with torch.no_grad():
            for tensor in model.state_dict().values():
                torch.distributed.broadcast(tensor, src=0)
        self.divide()

    def divide(self) -> None:
        """Drop the weights of other stages' layers, and replace these layers by empty modules."""
        if not self.is_whole:
            return
        for name in self._foreign:
            parent, leaf = self._find(name)
            self._foreign[name] = getattr(parent, leaf).to("meta")
            setattr(parent, leaf, nn.Module())
        self.is_whole = False

    def unite(self) -> None:
        """Gather all weights in this process. Every stage of the model copy must call this."""
        if self.is_whole:
            return
        weights = self.gather(self._model.state_dict())
        for name, module in self._foreign.items():
            parent, leaf = self._find(name)
            setattr(parent, leaf, module.to_empty(device=self._device).train(self._model.training))
        self._model.load_state_dict(weights)
        self.is_whole = True

    @contextmanager
    def united(self) -> Iterator[None]:
        """Gather all weights within a ``with`` block."""
        was_whole = self.is_whole
        self.unite()
        try:
            yield
        finally:
            if not was_whole:
                self.divide()

    def gather(self, own: Mapping[str, Any]) -> dict[str, Any]:
        """Merge the dictionaries of all stages of the model copy. Every stage must call this."""
        parts: list[dict[str, Any]] = [{}] * torch.distributed.get_world_size(self._group)
        torch.distributed.all_gather_object(parts, {name: _on_host(value) for name, value in own.items()}, group=self._group)
        return {name: value for part in parts for name, value in part.items()}

    def _find(self, name: str) -> tuple[nn.Module, str]:
        parent, _, leaf = name.rpartition(".")
        return self._model.get_submodule(parent), leaf


def _on_host(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().cpu()
    return {key: _on_host(part) for key, part in value.items()} if isinstance(value, dict) else value
