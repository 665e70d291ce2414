"""Forward passes without training: stages work concurrently on successive chunks (GPipe; Huang et al. 2019)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from hoptrain.trainers.models.layered import Chunk, apply_layers


class Forward:
    """A stage of a model in inference. Every process has the whole model, and applies its own run of consecutive layers.

    All stages of a model copy know the number of rows of its chunks, so activations are sent without padding. Results are bit-identical to those of a
    single process.
    """

    def __init__(self, model: nn.Module, runs: Sequence[range], mesh: DeviceMesh, in_flight: int) -> None:
        """Set up this process's stage.

        Args:
            model: the whole model, a ``PipelineModule``, in eval mode.
            runs: layers of each stage.
            mesh: device mesh (data, stages) of the processes.
            in_flight: maximum number of chunks that are being sent to the next stage; their activations are kept in memory.
        """
        self._model: Any = model
        self._group, self._stage = mesh.get_group("stages"), mesh.get_local_rank("stages")
        self._layers, self._is_last = runs[self._stage], self._stage == len(runs) - 1
        self._in_flight = in_flight
        self._sent: deque[tuple[Any, Tensor]] = deque()  # a tensor must live until it has been sent

    @torch.no_grad()
    def __call__(self, chunks: Iterable[Chunk]) -> list[Tensor]:
        """Apply the model to chunks. Return the outputs on the last stage; on other stages return an empty list, while activations may still be in transit.

        Args:
            chunks: chunks, the same on every stage of a model copy; on the first stage they have ``x``.
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
        """Wait until at most ``in_flight`` chunks are still being sent to the next stage."""
        while len(self._sent) > in_flight:
            self._sent.popleft()[0].wait()

    def _entering(self, chunk: Chunk) -> Tensor:
        if self._stage == 0:
            if chunk.x is None:
                raise RuntimeError("a chunk has no x: on the first stage, x must be the input of the model")
            return chunk.x
        parameter, first = next(self._model.parameters()), self._layers.start
        x: Tensor = parameter.new_empty(chunk.rows[first], *self._model.shape(first))
        torch.distributed.recv(x, group=self._group, group_src=self._stage - 1)
        return x
