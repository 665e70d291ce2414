"""One run of layers in a process: what its chunks need waits here, and only activations travel."""

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
    """A stage failed; the message names its rank, the stage and the chunk."""


class LostStageError(StageError):
    """The connection to another stage failed, most likely since that has gone."""


class StageSegment(nn.Module):
    """A run of layers of a model. Rows that fill a buffer up are cut off before the first layer, so that no layer and no loss sees them."""

    def __init__(self, model: nn.Module, layers: range) -> None:
        """Take over ``layers`` of ``model``, whose other layers may have gone.

        Args:
            model: the model, a ``PipelineModule``.
            layers: numbers of the layers.
        """
        super().__init__()
        self.model: Any = model
        self.layers = layers
        self.capacity: int | None = None  # rows of the buffer that the output is sent from; None for the last run
        self.chunks: Sequence[Chunk] = ()

    def forward(self, *received: Tensor, number: Tensor) -> Tensor:
        """Apply the layers to one chunk.

        Args:
            received: the buffer from the stage before, (capacity, ...); nothing for the first run, whose input waits in the chunk.
            number: (1,) which chunk it is.

        Returns:
            (capacity, ...) the output, rows of zeros behind it; without these from the last run.
        """
        chunk = self.chunks[int(number)]
        x: Any = received[0][: chunk.rows[self.layers.start]] if received else chunk.x
        output = apply_layers(self.model, chunk, self.layers, x) if chunk.rows[-1] else self._nothing(received)
        return output if self.capacity is None else _padded(output, self.capacity)

    def _nothing(self, received: tuple[Tensor, ...]) -> Tensor:
        """The output of no rows, as a function of the input (else of a parameter), since a backward step follows."""
        source = received[0] if received else next(self.parameters())
        shape = (1,) if self.layers.stop == self.model.num_layers else self.model.shape(self.layers.stop)
        return source.new_zeros(0, *shape) + source.flatten()[:0].sum()

    def boundary(self, layer: int, rows: int, dtype: torch.dtype) -> Tensor:
        """A tensor without memory that has the shape of the buffer in front of ``layer``."""
        return torch.empty(rows, *self.model.shape(layer), dtype=dtype, device="meta", requires_grad=True)


def _padded(x: Tensor, rows: int) -> Tensor:
    return nn.functional.pad(x, (0, 0) * (x.ndim - 1) + (0, rows - len(x))) if len(x) < rows else x.contiguous()


class WatchedStage(PipelineStage):
    """torch's stage, which notes what it works on and how long, and names its place if it fails.

    Attributes:
        busy_s: seconds of forward and backward work so far.
        since: when it began its last work, by ``time.perf_counter``.
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
        """Fix the shapes of the buffers.

        Args:
            run: the layers.
            index: number of the run.
            num_runs: runs of the whole model.
            device: where they are.
            group: the processes of a copy.
            dtype: of activations.
            rows: capacity at each of the num_runs - 1 cuts.
        """
        run.capacity = rows[index] if index < num_runs - 1 else None
        inputs = run.boundary(run.layers.start, rows[index - 1], dtype) if index else ()
        outputs = torch.empty(1, device="meta", requires_grad=True)  # the last run's goes nowhere
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
        """Rank, stage, layers and the chunk that it works on, or worked on last."""
        return f"{self._name}, {'before its first chunk' if self._chunk is None else f'chunk {self._chunk}'}"

    @contextmanager
    def working(self, chunk: int) -> Iterator[None]:
        """Note the time of some work, and its place if it fails; a mistake of the user's stays what it is."""
        self._chunk = chunk
        self.since = time.perf_counter()
        try:
            yield
        except Exception as error:
            cause = error.__cause__ or error  # torch describes all arguments of a failed call around its cause
            if isinstance(cause, InputError):
                raise cause from None
            raise StageError(f"{self.place}: {type(cause).__name__}: {cause}") from cause
        finally:
            self.busy_s += time.perf_counter() - self.since

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        """As torch's."""
        with self.working(fwd_chunk_id):
            return super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)

    def backward_one_chunk(self, bwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        """As torch's."""
        with self.working(bwd_chunk_id):
            return super().backward_one_chunk(bwd_chunk_id, *args, **kwargs)
