"""The Lightning strategy for pipelines: ``trainer.strategy`` of any configuration whose model can be divided into stages."""

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
"""Maximum number of seeds in the chunk with which the layers are timed."""


@runtime_checkable
class Chunkable(Protocol):
    """A protocol of LightningModules that can be trained in a pipeline.

    Attributes:
        model: module that is divided.
        chunked_step: the ``training_step`` whose loss is the sum of the chunks' losses. A subclass with another ``training_step`` must set it again.
    """

    model: nn.Module
    chunked_step: Any

    def make_chunks(self, batch: Any) -> list[Chunk]:
        """Return the chunks of a batch from the training loader."""

    def example_chunk(self, num_seeds: int) -> Chunk:
        """Return a chunk of about ``num_seeds`` examples, with the inputs of all layers."""

    def chunk_loss(self, output: Tensor, target: Any) -> Tensor:
        """Return a chunk's contribution to the loss, and update metrics. Only the last stage calls it."""

    def chunks_to_predict(self, batch: Any, is_first: bool) -> Iterable[Chunk]:
        """Return the chunks of a batch from the predict loader, in order. ``is_first``: the chunks need the input of the first layer."""


class PipelineStrategy(DDPStrategy):
    """A strategy with ``data`` copies of the model, each divided among ``stages`` processes. ``trainer.devices`` must be their product.

    In training, chunks pass through the stages, and each process has an optimiser of its own layers. In validation and test, every process has the whole
    model. In prediction, chunks pass forward through the stages. Checkpoints contain the whole model and the state of an optimiser of the whole model, so
    they are interchangeable with those of runs without a pipeline. Losses and metrics are over all model copies, on every rank.

    Every stage samples the chunks of its model copy itself, which gives the same chunks on all stages. So only activations are sent, but each stage repeats
    the sampling. Only the first stage gathers features, and only the last stage gathers labels.

    ``chunking: by-index`` divides nodes by id and drops all edges between chunks, as earlier papers do, for comparison.
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
        """Store the plan's options.

        Args:
            stages: number of stages per model copy, each in one process.
            data: number of model copies (replicas), as in data parallelism.
            chunks: number of chunks per batch.
            schedule: order of forward and backward passes: gpipe, 1f1b or interleaved-1f1b.
            balance: number of layers of each stage (of each run of layers, if interleaved); by default derived from measured times of the layers.
            chunking: seeds divides a batch exactly; by-index drops the edges between chunks.
        """
        super().__init__()
        # Only the last stages update metrics; computing a metric synchronises it over all ranks.
        warnings.filterwarnings("ignore", message="The ``compute`` method of metric .* was called before the ``update``")
        self._options: dict[str, Any] = {"stages": stages, "data": data, "chunks": chunks, "schedule": schedule}
        self._options["balance"] = None if balance is None else tuple(balance)
        self.chunking: Chunking = chunking
        self.pipeline: Pipeline | None = None
        self._forward: Forward | None = None
        self._names: list[str] = []  # names of all parameters of the module while it is divided
        self._gradients: list[tuple[nn.Parameter, Tensor | None]] = []
        self._epoch = -1

    @cached_property
    def plan(self) -> Plan:
        """Plan of the pipeline. It is created at the first access and not in the constructor, where the command line's parser would wrap its errors."""
        return Plan(**self._options)

    def check(self, module: LightningModule, trainer: Trainer) -> None:
        """Raise InputError, before any process starts, if the plan does not suit the model or the trainer.

        Raises:
            InputError: the number of processes, the model, or an option of the trainer does not suit the plan.
        """
        self.plan.check_world(trainer.world_size)
        task = _chunkable(module)
        if trainer.accumulate_grad_batches != 1:
            raise InputError(
                "accumulate_grad_batches with a pipeline: chunks already accumulate gradients; raise batch_size and chunks instead"
            )
        if trainer.gradient_clip_val is not None and trainer.gradient_clip_algorithm != "value":
            raise InputError("gradient_clip_val by norm with a pipeline: no stage has all gradients; use gradient_clip_algorithm value")
        if trainer.precision != "32-true":
            raise InputError(f"precision {trainer.precision} with a pipeline: stages exchange activations in float32; use 32-true")
        check_model(task.model, self.plan)

    def check_items(self, schedule: Schedule) -> None:
        """Raise InputError if batches of items cannot be divided into the plan's chunks.

        Raises:
            InputError: there are more chunks than items, or items are to be divided by id.
        """
        if self.chunking == "by-index":
            raise InputError("chunking by-index for items: they have no edges between them to drop; use chunking seeds")
        fewest = min(schedule.num_step_items(step) // schedule.world_size for step in (0, schedule.num_steps - 1))
        if self.plan.chunks > fewest:
            raise InputError(
                f"{self.plan.chunks} chunks of a batch of {fewest} items: every chunk needs an item; use at most {fewest} chunks or larger batches"
            )

    def make_loader(self, data: Dataset, sampler: Sampler, **options: Any) -> ChunkLoader:
        """Return a loader of the chunks of this process's model replica. Only the first stage gets features, and only the last stage gets labels.

        Args:
            data: the data set.
            sampler: sampling algorithm.
            options: further options of ``SampleLoader``; ``rank`` is the copy and ``world_size`` the number of copies.
        """
        stage = self.global_rank % self.plan.stages
        x, y = data.x if stage == 0 else None, data.y if stage == self.plan.stages - 1 else None
        return ChunkLoader(replace(data, x=x, y=y, validate=False), sampler, chunks=self.plan.chunks, chunking=self.chunking, **options)

    @property
    def distributed_sampler_kwargs(self) -> dict[str, Any]:
        """Number of model copies and index of this process's copy, by which Lightning shards data."""
        return {"num_replicas": self.plan.data, "rank": self.global_rank // self.plan.stages}

    @property
    def place(self) -> str:
        """Description of the stage and its current or last chunk, for messages."""
        return f"stage {self.global_rank % self.plan.stages}" if self.pipeline is None else self.pipeline.place

    def configure_ddp(self) -> None:
        """Divide the model. Lightning calls this hook, in which DDP would wrap the model, before optimisers are created."""
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
        """Return the layers' times, measured by rank 0."""
        if not self.is_global_zero:
            return []
        with torch.inference_mode(False), torch.enable_grad():  # enables gradients, which prediction disables
            return layer_seconds(task.model, task.example_chunk(_EXAMPLE_SEEDS), lambda output, _: output.sum())

    def _warn_of_loss(self, module: LightningModule, data: Any) -> None:
        cut = cut_by_index(data.graph, self.plan.chunks)
        lost = 1 - cut.num_edges / max(1, data.graph.num_edges)
        if self.is_global_zero:
            warnings.warn(
                f"chunking by-index is lossy: it drops {lost:.0%} of the edges, those between {self.plan.chunks} chunks; "
                "use chunking seeds to keep all edges",
                stacklevel=1,
            )
        if isinstance(getattr(module, "degrees", None), Tensor):
            module.degrees = torch.from_numpy(cut.in_degrees(np.float32)).to(self.root_device)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Run forward and backward passes of all chunks. Store the gradients separately, since Lightning clears ``grad`` afterwards."""
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
        """Set the parameters' gradients to those of the step."""
        closure_loss = self.precision_plugin.pre_backward(closure_loss, self._module)
        for parameter, gradient in self._gradients:
            parameter.grad = gradient
        self._gradients = []
        return self.precision_plugin.post_backward(closure_loss, self._module)

    def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return logits (N, C) of the batch on the CPU of the last stage, and (0, C) on other stages, whose activations may still be in transit."""
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
        """Wait until the last chunks have been sent."""
        if self._forward is not None:
            self._forward.finish()

    def on_validation_start(self) -> None:
        """Gather the weights, once for the whole validation."""
        if self.pipeline is not None:
            self.pipeline.whole.unite()

    def on_validation_end(self) -> None:
        """Divide the weights again if training continues."""
        if self.pipeline is not None and self._module.trainer.state.fn == TrainerFn.FITTING:
            self.pipeline.whole.divide()

    def on_train_end(self) -> None:
        """Gather the weights, so that the model is whole after training."""
        if self.pipeline is not None:
            self.pipeline.whole.unite()

    def lightning_module_state_dict(self) -> dict[str, Any]:
        """Return the whole model's weights, on every rank."""
        own: dict[str, Any] = self._module.state_dict()
        return own if self.pipeline is None or self.pipeline.whole.is_whole else self.pipeline.whole.gather(own)

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """Return the state that an optimiser of the whole model would have, on every rank."""
        if self.pipeline is None:
            return super().optimizer_state(optimizer)
        return whole_state(optimizer, self.pipeline.whole.gather(named_state(optimizer, self._module)), self._names)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """Load the state of this stage's layers from the state of an optimiser of the whole model."""
        if self.pipeline is None:
            super().load_optimizer_state_dict(checkpoint)
            return
        states = [own_state(state, self._names, self._module) for state in checkpoint["optimizer_states"]]
        super().load_optimizer_state_dict({"optimizer_states": states})

    @property
    def _module(self) -> LightningModule:
        module = self.lightning_module
        if module is None:
            raise RuntimeError("the strategy has no module: pass it to a Trainer, and call fit")
        return module

    @property
    def _pipeline(self) -> Pipeline:
        if self.pipeline is None:
            raise RuntimeError("a step was called before the model was divided: call the Trainer's fit")
        return self.pipeline


def _chunkable(module: LightningModule) -> Chunkable:
    """Return the module after checking that a pipeline supports its ``training_step``."""
    kind: Any = type(module)
    if not isinstance(module, Chunkable) or kind.chunked_step is not kind.training_step:
        raise InputError(f"{kind.__name__} does not run in a pipeline: use NodeClassifier or another model that makes chunks")
    return module
