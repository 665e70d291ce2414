"""A step of a model that is divided over processes: the plain-Python entry, which Lightning's strategy uses too."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.pipelining import Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B

from hoptrain.engine import InputError
from hoptrain.trainers.models.layered import Chunk, PipelineModule, empty_chunk
from hoptrain.trainers.pipeline.capacities import Capacities
from hoptrain.trainers.pipeline.plan import Plan
from hoptrain.trainers.pipeline.stage import LostStageError, StageError, StageSegment, WatchedStage
from hoptrain.trainers.pipeline.whole import Whole


@dataclass(frozen=True, kw_only=True, slots=True)
class StepResult:
    """What a step did.

    Attributes:
        loss: sum of this copy's chunks' losses, known to every stage of it.
        seconds: from the first chunk's forward step to the end of the last backward step, in this process.
        busy_s: the part of it in which this process computed; the rest is bubble and traffic.
    """

    loss: float
    seconds: float
    busy_s: float


class Pipeline:
    """A model of which this process has one stage.

    Attributes:
        plan: how the model is divided.
        whole: brings all weights together, and takes them apart again.
        capacities: rows of the buffers between stages, and their waste.
        stage: number of this process's stage.
        copy: number of this process's copy.
    """

    def __init__(
        self,
        model: nn.Module,
        plan: Plan,
        loss: Callable[[Tensor, Any], Tensor],
        *,
        mesh: DeviceMesh | None = None,
        bound: int | None = None,
    ) -> None:
        """Divide ``model``: all ranks take rank 0's weights, then each keeps its own layers' and drops the others.

        Make the optimiser afterwards, of ``model.parameters()``.

        Args:
            model: the whole model, a ``PipelineModule``, on its device.
            plan: how it is divided.
            loss: of (output, target) of a chunk, a scalar. The losses of a step's chunks and copies add up, so a mean over the step's seeds is
                the sum over the chunk's, divided by the number of all. It is called once a chunk, by the last stage.
            mesh: the processes, (data, stages); by default all of torch.distributed.
            bound: most rows of a chunk at any cut, if known.

        Raises:
            InputError: the model cannot be divided so, or the number of processes is another.
        """
        runs = check_model(model, plan)
        mesh = mesh or plan.mesh(next(model.parameters()).device.type)
        self.plan, self.capacities = plan, Capacities([layers.start for layers in runs[1:]], bound)
        self.copy, self.stage = mesh.get_local_rank("data"), mesh.get_local_rank("stages")
        self._mesh, self._model, self._loss = mesh, model, loss
        self._num_layers = cast(PipelineModule, model).num_layers
        self.whole = Whole(model, runs, mesh)
        mine = range(self.stage, len(runs), plan.stages)
        self._runs = {index: StageSegment(model, runs[index]) for index in mine}
        self._stages: list[WatchedStage] = []
        self._schedule: Any = None
        self._chunks: Sequence[Chunk] = ()

    def step(self, chunks: Sequence[Chunk]) -> StepResult:
        """Forward and backward of all chunks; leaves the gradients, added up over all copies, in the parameters' ``grad``.

        These have to be None or zero before.

        Args:
            chunks: at most ``plan.chunks``, the same ones on every stage of a copy.

        Raises:
            StageError: a layer failed, or another stage has gone; the message names rank, stage and chunk.
        """
        if len(chunks) > self.plan.chunks:
            raise InputError(f"{len(chunks)} chunks for a plan of {self.plan.chunks}: give as many at most")
        slots = self.plan.num_slots
        if self.capacities.fit(chunks, slots) or self._schedule is None:
            self._build()
        begin, busy = time.perf_counter(), self._busy_s
        losses = self._run([*chunks, *[empty_chunk(self._num_layers)] * (slots - len(chunks))])
        seconds, busy = time.perf_counter() - begin, self._busy_s - busy
        self._add_up_gradients()
        return StepResult(loss=self._tell_loss(losses), seconds=seconds, busy_s=busy)

    def tighten(self) -> None:
        """Make buffers anew where they are larger than needed since the last call; on all stages, between two steps."""
        if self.capacities.tighten():
            self._schedule = None

    @property
    def place(self) -> str:
        """Rank, stage, layers and chunk of the last work, for messages."""
        if not self._stages:
            return f"rank {torch.distributed.get_rank()}, stage {self.stage}"
        return max(self._stages, key=lambda stage: stage.since).place

    @property
    def _busy_s(self) -> float:
        return sum(stage.busy_s for stage in self._stages)

    def _build(self) -> None:
        """Torch's stages and schedule, with buffers of the capacities' rows."""
        parameter = next(self._model.parameters())
        group = self._mesh.get_group("stages")
        self._stages = [
            WatchedStage(run, index, self.plan.num_runs, parameter.device, group, parameter.dtype, self.capacities.rows)
            for index, run in self._runs.items()
        ]
        options: dict[str, Any] = {"loss_fn": self._chunk_loss, "scale_grads": False}
        if self.plan.is_interleaved:
            self._schedule = ScheduleInterleaved1F1B(list(self._stages), self.plan.num_slots, **options)
        else:
            kind = ScheduleGPipe if self.plan.schedule == "gpipe" else Schedule1F1B
            self._schedule = kind(self._stages[0], self.plan.num_slots, **options)

    def _run(self, chunks: Sequence[Chunk]) -> list[Tensor]:
        """The schedule moves numbers of chunks, from which the stages find what waits there; returns the losses, on the last stage."""
        self._chunks = chunks
        for run in self._runs.values():
            run.chunks = chunks
        numbers = torch.arange(len(chunks))
        losses: list[Tensor] = []
        try:
            self._schedule.step(number=numbers, target=numbers, losses=losses, return_outputs=False)
        except (StageError, InputError):
            raise
        except RuntimeError as error:
            raise LostStageError(f"{self.place}: the connection to another stage failed ({error})") from error
        finally:
            self._chunks = ()
            for run in self._runs.values():
                run.chunks = ()
        return losses

    def _chunk_loss(self, output: Tensor, number: Tensor) -> Tensor:
        chunk = self._chunks[int(number)]
        if chunk.rows[-1] == 0:
            return output.sum()
        with self._stages[-1].working(int(number)):
            return self._loss(output, chunk.target)

    def _add_up_gradients(self) -> None:
        """Over the copies, in one piece."""
        if self.plan.data == 1:
            return
        parameters = [parameter for parameter in self._model.parameters() if parameter.requires_grad]
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        flat = torch.cat([grad.flatten() for grad in grads])
        torch.distributed.all_reduce(flat, group=self._mesh.get_group("data"))
        for parameter, part in zip(parameters, torch.split(flat, [grad.numel() for grad in grads]), strict=True):
            parameter.grad = part.view_as(parameter)

    def _tell_loss(self, losses: list[Tensor]) -> float:
        total = torch.stack(losses).sum().detach().double() if losses else torch.zeros((), dtype=torch.float64)
        total = total.to(next(self._model.parameters()).device)
        if self.plan.stages > 1:
            torch.distributed.all_reduce(total, group=self._mesh.get_group("stages"))
        return total.item()


def check_model(model: nn.Module, plan: Plan) -> list[range]:
    """The layers of each run.

    Raises:
        InputError: the model cannot be divided so. A normalisation over the rows of a batch is refused where no process sees them all.
    """
    if not isinstance(model, PipelineModule):
        raise InputError(f"{type(model).__name__} cannot be cut into stages: it needs num_layers, layer, shape and modules_of")
    own = [name for i in range(model.num_layers) for name in model.modules_of(i)]
    for name, _ in model.named_parameters():
        if not any(name.startswith(f"{module}.") for module in own):
            raise InputError(f"{name} belongs to no layer, and no stage could train it: let modules_of name a module that it is in")
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and plan.chunks * plan.data > 1:
            raise InputError(
                f"{name} is a {type(module).__name__}, whose statistics are those of a whole batch, but a batch is cut into {plan.chunks} chunks "
                f"and {plan.data} copies: use another normalisation (norm: layer), or one chunk and one copy"
            )
    return plan.runs(model.num_layers)
