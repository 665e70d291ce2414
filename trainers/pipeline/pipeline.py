"""Training steps of a model that is divided among processes. Lightning's strategy uses this interface, which needs no Lightning itself."""

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
    """The result of a training step.

    Attributes:
        loss: sum of the losses of this copy's chunks, on every stage of the copy.
        seconds: seconds from the first forward pass to the end of the last backward pass, in this process.
        busy_s: seconds of this time in which the process computed; the rest is waiting and communication.
    """

    loss: float
    seconds: float
    busy_s: float


class Pipeline:
    """A model that is divided among processes; this process has one stage.

    Attributes:
        plan: division of the model.
        whole: gathers all weights, and divides them again.
        capacities: rows of the buffers between stages, and their share of padding.
        stage: number of this process's stage.
        copy: number of the model copy (replica) that this process belongs to.
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
        """Divide ``model``: all ranks receive rank 0's weights, then each keeps the weights of its own layers only.

        Create the optimiser afterwards, from ``model.parameters()``.

        Args:
            model: the whole model, a ``PipelineModule``, on its device.
            plan: division of the model.
            loss: function of (output, target) of a chunk that returns a scalar; the last stage calls it once per chunk. Losses are summed over a
                step's chunks and copies. So for a mean over the step's seeds, it returns the chunk's sum divided by the number of all seeds.
            mesh: device mesh (data, stages) of the processes; by default all processes of torch.distributed.
            bound: maximum number of rows of a chunk at any cut between stages, if known.

        Raises:
            InputError: the model cannot be divided by the plan, or the number of processes does not match.
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
        """Run forward and backward passes of all chunks, and store gradients, summed over all copies, in the parameters' ``grad``.

        Before the call, ``grad`` must be None or zero.

        Args:
            chunks: at most ``plan.chunks`` chunks, the same on every stage of a copy.

        Raises:
            StageError: a layer failed, or the connection to another stage failed; the message names rank, stage and chunk.
        """
        if len(chunks) > self.plan.chunks:
            raise InputError(f"{len(chunks)} chunks for a plan of {self.plan.chunks}: give at most {self.plan.chunks}")
        slots = self.plan.num_slots
        if self.capacities.fit(chunks, slots) or self._schedule is None:
            self._build()
        begin, busy = time.perf_counter(), self._busy_s
        losses = self._run([*chunks, *[empty_chunk(self._num_layers)] * (slots - len(chunks))])
        seconds, busy = time.perf_counter() - begin, self._busy_s - busy
        self._add_up_gradients()
        return StepResult(loss=self._tell_loss(losses), seconds=seconds, busy_s=busy)

    def tighten(self) -> None:
        """Shrink buffers to the size needed since the last call. All stages must call this between the same two steps."""
        if self.capacities.tighten():
            self._schedule = None

    @property
    def place(self) -> str:
        """Description of rank, stage, layers and current or last chunk, for messages."""
        if not self._stages:
            return f"rank {torch.distributed.get_rank()}, stage {self.stage}"
        return max(self._stages, key=lambda stage: stage.since).place

    @property
    def _busy_s(self) -> float:
        return sum(stage.busy_s for stage in self._stages)

    def _build(self) -> None:
        """Build torch's stages and schedule. Buffers have as many rows as the capacities."""
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
        """Run the schedule and return the losses on the last stage. Its inputs are chunk numbers, with which stages look up their chunks."""
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
        """Sum gradients over this stage's data-parallel replicas, in one collective."""
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
    """Check that a plan can divide a model, and return the layers of each run.

    Raises:
        InputError: the model cannot be divided, or it has batch normalisation and no process sees a whole batch.
    """
    if not isinstance(model, PipelineModule):
        raise InputError(
            f"{type(model).__name__} cannot be divided into stages: it needs num_layers, layer, shape and modules_of; add them"
        )
    own = [name for i in range(model.num_layers) for name in model.modules_of(i)]
    for name, _ in model.named_parameters():
        if not any(name.startswith(f"{module}.") for module in own):
            raise InputError(f"{name} belongs to no layer, so no stage would train it: add its module to modules_of")
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and plan.chunks * plan.data > 1:
            raise InputError(
                f"{name} is a {type(module).__name__}, whose statistics need a whole batch, but a batch is divided into {plan.chunks} chunks "
                f"and {plan.data} copies: use another normalisation (norm: layer), or one chunk and one copy"
            )
    return plan.runs(model.num_layers)
