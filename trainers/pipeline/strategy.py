"""Lightning's strategy for a pipeline: ``trainer.strategy`` of any configuration whose model can be cut into stages."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
import torch
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.strategies import DDPStrategy
from pytorch_lightning.trainer.states import TrainerFn
from torch import Tensor, nn
from torch.optim import Optimizer

from hoptrain.engine import Dataset, InputError, Schedule
from hoptrain.samplers import Sampler
from hoptrain.trainers.models.layered import Chunk, PipelineModule
from hoptrain.trainers.pipeline.balance import layer_seconds
from hoptrain.trainers.pipeline.forward import Forward
from hoptrain.trainers.pipeline.optimizers import named_state, own_state, whole_state
from hoptrain.trainers.pipeline.pipeline import Pipeline, check_model
from hoptrain.trainers.pipeline.plan import Order, Plan
from hoptrain.trainers.pipeline.seeds import ChunkedBatch, Chunking, ChunkLoader, cut_by_index

_EXAMPLE_SEEDS = 256
"""Seeds of the chunk that layers are timed with, at most."""


@runtime_checkable
class Chunkable(Protocol):
    """What a LightningModule offers to be trained in a pipeline, beside its ``training_step`` for a whole batch.

    Attributes:
        model: what is divided.
        chunked_step: the ``training_step`` whose loss those of the chunks add up to. A subclass with another one has to say so again.
    """

    model: nn.Module
    chunked_step: Any

    def make_chunks(self, batch: Any) -> list[Chunk]:
        """The chunks of a batch as its loader gives it."""

    def example_chunk(self, num_seeds: int) -> Chunk:
        """A chunk with all its inputs, of about ``num_seeds`` examples."""

    def chunk_loss(self, output: Tensor, target: Any) -> Tensor:
        """A chunk's share of the loss; called by the last stage alone, whose metrics may take the output."""

    def chunks_to_predict(self, batch: Any, is_first: bool) -> Iterable[Chunk]:
        """The chunks of a batch of the predict loader, in order; ``is_first`` tells whether the first layer's input is needed."""


class PipelineStrategy(DDPStrategy):
    """``data`` copies of the model, each divided into ``stages`` processes; set ``trainer.devices`` to their product.

    Training moves chunks through the stages; the optimiser of each process has its own layers' weights. Validation and test have the whole model
    in every process; in prediction chunks follow one another through the stages, forward alone. Checkpoints hold the whole model's weights and
    the whole optimiser's state, so that they also serve runs without a pipeline, and the other way round. Losses and scores are those of all
    copies, on every rank.

    Every stage samples the chunks of its copy by itself (batches are pure functions), so that nothing but activations travels; this costs
    the sampling once for each stage. Features are gathered by the first stage only, labels by the last.

    With ``chunking: by-index`` the nodes are cut by id, and all edges between chunks are lost: the papers' own cut, for comparison.
    """

    def __init__(
        self,
        stages: int = 2,
        data: int = 1,
        chunks: int = 4,
        schedule: Order = "1f1b",
        balance: list[int] | None = None,
        chunking: Chunking = "seeds",
    ) -> None:
        """State the plan.

        Args:
            stages: stages of a copy, one process each.
            data: copies of the model.
            chunks: chunks of a batch.
            schedule: gpipe, 1f1b or interleaved-1f1b.
            balance: layers of each stage (of each run of layers, if interleaved); by default chosen from measured times of the layers.
            chunking: "seeds" is exact; "by-index" loses the edges between chunks.
        """
        super().__init__()
        # Only the last stages have scores to take; the others' metrics learn of them when they are computed.
        warnings.filterwarnings("ignore", message="The ``compute`` method of metric .* was called before the ``update``")
        self._options: dict[str, Any] = {"stages": stages, "data": data, "chunks": chunks, "schedule": schedule}
        self._options["balance"] = None if balance is None else tuple(balance)
        self.chunking: Chunking = chunking
        self.pipeline: Pipeline | None = None
        self._forward: Forward | None = None
        self._names: list[str] = []  # of all parameters of the module, while it is divided
        self._gradients: list[tuple[nn.Parameter, Tensor | None]] = []
        self._epoch = -1

    @cached_property
    def plan(self) -> Plan:
        """The plan; made when it is first asked for, since the command line's parser would wrap an error in the constructor."""
        return Plan(**self._options)

    def check(self, module: LightningModule, trainer: Trainer) -> None:
        """See before any process is started whether the plan can be carried out.

        Raises:
            InputError: it cannot.
        """
        self.plan.check_world(trainer.world_size)
        task = _chunkable(module)
        if trainer.accumulate_grad_batches != 1:
            raise InputError("accumulate_grad_batches with a pipeline: its chunks do the same; raise batch_size and chunks instead")
        if trainer.gradient_clip_val is not None and trainer.gradient_clip_algorithm != "value":
            raise InputError("gradient_clip_val by norm with a pipeline: no stage has all gradients; use gradient_clip_algorithm value")
        if trainer.precision != "32-true":
            raise InputError(f"precision {trainer.precision} with a pipeline: activations travel as they are; use 32-true")
        check_model(task.model, self.plan)

    def check_items(self, schedule: Schedule) -> None:
        """See whether batches of items can be cut into the plan's chunks.

        Raises:
            InputError: they cannot.
        """
        if self.chunking == "by-index":
            raise InputError("chunking by-index for items: they have no edges between them that it could lose; use chunking seeds")
        fewest = min(schedule.num_step_items(step) // schedule.world_size for step in (0, schedule.num_steps - 1))
        if self.plan.chunks > fewest:
            raise InputError(
                f"{self.plan.chunks} chunks of a batch of {fewest} items: every chunk needs one; use at most {fewest} chunks or larger batches"
            )

    def make_loader(self, data: Dataset, sampler: Sampler, **options: Any) -> ChunkLoader:
        """The loader of this process: the chunks of its copy, with features for the first stage and labels for the last.

        Args:
            data: the data set.
            sampler: the algorithm.
            options: as ``SampleLoader``; ``rank`` is the copy and ``world_size`` the number of copies.
        """
        stage = self.global_rank % self.plan.stages
        x, y = data.x if stage == 0 else None, data.y if stage == self.plan.stages - 1 else None
        return ChunkLoader(replace(data, x=x, y=y, validate=False), sampler, chunks=self.plan.chunks, chunking=self.chunking, **options)

    @property
    def distributed_sampler_kwargs(self) -> dict[str, Any]:
        """Which share of the data this process has: that of its copy."""
        return {"num_replicas": self.plan.data, "rank": self.global_rank // self.plan.stages}

    @property
    def place(self) -> str:
        """The stage and the chunk of the last work, for messages."""
        return f"stage {self.global_rank % self.plan.stages}" if self.pipeline is None else self.pipeline.place

    def configure_ddp(self) -> None:
        """Divide the model, where DDP would wrap it; the optimisers are made afterwards."""
        module = self._module
        task, trainer = _chunkable(module), module.trainer
        self.check(module, trainer)
        data = getattr(getattr(trainer, "datamodule", None), "data", None)
        if self.chunking == "by-index":
            self._warn_of_loss(module, data)
        plan = self._balanced(self.plan, task)
        self._names = [name for name, _ in module.named_parameters()]
        bound = data.graph.num_nodes if isinstance(data, Dataset) else None
        self.pipeline = Pipeline(task.model, plan, task.chunk_loss, mesh=plan.mesh(self.root_device.type), bound=bound)

    def _balanced(self, plan: Plan, task: Chunkable) -> Plan:
        if plan.balance is not None or plan.num_runs == 1:
            return plan
        return plan.balanced(self.broadcast(self._layer_seconds(task)))

    def _layer_seconds(self, task: Chunkable) -> list[float]:
        """The layers' times, measured by rank 0."""
        if not self.is_global_zero:
            return []
        with torch.inference_mode(False), torch.enable_grad():  # prediction has neither
            return layer_seconds(task.model, task.example_chunk(_EXAMPLE_SEEDS), lambda output, _: output.sum())

    def _warn_of_loss(self, module: LightningModule, data: Any) -> None:
        cut = cut_by_index(data.graph, self.plan.chunks)
        lost = 1 - cut.num_edges / max(1, data.graph.num_edges)
        if self.is_global_zero:
            warnings.warn(
                f"chunking by-index is lossy: {lost:.0%} of the edges lie between {self.plan.chunks} chunks and are not trained on; "
                "chunking seeds loses none",
                stacklevel=1,
            )
        if isinstance(getattr(module, "degrees", None), Tensor):
            module.degrees = torch.from_numpy(cut.in_degrees(np.float32)).to(self.root_device)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Forward and backward of all chunks. The gradients are kept aside: Lightning clears those of the step before in between."""
        module, pipeline = self._module, self._pipeline
        if module.current_epoch != self._epoch:
            self._epoch = module.current_epoch
            pipeline.tighten()
        for parameter in module.parameters():
            parameter.grad = None
        step = pipeline.step(_chunkable(module).make_chunks(batch))
        self._gradients = [(parameter, parameter.grad) for parameter in module.parameters()]
        for parameter, _ in self._gradients:
            parameter.grad = None
        if isinstance(batch, ChunkedBatch):
            module.log("train_loss_step", step.loss * batch.num_step_seeds / batch.num_seeds, batch_size=batch.num_seeds)
        module.log("padding_%", 100 * pipeline.capacities.waste, on_step=False, on_epoch=True, batch_size=1)
        return torch.tensor(step.loss, device=self.root_device)

    def backward(self, closure_loss: Tensor, optimizer: Optimizer | None, *args: Any, **kwargs: Any) -> Tensor:
        """Give the parameters the gradients of the step."""
        closure_loss = self.precision_plugin.pre_backward(closure_loss, self._module)
        for parameter, gradient in self._gradients:
            parameter.grad = gradient
        self._gradients = []
        return self.precision_plugin.post_backward(closure_loss, self._module)

    def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
        """The scores of a copy's batch, (N, C) on the CPU, on its last stage; none, (0, C), on the others. Chunks may be in flight afterwards."""
        task = _chunkable(self._module)
        if self._forward is None:
            self._forward = self._make_forward(task)
        outputs = self._forward(task.chunks_to_predict(batch, self.global_rank % self.plan.stages == 0))
        return torch.cat(outputs).float().cpu() if outputs else torch.empty(0)

    def _make_forward(self, task: Chunkable) -> Forward:
        plan = replace(self.plan, schedule="gpipe", balance=None if self.plan.is_interleaved else self.plan.balance)
        plan, model = self._balanced(plan, task), cast(PipelineModule, task.model)
        return Forward(task.model, plan.runs(model.num_layers), plan.mesh(self.root_device.type), plan.chunks)

    def on_predict_end(self) -> None:
        """Let the last chunks go on."""
        if self._forward is not None:
            self._forward.finish()

    def on_validation_start(self) -> None:
        """Bring the weights together, once for all of the validation."""
        if self.pipeline is not None:
            self.pipeline.whole.unite()

    def on_validation_end(self) -> None:
        """Go on with the own layers, if this is a validation between two epochs."""
        if self.pipeline is not None and self._module.trainer.state.fn == TrainerFn.FITTING:
            self.pipeline.whole.divide()

    def on_train_end(self) -> None:
        """Leave a whole model behind."""
        if self.pipeline is not None:
            self.pipeline.whole.unite()

    def lightning_module_state_dict(self) -> dict[str, Any]:
        """The whole model's weights, on every rank."""
        own: dict[str, Any] = self._module.state_dict()
        return own if self.pipeline is None or self.pipeline.whole.is_whole else self.pipeline.whole.gather(own)

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """The state that an optimiser of the whole model would have, on every rank."""
        if self.pipeline is None:
            return super().optimizer_state(optimizer)
        return whole_state(optimizer, self.pipeline.whole.gather(named_state(optimizer, self._module)), self._names)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """Take the own layers' part of the whole optimiser's state."""
        if self.pipeline is None:
            super().load_optimizer_state_dict(checkpoint)
            return
        states = [own_state(state, self._names, self._module) for state in checkpoint["optimizer_states"]]
        super().load_optimizer_state_dict({"optimizer_states": states})

    @property
    def _module(self) -> LightningModule:
        module = self.lightning_module
        if module is None:
            raise RuntimeError("a strategy works for a module: give it to a Trainer, and call its fit")
        return module

    @property
    def _pipeline(self) -> Pipeline:
        if self.pipeline is None:
            raise RuntimeError("a step before the model was divided: call the Trainer's fit")
        return self.pipeline


def _chunkable(module: LightningModule) -> Chunkable:
    """The module, if its way of training is the one that it offers to a pipeline."""
    kind: Any = type(module)
    if not isinstance(module, Chunkable) or kind.chunked_step is not kind.training_step:
        raise InputError(f"{kind.__name__} does not run in a pipeline: use NodeClassifier or another model that makes chunks")
    return module
