"""What all tasks share: loss and score of each stage, over all ranks, with every example counted once."""

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
"""Arguments that a checkpoint may have otherwise: they change no weight's shape; a module's name is none of its weights."""


class ScoredModule(LightningModule):
    """Logs ``train_loss``, ``val_loss`` and ``test_loss`` and likewise the score, ``val_acc`` for instance, at the end of an epoch.

    Attributes:
        data_class: the data module that the task runs with.
        learns_from: what that holds, for messages.
        score_name: under which a stage's score is logged, behind the stage's own name.
        score_title: what the score is, for people.
        scored: the stages that have a score.
        predicted: what ``hoptrain predict`` writes, for people.
        further: metrics that are logged beside the score, by the name under which they are, as ``val_auc``; a subclass makes and updates them.
        tables_of_rank: buffers of a checkpoint that each rank keeps for itself.
    """

    data_class: ClassVar[type[SharedDataModule]]
    learns_from = "graph"
    score_name = "acc"
    score_title = "accuracy"
    scored: Sequence[str] = STAGES
    predicted: str = "all scores"
    tables_of_rank: Sequence[str] = ()

    def __init__(self, score: Callable[[], Metric] | None) -> None:
        """Make the metrics. Without a ``score`` yet, ``make_scores`` follows."""
        super().__init__()
        # By default it would wait for the device at each loss to see whether it is a number, and leave out one that is none.
        self.losses: nn.ModuleDict = nn.ModuleDict({stage: MeanMetric(nan_strategy="disable") for stage in STAGES})
        self.scores: nn.ModuleDict = nn.ModuleDict()
        self.further: nn.ModuleDict = nn.ModuleDict()
        if score is not None:
            self.make_scores(score)
        self._counted: list[tuple[Tensor, Tensor, Tensor]] = []  # of the batch under way

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
        """Build the task from a checkpoint, as Lightning does, once the file is known to be a whole checkpoint.

        Raises:
            InputError: the file is damaged, holds code, or is no checkpoint.
        """
        if isinstance(checkpoint_path, str | os.PathLike) and "://" not in str(checkpoint_path):
            CheckpointFiles().load_checkpoint(os.fspath(checkpoint_path), "cpu", weights_only)  # Lightning's own errors are torch's
        return super().load_from_checkpoint(checkpoint_path, map_location, hparams_file, strict, weights_only, **options)

    @property
    def _ddp_params_and_buffers_to_ignore(self) -> list[str]:
        """What DDP leaves alone, which by default would send rank 0's buffers to the others at every step: those of no checkpoint belong to the data."""
        saved = self.state_dict(keep_vars=True)
        return [*self.tables_of_rank, *(name for name, _ in self.named_buffers() if name not in saved)]

    def name_score(self, score: object) -> None:
        """Take the name of the score.

        Raises:
            InputError: it is no name. A metric in its place would become a submodule, and the class's own ``score_name`` be logged.
        """
        if not isinstance(score, str):
            raise InputError(
                f"score is {score!r}: it takes a name, such as {type(self).score_name}; for a metric of torchmetrics override make_scores in a "
                "subclass of " + type(self).__name__
            )
        self.score_name = score

    def make_scores(self, score: Callable[[], Metric]) -> None:
        """Make the metric of each stage that has a score."""
        self.scores = nn.ModuleDict({stage: score() for stage in self.scored})

    def note_defaults(self, model: type[nn.Module]) -> None:
        """Note the options of the model that were not given, beside those that were, so that a checkpoint tells the whole model."""
        for name, option in signature(model).parameters.items():
            if option.default is not option.empty:
                self.hparams.setdefault(name, option.default)

    def note_module(self, model: object) -> None:
        """Note the module's name: a checkpoint has no more of it, beside its weights."""
        if not isinstance(model, nn.Module):
            raise InputError(
                f"model is {model!r}: a checkpoint has a module's weights and its name, a command line no module; give the nn.Module itself, in "
                f"Python, as {type(self).__name__}(model=...) or load_from_checkpoint(path, model=...)"
            )
        self.hparams["model"] = type(model).__name__

    @property
    def _datamodule(self) -> Any:
        """The run's data module.

        Raises:
            InputError: it is not of the task's ``data_class``.
        """
        datamodule = getattr(self.trainer, "datamodule", None)
        if not isinstance(datamodule, self.data_class):
            raise InputError(
                f"{type(self).__name__} needs the {self.learns_from} that it learns from: "
                f"run it with trainer.fit(model, datamodule={self.data_class.__name__}(...))"
            )
        return datamodule

    def seed_dropout(self, batch: SampledBatch) -> None:
        """Seed torch by the address of a batch, so that a resumed run drops the units that an uninterrupted one drops."""
        seed_generators(address_seed(batch.seed, batch.epoch, batch.batch), self.device)

    def sparse_tables(self) -> list[nn.Parameter]:
        """Return the embeddings whose gradients are sparse."""
        tables = (module for module in self.modules() if isinstance(module, nn.Embedding) and module.sparse)
        return [weight for table in tables for weight in table.parameters()]

    def setup(self, stage: str) -> None:
        """Raise if the trainer clips sparse gradients."""
        if self.trainer.gradient_clip_val and self.sparse_tables():
            raise InputError(
                "gradient_clip_val with embeddings: their gradients are sparse, and torch does not clip such; leave it out, or make them dense "
                "where the task has an option for it"
            )

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return Adam, on CUDA in one kernel; embeddings with sparse gradients get torch's ``SparseAdam``, which updates a batch's rows alone."""
        options: dict[str, Any] = {"lr": self.hparams["lr"], "weight_decay": self.hparams["weight_decay"]}
        tables = self.sparse_tables()
        if not tables:
            return torch.optim.Adam(self.parameters(), **options, fused=may_fuse(self))
        known = set(map(id, tables))
        others = [parameter for parameter in self.parameters() if parameter.requires_grad and id(parameter) not in known]
        return DenseAndSparseAdam(others, tables, **options)

    def on_train_epoch_start(self) -> None:
        """Begin the epoch's figures. Not at the last one's end: a run that ended in mid-epoch may be continued with them."""
        self._counted.clear()
        for metric in self._fit_metrics().values():
            metric.reset()

    def on_train_batch_end(self, *_: Any) -> None:
        """Take over what the batch counted, where nobody else has done it."""
        self.commit()

    def on_train_epoch_end(self) -> None:
        """Log the epoch's loss and score over all ranks."""
        self._log("fit", "train")

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Evaluate a batch of this rank's share."""
        self.evaluate("val", batch)

    def on_validation_epoch_end(self) -> None:
        """Log loss and score over all ranks."""
        self._log("val", "val")

    def test_step(self, batch: Any, batch_idx: int) -> None:
        """Evaluate a batch of this rank's share."""
        self.evaluate("test", batch)

    def on_test_epoch_end(self) -> None:
        """Log loss and score over all ranks."""
        self._log("test", "test")

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Compare the checkpoint's model with this one, before torch lists every tensor that does not fit.

        Raises:
            InputError: it is another one.
        """
        theirs, remedy = checkpoint.get("hyper_parameters", {}), "use the data and the configuration that it was trained with"
        for name in sorted(set(theirs) & set(self.hparams) - _FREE):
            if theirs[name] != self.hparams[name]:
                raise InputError(f"the checkpoint's model has {name} {theirs[name]}, this one {self.hparams[name]}: {remedy}")
        other = sorted(checkpoint["state_dict"].keys() ^ self.state_dict().keys())
        if other:
            raise InputError(f"the checkpoint is of another kind of model: {other[0]} is in one of the two only; {remedy}, its task too")
        self._set_rates(checkpoint, theirs)

    def _set_rates(self, checkpoint: dict[str, Any], theirs: dict[str, Any]) -> None:
        """A run that goes on with another learning rate or weight decay means it: the optimiser's state would bring the old ones back."""
        changed = {name: self.hparams[name] for name in ("lr", "weight_decay") if name in theirs and theirs[name] != self.hparams[name]}
        if "lr" in changed and checkpoint.get("lr_schedulers"):
            raise InputError(
                f"the checkpoint goes on with lr {theirs['lr']} by its scheduler, not with {changed['lr']}: leave lr as it was"
            )
        for state in checkpoint.get("optimizer_states", []):
            for group in state["param_groups"]:
                group.update(changed)

    @abstractmethod
    def evaluate(self, stage: str, batch: Any) -> None:
        """``count`` the batch's loss and score."""

    def count(self, stage: str, outputs: Tensor, y: Tensor, total: Tensor) -> None:
        """Take a batch's ``total`` loss (a sum over its examples), and the score of ``outputs`` where the stage has one.

        In training it counts once the batch is done.
        """
        counted = (outputs.detach(), y, total.detach())
        if stage == "fit":
            self._counted.append(counted)
        else:
            self._update(stage, *counted)

    def _update(self, stage: str, outputs: Tensor, y: Tensor, total: Tensor) -> None:
        # The mean once for each example: with nan_strategy disable torchmetrics takes no weights.
        metric_of(self.losses, stage).update((total / len(y)).expand(len(y)))
        if stage in self.scores:
            metric_of(self.scores, stage).update(outputs, y)

    def commit(self) -> None:
        """Count what the batch that is done gave; see ``hoptrain.trainers.resume.exact_resume.Stateful``."""
        for counted in self._counted:
            self._update("fit", *counted)
        self._counted.clear()

    def rank_state(self) -> dict[str, Tensor]:
        """This rank's figures of the epoch so far."""
        return {key: value for key, (_, _, value) in self._figures().items()}

    def load_rank_state(self, state: dict[str, Tensor]) -> None:
        """Take the figures back; a batch that was interrupted in this process has none."""
        self._counted.clear()
        for key, (metric, name, old) in self._figures().items():
            setattr(metric, name, state[key].to(old.device))
            metric._update_count = 1  # else the metric warns of figures without an update

    def _figures(self) -> dict[str, tuple[Metric, str, Tensor]]:
        """The tensors of the training's metrics, by name: metric, attribute and value."""
        return {
            f"{kind}.{name}": (metric, name, value)
            for kind, metric in self._fit_metrics().items()
            for name, value in metric.metric_state.items()
            if isinstance(value, Tensor)
        }

    def _fit_metrics(self) -> dict[str, Metric]:
        return {name: metric_of(metrics, "fit") for name, metrics in (("loss", self.losses), ("score", self.scores)) if "fit" in metrics}

    def checked(self, outputs: object, rows: int, columns: int) -> Tensor:
        """What the model returned, if it is ``rows`` rows of ``columns`` scores. A subclass may bring any model.

        Raises:
            InputError: it is something else.
        """
        if isinstance(outputs, Tensor) and outputs.shape == (rows, columns) and outputs.is_floating_point():
            return outputs
        found = f"{outputs.dtype} of shape {tuple(outputs.shape)}" if isinstance(outputs, Tensor) else type(outputs).__name__
        raise InputError(
            f"the model of {type(self).__name__} returned {found}: it gives floating scores of shape ({rows}, {columns}), a row for each "
            "example of the batch; correct its forward"
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
    """The option ``fused`` of torch's optimisers: True on CUDA, None (torch decides) elsewhere and where Lightning clips gradients in mixed precision.

    A fused optimiser unscales gradients itself, so Lightning's mixed precision refuses to clip them before.
    """
    trainer = module._trainer
    clips = trainer is not None and trainer.gradient_clip_val and isinstance(trainer.precision_plugin, MixedPrecision)
    return True if module.device.type == "cuda" and not clips else None


def metric_of(metrics: nn.ModuleDict, stage: str) -> Metric:
    """A stage's metric."""
    metric = metrics[stage]
    if not isinstance(metric, Metric):
        raise TypeError(f"{stage} holds a {type(metric).__name__}, not a metric")
    return metric
