"""Forward steps alone: chunks follow one another through the stages, each of which works on its own one at the same time (GPipe; Huang et al. 2019)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from hoptrain.trainers.models.layered import Chunk, apply_layers


class Forward:
    """A stage of a model that is applied, and not trained. Every process has the whole model, and uses its own run of layers.

    Every stage of a copy knows the rows of all its chunks, so what travels needs no padding. Weights and activations are those of one process.
    """

    def __init__(self, model: nn.Module, runs: Sequence[range], mesh: DeviceMesh, in_flight: int) -> None:
        """Take this process's place.

        Args:
            model: the whole model, a ``PipelineModule``, in eval mode.
            runs: the layers of each stage.
            mesh: the processes, (data, stages).
            in_flight: chunks that may wait for the next stage, at most; their activations are kept meanwhile.
        """
        self._model: Any = model
        self._group, self._stage = mesh.get_group("stages"), mesh.get_local_rank("stages")
        self._layers, self._is_last = runs[self._stage], self._stage == len(runs) - 1
        self._in_flight = in_flight
        self._sent: deque[tuple[Any, Tensor]] = deque()  # a tensor must stay until it has gone

    @torch.no_grad()
    def __call__(self, chunks: Iterable[Chunk]) -> list[Tensor]:
        """What the model gives for each chunk, from the last stage; nothing from the others. They may then still hold chunks that are in flight.

        Args:
            chunks: the same ones on every stage of a copy; the first stage's have ``x``.
        """
        outputs = []
        for chunk in chunks:
            x = apply_layers(self._model, chunk, self._layers, self._entering(chunk))
            if self._is_last:
                outputs.append(x)
            else:
                x = x.contiguous()
                self._sent.append((torch.distributed.isend(x, group=self._group, group_dst=self._stage + 1), x))
                self.finish(self._in_flight)
        return outputs

    def finish(self, in_flight: int = 0) -> None:
        """Wait until so many chunks at most are on their way to the next stage."""
        while len(self._sent) > in_flight:
            self._sent.popleft()[0].wait()

    def _entering(self, chunk: Chunk) -> Tensor:
        if self._stage == 0:
            if chunk.x is None:
                raise RuntimeError("the first stage's chunks need x")
            return chunk.x
        parameter, first = next(self._model.parameters()), self._layers.start
        x: Tensor = parameter.new_empty(chunk.rows[first], *self._model.shape(first))
        torch.distributed.recv(x, group=self._group, group_src=self._stage - 1)
        return x
