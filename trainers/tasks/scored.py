"""Base class of all tasks: loss and metric of each stage, over all ranks, with every example counted once."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any, ClassVar

import torch
from pytorch_lightning import LightningModule
from pytorch_lightning.plugins.precision import MixedPrecision
from torch import Tensor, nn
from torchmetrics import MeanMetric, Metric

from hoptrain.engine import InputError
from hoptrain.samplers.batch.minibatch import SampledBatch
from hoptrain.trainers.models.hetero.sparse_adam import DenseAndSparseAdam
from hoptrain.trainers.models.layered import address_seed, seed_generators
from hoptrain.trainers.resume.checkpoints import CheckpointFiles
from hoptrain.trainers.tasks.shared_data import SharedDataModule

STAGES = ("fit", "val", "test")
_FREE = {"lr", "weight_decay", "dropout", "input_dropout", "model", "metric", "default_metric", "hard_negatives", "class_weight"}
"""Arguments in which a checkpoint may differ from the model: they do not change the shape of any weight."""


class ScoredModule(LightningModule):
    """A base LightningModule that logs the loss and the metric of training, validation and test at the end of an epoch.

    The names are ``train_loss``, ``val_loss`` and ``test_loss``, and for instance ``val_acc``.

    Attributes:
        data_class: class of the data module that the task runs with.
        learns_from: word for the contents of the data module in messages.
        score_name: name of the metric; it is logged after the stage's name.
        score_title: readable name of the metric.
        scored: stages that have a metric.
        predicted: readable description of the output of ``hoptrain predict``.
        further: additional metrics by their logged name, such as ``val_auc``; a subclass makes and updates them.
        tables_of_rank: names of buffers that each rank keeps for itself, and that a checkpoint stores.
    """

    data_class: ClassVar[type[SharedDataModule]]
    learns_from = "graph"
    score_name = "acc"
    score_title = "accuracy"
    scored: Sequence[str] = STAGES
    predicted: str = "all outputs"
    tables_of_rank: Sequence[str] = ()

    def __init__(self, score: Callable[[], Metric] | None) -> None:
        """Make the metrics. If ``score`` is None, ``make_scores`` must be called later."""
        super().__init__()
        # The default nan_strategy would synchronise with the device at each loss, and skip NaN.
        self.losses: nn.ModuleDict = nn.ModuleDict({stage: MeanMetric(nan_strategy="disable") for stage in STAGES})
        self.scores: nn.ModuleDict = nn.ModuleDict()
        self.further: nn.ModuleDict = nn.ModuleDict()
        if score is not None:
            self.make_scores(score)
        self._counted: list[tuple[Tensor, Tensor, Tensor]] = []  # of the current batch

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
            CheckpointFiles().load_checkpoint(os.fspath(checkpoint_path), "cpu", weights_only)  # gives clearer errors than torch
        return super().load_from_checkpoint(checkpoint_path, map_location, hparams_file, strict, weights_only, **options)

    @property
    def _ddp_params_and_buffers_to_ignore(self) -> list[str]:
        """Buffers that DDP must not broadcast from rank 0 at every step: those of each rank, and those that belong to the data."""
        saved = self.state_dict(keep_vars=True)
        return [*self.tables_of_rank, *(name for name, _ in self.named_buffers() if name not in saved)]

    def name_score(self, score: object) -> None:
        """Set the name of the metric.

        Raises:
            InputError: ``score`` is not a string. A Metric object would become a submodule, and the class's default metric would be logged.
        """
        if not isinstance(score, str):
            raise InputError(
                f"score is {score!r}: it must be a name, such as {type(self).score_name}; for a metric of torchmetrics override make_scores in a "
                "subclass of " + type(self).__name__
            )
        self.score_name = score

    def make_scores(self, score: Callable[[], Metric]) -> None:
        """Make the metric of each stage in ``scored``."""
        self.scores = nn.ModuleDict({stage: score() for stage in self.scored})

    def note_defaults(self, model: type[nn.Module]) -> None:
        """Add the default values of the model's options to the hyperparameters, so that a checkpoint describes the whole model."""
        for name, option in signature(model).parameters.items():
            if option.default is not option.empty:
                self.hparams.setdefault(name, option.default)

    def note_module(self, model: object) -> None:
        """Store the class name of a custom module in the hyperparameters; a checkpoint has only this name and the weights."""
        if not isinstance(model, nn.Module):
            raise InputError(
                f"model is {model!r}: it must be an nn.Module, which a checkpoint or a command line cannot hold; give the nn.Module in Python, "
                f"as {type(self).__name__}(model=...) or load_from_checkpoint(path, model=...)"
            )
        self.hparams["model"] = type(model).__name__

    @property
    def _datamodule(self) -> Any:
        """The data module of the run.

        Raises:
            InputError: it is not an instance of the task's ``data_class``.
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
        """Raise InputError if the trainer clips sparse gradients."""
        if self.trainer.gradient_clip_val and self.sparse_tables():
            raise InputError(
                "gradient_clip_val with embeddings: torch cannot clip their sparse gradients; leave it out, or make the gradients dense if the "
                "task has an option for it"
            )

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return Adam, fused on CUDA. Embeddings with sparse gradients get torch's ``SparseAdam``, which updates only the batch's rows."""
        options: dict[str, Any] = {"lr": self.hparams["lr"], "weight_decay": self.hparams["weight_decay"]}
        tables = self.sparse_tables()
        if not tables:
            return torch.optim.Adam(self.parameters(), **options, fused=may_fuse(self))
        known = set(map(id, tables))
        others = [parameter for parameter in self.parameters() if parameter.requires_grad and id(parameter) not in known]
        return DenseAndSparseAdam(others, tables, **options)

    def on_train_epoch_start(self) -> None:
        """Reset the epoch's metrics. They are kept at the end of an epoch, for a run that resumes in the middle of one."""
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
        """Evaluate a batch of this rank's share of the validation split."""
        self.evaluate("val", batch)

    def on_validation_epoch_end(self) -> None:
        """Log the loss and the metric over all ranks."""
        self._log("val", "val")

    def test_step(self, batch: Any, batch_idx: int) -> None:
        """Evaluate a batch of this rank's share of the test split."""
        self.evaluate("test", batch)

    def on_test_epoch_end(self) -> None:
        """Log the loss and the metric over all ranks."""
        self._log("test", "test")

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Compare the checkpoint's model with this one, before torch lists every tensor that differs.

        Raises:
            InputError: the checkpoint has another model.
        """
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
        changed = {name: self.hparams[name] for name in ("lr", "weight_decay") if name in theirs and theirs[name] != self.hparams[name]}
        if "lr" in changed and checkpoint.get("lr_schedulers"):
            raise InputError(
                f"lr is {changed['lr']}, but the checkpoint's scheduler sets it, starting from {theirs['lr']}: give the old lr"
            )
        for state in checkpoint.get("optimizer_states", []):
            for group in state["param_groups"]:
                group.update(changed)

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
        # The mean is repeated for each example, since torchmetrics takes no weights with nan_strategy disable.
        metric_of(self.losses, stage).update((total / len(y)).expand(len(y)))
        if stage in self.scores:
            metric_of(self.scores, stage).update(outputs, y)

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
            setattr(metric, name, state[key].to(old.device))
            metric._update_count = 1  # else the metric warns that compute is called before update

    def _figures(self) -> dict[str, tuple[Metric, str, Tensor]]:
        """Return the state tensors of the training metrics, as (metric, attribute, value) by name."""
        return {
            f"{kind}.{name}": (metric, name, value)
            for kind, metric in self._fit_metrics().items()
            for name, value in metric.metric_state.items()
            if isinstance(value, Tensor)
        }

    def _fit_metrics(self) -> dict[str, Metric]:
        return {name: metric_of(metrics, "fit") for name, metrics in (("loss", self.losses), ("score", self.scores)) if "fit" in metrics}

    def check_outputs(self, outputs: object, rows: int, columns: int) -> Tensor:
        """Return a model's output if it is a floating tensor of shape (``rows``, ``columns``). A subclass may use any model.

        Raises:
            InputError: the output is something else.
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
            self.log(f"{name}_{self.score_name}", metric_of(self.scores, stage).compute(), prog_bar=True)
        if stage != "fit":
            for metrics in (self.losses, self.scores):
                metric_of(metrics, stage).reset()
            for key in self.further:
                if key.startswith(f"{name}_"):
                    self.log(key, metric_of(self.further, key).compute())
                    metric_of(self.further, key).reset()


def may_fuse(module: LightningModule) -> bool | None:
    """Return the option ``fused`` of torch's optimisers: True on CUDA, else None, which lets torch decide.

    It is also None if Lightning clips gradients in mixed precision: a fused optimiser unscales gradients itself, so Lightning refuses to clip them
    before.
    """
    trainer = module._trainer
    clips = trainer is not None and trainer.gradient_clip_val and isinstance(trainer.precision_plugin, MixedPrecision)
    return True if module.device.type == "cuda" and not clips else None


def metric_of(metrics: nn.ModuleDict, stage: str) -> Metric:
    """Return the metric of a stage."""
    metric = metrics[stage]
    if not isinstance(metric, Metric):
        raise TypeError(f"{stage} is a {type(metric).__name__}, not a Metric")
    return metric
