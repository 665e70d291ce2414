"""A divided model's weights: each stage keeps its own layers' memory, and all can be brought together for a while."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from hoptrain.trainers.models.layered import PipelineModule


class Whole:
    """Divides a model among the stages of a copy. Names of weights stay those of the whole model.

    Attributes:
        names: of the whole model's parameters, in their order.
        is_whole: whether this process has all weights at the moment.
    """

    def __init__(self, model: nn.Module, runs: Sequence[range], mesh: DeviceMesh) -> None:
        """Take rank 0's weights everywhere, then drop the layers of other stages.

        Args:
            model: the whole model, a ``PipelineModule``.
            runs: the layers of each run.
            mesh: the processes, (data, stages).
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
        """Drop the weights of other stages' layers; a module without any stands in their place."""
        if not self.is_whole:
            return
        for name in self._foreign:
            parent, leaf = self._find(name)
            self._foreign[name] = getattr(parent, leaf).to("meta")
            setattr(parent, leaf, nn.Module())
        self.is_whole = False

    def unite(self) -> None:
        """Bring all weights here, on every stage of the copy at once."""
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
        """All weights are here for a while."""
        was_whole = self.is_whole
        self.unite()
        try:
            yield
        finally:
            if not was_whole:
                self.divide()

    def gather(self, own: Mapping[str, Any]) -> dict[str, Any]:
        """What every stage of the copy has by name, together; every stage has to call this."""
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
