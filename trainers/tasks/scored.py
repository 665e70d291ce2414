"""Base class of all tasks: loss and metric of each stage, over all ranks, with every example counted once."""

from __future__ import annotations

import os
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from inspect import signature
from types import FrameType
from typing import Any, ClassVar, Self, TypeAlias

import torch
from lightning_utilities.core.rank_zero import rank_zero_info
from pytorch_lightning import Callback, LightningModule
from pytorch_lightning.plugins.precision import MixedPrecision
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torchmetrics import MeanMetric, Metric, MetricCollection

from hoptrain.engine import Dataset, HeteroDataset, InputError
from hoptrain.samplers.batch.minibatch import SampledBatch
from hoptrain.trainers.callbacks.finite_loss import NonFiniteLossMonitor
from hoptrain.trainers.metrics.own import (
    AnyLoss,
    check_loss,
    collect,
    collect_named,
    compute_metrics,
    keeps_outputs,
    metrics_in,
    name_of,
    update_metrics,
)
from hoptrain.trainers.models.hetero.sparse_adam import DenseAndSparseAdam
from hoptrain.trainers.models.layered import address_seed, seed_generators
from hoptrain.trainers.resume.checkpoints import CheckpointFiles
from hoptrain.trainers.resume.feature_columns import Columns, check_columns, columns_from, columns_in
from hoptrain.trainers.tasks import TASKS
from hoptrain.trainers.tasks.options import check_precision
from hoptrain.trainers.tasks.shared_data import SharedDataModule

STAGES = ("fit", "val", "test")
_FREE = {"lr", "weight_decay", "dropout", "input_dropout", "model", "metric", "default_metric", "hard_negatives", "class_weight", "loss"}
"""Names of the arguments in which a checkpoint may differ from the model, since they do not change the shape of any weight."""
_OBJECTS = ("metric", "loss", "optimizer", "lr_scheduler")
"""Names of the arguments that may be objects. A checkpoint contains only the names of these objects."""
OptimizerCallable: TypeAlias = Callable[[Iterable[Any]], Optimizer]
LRSchedulerCallable: TypeAlias = Callable[[Optimizer], LRScheduler]
"""Types of functions that make an optimiser or a scheduler. Lightning's command line recognises them, and builds the function from a class path and arguments.

They are defined here, since importing Lightning's own definitions is slow.
"""


class ScoredModule(LightningModule):
    """A base LightningModule that logs the loss and the metric of training, validation and test at the end of an epoch.

    The names are ``train_loss``, ``val_loss`` and ``test_loss``, and for instance ``val_acc``. The loss of each training batch is ``train_loss_step``.

    Attributes:
        data_class: class of the data module that the task runs with.
        learns_from: what the data module contains, as a word for messages.
        score_name: name of the metric, such as ``acc``, which is logged as ``val_acc`` and so on.
        score_title: readable name of the metric.
        scored: stages that have a metric.
        loss: the user's own loss, see ``row_losses``; None for that of the task.
        predicted: readable description of the output of ``hoptrain predict``.
        further: additional metrics by their logged name, such as ``val_auc``; a subclass makes and updates them.
        reads_classes: whether the model predicts the classes that the data set names.
        tables_of_rank: names of buffers with different values on each rank; a checkpoint stores those of all ranks.
    """

    data_class: ClassVar[type[SharedDataModule]]
    learns_from = "graph"
    score_name = "acc"
    score_title = "accuracy"
    scored: Sequence[str] = STAGES
    predicted: str = "all outputs"
    reads_classes: ClassVar[bool] = False
    tables_of_rank: Sequence[str] = ()

    def __init__(
        self,
        *,
        loss: AnyLoss | None = None,
        optimizer: OptimizerCallable | None = None,
        lr_scheduler: LRSchedulerCallable | None = None,
    ) -> None:
        """Store the custom loss, optimiser and scheduler, if given. A subclass also calls ``define_metric`` and ``make_scores``.

        Args:
            loss: your own loss instead of the task's: a loss of torch such as ``torch.nn.CrossEntropyLoss``, or a function of outputs and targets that
                returns the loss of each row or the mean over rows.
            optimizer: function of the parameters that returns a torch optimiser, such as ``functools.partial(torch.optim.SGD, lr=0.1)``, or on the
                command line a class and its arguments. The options lr and weight_decay are then not used.
            lr_scheduler: function of the optimiser that returns a learning rate scheduler of torch, which is stepped after each epoch; on the command
                line a class and its arguments. torch's ReduceLROnPlateau monitors val_loss, Lightning's monitors its argument ``monitor``.

        Raises:
            InputError: an argument has another type, or a class needs further arguments.
        """
        super().__init__()
        for name, given in (("optimizer", optimizer), ("lr_scheduler", lr_scheduler)):
            if given is not None and not callable(given):
                raise InputError(
                    f"{name} is {name_of(given)}(...): it must be a class or a function that makes one, since hoptrain calls it for each training; "
                    "give for instance functools.partial of the class and its arguments"
                )
            if needed := _further_arguments(given):
                own = f"{name_of(given)}, {', '.join(f'{each}=...' for each in needed)}"
                raise InputError(
                    f"{name} is {name_of(given)}: it also needs {', '.join(needed)}; give for instance functools.partial({own})"
                )
        self._optimizer, self._lr_scheduler = optimizer, lr_scheduler
        self._columns: Columns = {}
        self.loss: Any = None if loss is None else check_loss(loss)
        if loss is not None:
            self.hparams["loss"] = name_of(loss)
        self._clone_own: Callable[[], MetricCollection] | None = None
        # The default nan_strategy would synchronise with the device at each loss, and skip NaN.
        self.losses: nn.ModuleDict = nn.ModuleDict({stage: MeanMetric(nan_strategy="disable") for stage in STAGES})
        self.scores: nn.ModuleDict = nn.ModuleDict()
        self.further: nn.ModuleDict = nn.ModuleDict()
        self._counted: list[tuple[Tensor, Tensor, Tensor]] = []  # outputs, labels and losses of the current batch

    @classmethod
    def load_from_checkpoint(
        cls,
        checkpoint_path: Any,
        map_location: Any = None,
        hparams_file: Any = None,
        strict: bool | None = None,
        weights_only: bool | None = None,
        **options: Any,
    ) -> Any:
        """Build the task from a checkpoint, as Lightning does, after checking that the file is complete.

        Raises:
            InputError: the file is damaged, contains code, or is not a checkpoint.
        """
        if isinstance(checkpoint_path, str | os.PathLike) and "://" not in str(checkpoint_path):
            CheckpointFiles().load_checkpoint(os.fspath(checkpoint_path), "cpu", weights_only)  # raises clearer errors than torch would
        return super().load_from_checkpoint(checkpoint_path, map_location, hparams_file, strict, weights_only, **options)

    @property
    def _ddp_params_and_buffers_to_ignore(self) -> list[str]:
        """Buffers that DDP must not broadcast from rank 0 at every step: buffers that differ between ranks, and buffers that belong to the data."""
        saved = self.state_dict(keep_vars=True)
        return [*self.tables_of_rank, *(name for name, _ in self.named_buffers() if name not in saved)]

    @classmethod
    def from_data(cls, data: SharedDataModule, **options: Any) -> Self:
        """Build the task with the sizes that a data module knows, as the command line does.

        Args:
            data: the data module that the task will run with.
            options: further arguments of the class. With your own ``model`` the sizes come from the data when the training starts.

        Raises:
            InputError: ``data`` is not a data module of this task.
        """
        if not isinstance(data, cls.data_class):
            raise InputError(f"data is a {type(data).__name__}: {cls.__name__} runs with a {cls.data_class.__name__}; give one")
        models = {task.model: task.from_data for task in TASKS.values()}
        sizes = next(models[each.__name__] for each in cls.__mro__ if each.__name__ in models)
        known = {} if options.get("model") is not None else {target: getattr(data, source) for source, target in sizes.items()}
        return cls(**known | options)

    def save_hyperparameters(self, *args: Any, ignore: Any = (), frame: FrameType | None = None, logger: bool = True) -> None:
        """Save the arguments of ``__init__``, without objects: a checkpoint has plain values only, such as the names of metric and loss."""
        # kept here, since Lightning deletes the ignored names
        names = {name: self.hparams[name] for name in _OBJECTS if name in self.hparams}
        super().save_hyperparameters(*args, ignore=[*ignore, *_OBJECTS], frame=frame or sys._getframe(1), logger=logger)
        self.hparams.update(names)

    def define_metric(self, metric: object) -> None:
        """Set the metric: the name of a metric of the task, or custom metrics. The first custom metric selects the best checkpoint.

        Raises:
            InputError: ``metric`` has another type.
        """
        self._clone_own = None
        if isinstance(metric, str):
            self.score_name = self.hparams["metric"] = metric
            return
        own = collect(metric)
        self.score_name = self.score_title = str(next(iter(own.keys())))
        self.hparams["metric"] = name_of(metric)
        self._clone_own = own.clone
        if keeps_outputs(own):  # not computed in training, where a checkpoint within an epoch would contain all outputs so far
            self.scored = [stage for stage in self.scored if stage != "fit"]

    @property
    def has_own_metric(self) -> bool:
        """True if the metric is the user's own."""
        return self._clone_own is not None

    def make_scores(self, score: Callable[[], Metric]) -> None:
        """Make the metrics of each stage in ``scored``: the custom metrics, or else the metric that ``score`` returns."""
        make = self._clone_own or (lambda: collect_named(self.score_name, score()))
        if not self.has_own_metric and "fit" in self.scored and keeps_outputs(make()):
            self.scored = STAGES[1:]
        self.scores = nn.ModuleDict({stage: make() for stage in self.scored})

    @property
    def monitor_mode(self) -> str:
        """Mode of the metric for ``ModelCheckpoint``: "min" if smaller values are better, else "max"."""
        first = next(iter(metrics_in(self.scores if self._clone_own is None else self._clone_own()).values()), None)
        return "min" if first is not None and first.higher_is_better is False else "max"

    def note_defaults(self, model: type[nn.Module]) -> None:
        """Add the default values of the model's options to the hyperparameters, so that a checkpoint describes the whole model."""
        for name, option in signature(model).parameters.items():
            if option.default is not option.empty:
                self.hparams.setdefault(name, option.default)

    def note_module(self, model: object) -> nn.Module:
        """Return a custom module, and store its class name in the hyperparameters; a checkpoint has only this name and the weights."""
        if not isinstance(model, nn.Module):
            raise InputError(
                f"model is {model!r}: it must be an nn.Module, which a checkpoint or a command line cannot hold; give the nn.Module in Python, "
                f"as {type(self).__name__}(model=...) or load_from_checkpoint(path, model=...)"
            )
        self.hparams["model"] = type(model).__name__
        return model

    @property
    def _datamodule(self) -> Any:
        """The data module of the run.

        Raises:
            InputError: the data module is not an instance of the task's ``data_class``.
        """
        datamodule = getattr(self.trainer, "datamodule", None)
        if not isinstance(datamodule, self.data_class):
            raise InputError(
                f"{type(self).__name__} needs a {self.data_class.__name__}, with the {self.learns_from} that it learns from: "
                f"run it with trainer.fit(model, datamodule={self.data_class.__name__}(...))"
            )
        return datamodule

    def seed_dropout(self, batch: SampledBatch) -> None:
        """Seed torch with the address of a batch, so that dropout draws the same in a resumed and an uninterrupted run."""
        seed_generators(address_seed(batch.seed, batch.epoch, batch.batch), self.device)

    def sparse_tables(self) -> list[nn.Parameter]:
        """Return the embedding weights whose gradients are sparse."""
        tables = (module for module in self.modules() if isinstance(module, nn.Embedding) and module.sparse)
        return [weight for table in tables for weight in table.parameters()]

    def setup(self, stage: str) -> None:
        """Check the feature columns, and make gradients of embeddings dense if the optimiser does not support sparse ones.

        Raises:
            InputError: the data have other columns than those of the training, the trainer clips sparse gradients, or its precision does not suit
                mini-batches.
        """
        self._match_columns()
        check_precision(self.trainer)
        if self._optimizer is not None and self.sparse_tables() and not _takes_sparse_gradients(self._optimizer):
            rank_zero_info(
                "embeddings get dense gradients, since the optimiser does not support sparse gradients: each step updates all rows"
            )
            for module in self.modules():
                if isinstance(module, nn.Embedding):
                    module.sparse = False
        if self.trainer.gradient_clip_val and self.sparse_tables():
            raise InputError(
                "gradient_clip_val with embeddings: torch cannot clip their sparse gradients; leave it out, or make the gradients dense if the "
                "task has an option for it"
            )

    @property
    def reads_edges(self) -> bool:
        """True if the model reads edge features."""
        return False

    @property
    def classes_of_training(self) -> list[str]:
        """Names of the classes of the training data, which a checkpoint keeps; empty if they have none."""
        return list(self._columns.get("classes", {}).values())

    def _match_columns(self) -> None:
        """Check that the data have the feature columns of the training; in a training of a new model, keep those of the data.

        Raises:
            InputError: a column, its categories or the classes differ.
        """
        trainer = self._trainer
        data = getattr(getattr(trainer, "datamodule", None), "data", None)
        if trainer is None or not isinstance(data, Dataset | HeteroDataset):
            return
        ours = columns_in(data, edges=self.reads_edges, classes=self.reads_classes)
        check_columns(self._columns, data, ours)
        if trainer.training:
            self._columns = self._columns | ours

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the feature columns of the training to a checkpoint."""
        if self._columns:
            checkpoint["feature_columns"] = self._columns

    def configure_callbacks(self) -> list[Callback]:
        """Return the callback that warns of a loss that is NaN or infinite, unless the trainer has it."""
        callbacks: list[Callback] = self.trainer.callbacks  # type: ignore[attr-defined]
        return [] if any(isinstance(each, NonFiniteLossMonitor) for each in callbacks) else [NonFiniteLossMonitor()]

    def configure_optimizers(self) -> Any:
        """Return the optimiser and, if there is a schedule of the learning rate, the schedule, in the form that Lightning expects."""
        optimizer = self.default_optimizer() if self._optimizer is None else self._own_optimizer(self._optimizer)
        if self._lr_scheduler is None:
            return optimizer
        scheduler = self._lr_scheduler(optimizer)
        monitor = {"monitor": getattr(scheduler, "monitor", "val_loss")} if isinstance(scheduler, ReduceLROnPlateau) else {}
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, **monitor}}

    def _own_optimizer(self, make: OptimizerCallable) -> Optimizer:
        optimizer = make(self.parameters())
        if not isinstance(optimizer, Optimizer):
            raise InputError(
                f"optimizer returned {name_of(optimizer)}(...): it must return a torch optimiser of the parameters that it gets; change it"
            )
        rate = optimizer.param_groups[0].get("lr")
        rank_zero_info(f"the optimiser is {name_of(optimizer)} with lr {rate}; the options lr and weight_decay of the model are not used")
        return optimizer

    def default_optimizer(self) -> Optimizer:
        """Return Adam, fused on CUDA. Embeddings with sparse gradients get torch's ``SparseAdam``, which updates only the batch's rows."""
        options: dict[str, Any] = {"lr": self.hparams["lr"], "weight_decay": self.hparams["weight_decay"]}
        tables = self.sparse_tables()
        if not tables:
            return torch.optim.Adam(self.parameters(), **options, fused=may_fuse(self))
        known = set(map(id, tables))
        others = [parameter for parameter in self.parameters() if parameter.requires_grad and id(parameter) not in known]
        return DenseAndSparseAdam(others, tables, **options)

    def on_train_epoch_start(self) -> None:
        """Reset the epoch's metrics. This does not happen at the end of an epoch, so that a run that resumes in the middle of an epoch keeps them."""
        self._counted.clear()
        for metric in self._fit_metrics().values():
            metric.reset()

    def on_train_batch_end(self, *_: Any) -> None:
        """Count the finished batch, unless a callback has done so."""
        self.commit()

    def on_train_epoch_end(self) -> None:
        """Log the epoch's loss and metric over all ranks."""
        self._log("fit", "train")

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Evaluate a batch of the validation split."""
        self.evaluate("val", batch)

    def on_validation_epoch_end(self) -> None:
        """Log the loss and the metric over all ranks."""
        self._log("val", "val")

    def test_step(self, batch: Any, batch_idx: int) -> None:
        """Evaluate a batch of the test split."""
        self.evaluate("test", batch)

    def on_test_epoch_end(self) -> None:
        """Log the loss and the metric over all ranks."""
        self._log("test", "test")

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Check that the checkpoint fits this model. torch's own error would list every tensor that differs.

        Raises:
            InputError: the checkpoint has another model, or was trained on other feature columns than those of the trainer's data.
        """
        self._columns = columns_from(checkpoint.get("feature_columns")) or self._columns
        self._match_columns()
        theirs, remedy = checkpoint.get("hyper_parameters", {}), "use the data and the configuration that it was trained with"
        for name in sorted(set(theirs) & set(self.hparams) - _FREE):
            if theirs[name] != self.hparams[name]:
                raise InputError(
                    f"the checkpoint's model has {name} {theirs[name]}, this one {self.hparams[name]}: they must be equal; {remedy}"
                )
        other = sorted(checkpoint["state_dict"].keys() ^ self.state_dict().keys())
        if other:
            raise InputError(f"the checkpoint is of another kind of model: only one of the two has {other[0]}; {remedy}, and the same task")
        self._set_rates(checkpoint, theirs)

    def _set_rates(self, checkpoint: dict[str, Any], theirs: dict[str, Any]) -> None:
        """Apply a changed learning rate or weight decay to a resumed run; the optimiser's saved state would restore the old values."""
        if self._optimizer is not None:
            return
        changed = {name: self.hparams[name] for name in ("lr", "weight_decay") if name in theirs and theirs[name] != self.hparams[name]}
        if "lr" in changed and checkpoint.get("lr_schedulers"):
            raise InputError(
                f"lr is {changed['lr']}, but the checkpoint's scheduler sets it, starting from {theirs['lr']}: give the old lr"
            )
        for state in checkpoint.get("optimizer_states", []):
            for group in state["param_groups"]:
                group.update(changed)

    def log_step(self, mean: Tensor, number: int) -> None:
        """Log ``mean``, the mean loss over the ``number`` examples of a training batch, as ``train_loss_step``; outside of a training do nothing."""
        if getattr(self._trainer, "training", False):
            self.log("train_loss_step", mean.detach(), batch_size=number)

    @abstractmethod
    def evaluate(self, stage: str, batch: Any) -> None:
        """Compute the loss of a batch, and ``count`` it with the model's outputs."""

    def count(self, stage: str, outputs: Tensor, y: Tensor, total: Tensor) -> None:
        """Update the stage's loss with ``total``, the sum over a batch's examples, and its metric with ``outputs``.

        In training, the update happens once the batch is finished.
        """
        counted = (outputs.detach(), y, total.detach())
        if stage == "fit":
            self._counted.append(counted)
        else:
            self._update(stage, *counted)

    def _update(self, stage: str, outputs: Tensor, y: Tensor, total: Tensor) -> None:
        # The mean is added once per example, since torchmetrics does not support weights with nan_strategy "disable".
        metric_of(self.losses, stage).update((total / len(y)).expand(len(y)))
        self.update_scores(stage, outputs, y)

    def update_scores(self, stage: str, *found: Tensor) -> None:
        """Update the metrics of a stage, if the stage has metrics."""
        if stage in self.scores:
            (update_metrics if self.has_own_metric else MetricCollection.update)(self.collection_of(stage), *found)

    def collection_of(self, stage: str) -> MetricCollection:
        """Return the metrics of a stage by name."""
        metrics = self.scores[stage]
        if not isinstance(metrics, MetricCollection):
            raise TypeError(f"the metrics of stage {stage} are a {type(metrics).__name__}: they must be a MetricCollection of torchmetrics")
        return metrics

    def commit(self) -> None:
        """Count the finished batch; see ``hoptrain.trainers.resume.exact_resume.Stateful``."""
        for counted in self._counted:
            self._update("fit", *counted)
        self._counted.clear()

    def rank_state(self) -> dict[str, Tensor]:
        """Return this rank's metric state of the epoch so far."""
        return {key: value for key, (_, _, value) in self._figures().items()}

    def load_rank_state(self, state: dict[str, Tensor]) -> None:
        """Restore the state that ``rank_state`` returned, without a batch that was interrupted."""
        self._counted.clear()
        for key, (metric, name, old) in self._figures().items():
            if key in state:  # a run that resumes with another metric computes it over the rest of the epoch
                setattr(metric, name, state[key].to(old.device))
                metric._update_count = 1  # else the metric warns that compute is called before update

    def _figures(self) -> dict[str, tuple[Metric, str, Tensor]]:
        """Return the state tensors of the training metrics by name, each as (metric, attribute, value)."""
        return {
            f"{kind}.{name}": (metric, name, value)
            for kind, metric in self._fit_metrics().items()
            for name, value in metric.metric_state.items()
            if isinstance(value, Tensor)
        }

    def _fit_metrics(self) -> dict[str, Metric]:
        parts = {"loss": self.losses, "score": self.scores}
        return {
            f"{kind}.{name}": metric for kind, part in parts.items() if "fit" in part for name, metric in metrics_in(part["fit"]).items()
        }

    def check_outputs(self, outputs: object, rows: int, columns: int) -> Tensor:
        """Return a model's output if it is a floating tensor of shape (``rows``, ``columns``). A subclass may use any model.

        Raises:
            InputError: the output is not such a tensor.
        """
        if isinstance(outputs, Tensor) and outputs.shape == (rows, columns) and outputs.is_floating_point():
            return outputs
        found = f"{outputs.dtype} of shape {tuple(outputs.shape)}" if isinstance(outputs, Tensor) else type(outputs).__name__
        raise InputError(
            f"the model of {type(self).__name__} returned {found}: it must return floating logits of shape ({rows}, {columns}), a row for each "
            "example of the batch; change its forward"
        )

    def _log(self, stage: str, name: str) -> None:
        loss = metric_of(self.losses, stage)
        self.log(f"{name}_loss", loss.compute(), prog_bar=True)
        if stage in self.scores:
            for key, value in compute_metrics(self.collection_of(stage)).items():
                self.log(f"{name}_{key}", value, prog_bar=True)
        if stage != "fit":
            loss.reset()
            self.collection_of(stage).reset()
            for key in self.further:
                if key.startswith(f"{name}_"):
                    self.log(key, metric_of(self.further, key).compute())
                    metric_of(self.further, key).reset()


def may_fuse(module: LightningModule) -> bool | None:
    """Return the option ``fused`` of torch's optimisers: True on CUDA, else None, which lets torch decide.

    It is also None if Lightning clips gradients in mixed precision: a fused optimiser unscales gradients within its step, so Lightning cannot clip
    them before.
    """
    trainer = module._trainer
    clips = trainer is not None and trainer.gradient_clip_val and isinstance(trainer.precision_plugin, MixedPrecision)
    return True if module.device.type == "cuda" and not clips else None


def _further_arguments(make: Callable[..., Any] | None) -> list[str]:
    """Return the required arguments of a function after the first one."""
    try:
        parameters = [] if make is None else list(signature(make).parameters.values())
    except ValueError:  # a function of C
        return []
    needed = [each.name for each in parameters if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    return needed[1:]


def _takes_sparse_gradients(make: OptimizerCallable) -> bool:
    """Return whether an optimiser can make a step on a parameter with a sparse gradient."""
    parameter = nn.Parameter(torch.zeros(2, 1))
    parameter.grad = torch.zeros(2, 1).to_sparse(1)
    try:
        make([parameter]).step()
    except (RuntimeError, ValueError, TypeError):
        return False
    return True


def metric_of(metrics: nn.ModuleDict, stage: str) -> Metric:
    """Return the metric of a stage."""
    metric = metrics[stage]
    if not isinstance(metric, Metric):
        raise TypeError(f"the metric of stage {stage} is a {type(metric).__name__}: it must be a Metric of torchmetrics")
    return metric
