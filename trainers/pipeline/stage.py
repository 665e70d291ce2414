"""Stages of a pipeline: runs of layers in a process. They store the inputs of their chunks, so that only activations are sent between stages."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.distributed.pipelining import PipelineStage

from hoptrain.engine import InputError
from hoptrain.trainers.models.layered import Chunk, apply_layers


class StageError(RuntimeError):
    """An error of a stage; the message names rank, stage and chunk."""


class LostStageError(StageError):
    """An error for a lost connection to another stage, most likely because the process of that stage has ended."""


class StageSegment(nn.Module):
    """A run of consecutive layers of a model. It removes the padding rows of its input buffer, so that no layer and no loss computes on them."""

    def __init__(self, model: nn.Module, layers: range) -> None:
        """Create the segment of ``layers``. The other layers of ``model`` may have been dropped.

        Args:
            model: the model, a ``PipelineModule``.
            layers: numbers of the layers.
        """
        super().__init__()
        self.model: Any = model
        self.layers = layers
        self.capacity: int | None = None  # number of rows of the output buffer; None for the last run of layers
        self.chunks: Sequence[Chunk] = ()

    def forward(self, *received: Tensor, number: Tensor) -> Tensor:
        """Apply the layers to one chunk.

        Args:
            received: buffer (capacity, ...) from the previous stage; nothing for the first run, since its chunks contain the input.
            number: number (1,) of the chunk.

        Returns:
            Output (capacity, ...), padded with zeros; without padding from the last run.
        """
        chunk = self.chunks[int(number)]
        x: Any = received[0][: chunk.rows[self.layers.start]] if received else chunk.x
        output = apply_layers(self.model, chunk, self.layers, x) if chunk.rows[-1] else self._nothing(received)
        return output if self.capacity is None else _padded(output, self.capacity)

    def _nothing(self, received: tuple[Tensor, ...]) -> Tensor:
        """Return an output with zero rows. It depends on the input, or on a parameter, since a backward pass follows."""
        source = received[0] if received else next(self.parameters())
        shape = (1,) if self.layers.stop == self.model.num_layers else self.model.shape(self.layers.stop)
        return source.new_zeros(0, *shape) + source.flatten()[:0].sum()

    def boundary(self, layer: int, rows: int, dtype: torch.dtype) -> Tensor:
        """Return a meta tensor with the shape of the input buffer of ``layer``."""
        return torch.empty(rows, *self.model.shape(layer), dtype=dtype, device="meta", requires_grad=True)


def _padded(x: Tensor, rows: int) -> Tensor:
    return nn.functional.pad(x, (0, 0) * (x.ndim - 1) + (0, rows - len(x))) if len(x) < rows else x.contiguous()


class WatchedStage(PipelineStage):
    """A torch ``PipelineStage`` that records which chunk it works on and for how long, and adds rank, stage and chunk to errors.

    Attributes:
        busy_s: seconds of forward and backward passes so far.
        since: time at which it began its last forward or backward pass, by ``time.perf_counter``.
    """

    def __init__(
        self,
        run: StageSegment,
        index: int,
        num_runs: int,
        device: torch.device,
        group: ProcessGroup,
        dtype: torch.dtype,
        rows: Sequence[int],
    ):
        """Create the stage, and set the shapes of its buffers.

        Args:
            run: run of layers.
            index: number of the run.
            num_runs: number of runs of the whole model.
            device: device of the layers.
            group: process group of one model replica.
            dtype: data type of activations.
            rows: capacity at each of the num_runs - 1 cuts.
        """
        run.capacity = rows[index] if index < num_runs - 1 else None
        inputs = run.boundary(run.layers.start, rows[index - 1], dtype) if index else ()
        outputs = torch.empty(1, device="meta", requires_grad=True)  # a placeholder, since the last run of layers does not send its output
        if run.capacity is not None:
            outputs = run.boundary(run.layers.stop, run.capacity, dtype)
        super().__init__(run, index, num_runs, device, input_args=inputs, output_args=outputs, group=group)
        self.busy_s = self.since = 0.0
        last = run.layers.stop - 1
        layers = f"layer {last}" if len(run.layers) == 1 else f"layers {run.layers.start} to {last}"
        self._name = f"rank {torch.distributed.get_rank()}, stage {self.group_rank} ({layers})"
        self._chunk: int | None = None

    @property
    def place(self) -> str:
        """Description of rank, stage, layers and current or last chunk, for messages."""
        return f"{self._name}, {'before its first chunk' if self._chunk is None else f'chunk {self._chunk}'}"

    @contextmanager
    def working(self, chunk: int) -> Iterator[None]:
        """Record the time of a pass of a chunk. If it fails, raise a StageError with ``place``; an InputError passes unchanged."""
        self._chunk = chunk
        self.since = time.perf_counter()
        try:
            yield
        except Exception as error:
            cause = error.__cause__ or error  # torch's own error wraps the cause, and prints all arguments
            if isinstance(cause, InputError):
                raise cause from None
            raise StageError(f"{self.place}: {type(cause).__name__}: {cause}") from cause
        finally:
            self.busy_s += time.perf_counter() - self.since

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        """Run torch's forward pass of a chunk, and record its time."""
        with self.working(fwd_chunk_id):
            return super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)

    def backward_one_chunk(self, bwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        """Run torch's backward pass of a chunk, and record its time."""
        with self.working(bwd_chunk_id):
            return super().backward_one_chunk(bwd_chunk_id, *args, **kwargs)
