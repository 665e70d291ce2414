"""Base class of tasks that learn labels of independent items: steps, loss, metrics and pipeline chunks."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from hoptrain.trainers.metrics.own import AnyLoss, AnyMetric
from hoptrain.trainers.models.layered import Chunk, address_seed, seed_generators
from hoptrain.trainers.tasks.items.feed import ItemBatch, ItemDataModule
from hoptrain.trainers.tasks.labelled import LabelMixin
from hoptrain.trainers.tasks.scored import LRSchedulerCallable, OptimizerCallable, may_fuse
from hoptrain.trainers.tasks.shared_data import SharedDataModule


class ItemClassifier(LabelMixin):
    """A base LightningModule that trains ``model``, which maps a batch's ``x`` to logits (B, num_classes).

    It logs ``train_loss``, ``train_acc``, ``val_loss``, ``val_acc``, ``test_loss`` and ``test_acc``, over all ranks, with every item counted once.
    Another metric is logged under its own name.
    """

    data_class: ClassVar[type[SharedDataModule]] = ItemDataModule
    learns_from = "items"
    example = "item"

    def __init__(
        self,
        model: nn.Module,
        num_classes: int,
        multilabel: bool = False,
        *,
        metric: AnyMetric = "acc",
        class_weight: Literal["balanced"] | None = None,
        loss: AnyLoss | None = None,
        optimizer: OptimizerCallable | None = None,
        lr_scheduler: LRSchedulerCallable | None = None,
    ) -> None:
        """Store the model, and define labels, metric and loss.

        Args:
            model: module that maps a batch's ``x`` to outputs.
            num_classes: number of classes, labels or targets.
            multilabel: whether an item may have several labels.
            metric: metric to log. For classes: acc, macro_f1 or auc. For several labels: acc or micro_f1, macro_f1, auc or ap. For regression: rmse, mae or
                r2. Or a metric or MetricCollection of torchmetrics.
            class_weight: balanced weights the loss of each class inversely to its frequency in the training split. By default all classes count equally.
            loss: your own loss instead of the task's: a loss of torch.nn, or a function of outputs and targets.
            optimizer: your own optimiser: a function of the parameters, such as a class of torch.optim. Then lr and weight_decay are not used.
            lr_scheduler: learning rate schedule, stepped after each epoch: a function of the optimiser, such as a class of torch.optim.lr_scheduler.
        """
        super().__init__(loss=loss, optimizer=optimizer, lr_scheduler=lr_scheduler)
        self.model = model
        self.define_labels(num_classes, multilabel, metric, class_weight)

    def setup(self, stage: str) -> None:
        """Compare the model's labels with those of the data.

        Raises:
            InputError: the data have labels of another kind, or more classes than the model.
        """
        super().setup(stage)
        data = self._datamodule.data
        self.match_labels(data.name, data.y, self._datamodule.num_classes, data.splits.get("train"))

    def default_optimizer(self) -> torch.optim.Optimizer:
        """Return AdamW, whose weight decay is decoupled from the gradient."""
        return torch.optim.AdamW(self.parameters(), lr=self.hparams["lr"], weight_decay=self.hparams["weight_decay"], fused=may_fuse(self))

    def forward(self, batch: ItemBatch) -> Tensor:
        """Compute logits (B, num_classes) of the batch's items."""
        logits: Tensor = self.model(batch.x)
        return logits

    def training_step(self, batch: ItemBatch, batch_idx: int) -> Tensor:
        """Return the loss of one batch, scaled so that the ranks' average is the mean over all items of the step."""
        if batch.address is not None:
            seed_generators(address_seed(*batch.address), self.device)  # for dropout
        total = self.compute_loss("fit", self(batch), batch.y)
        self.log_step(total / len(batch.y), len(batch.y))
        return total * (self.trainer.world_size / batch.num_step_items)

    chunked_step = training_step

    def make_chunks(self, batch: ItemBatch) -> list[Chunk]:
        """Divide a batch into the pipeline's chunks of contiguous items, whose sizes differ by at most one."""
        strategy: Any = self.trainer.strategy
        number = min(strategy.plan.chunks, len(batch.y))
        bounds = [part[[0, -1]] + [0, 1] for part in np.array_split(np.arange(len(batch.y)), number)]
        return [self._chunk(batch, slice(*map(int, ends)), number) for number, ends in enumerate(bounds)]

    def _chunk(self, batch: ItemBatch, items: slice, number: int) -> Chunk:
        num_layers: Any = self.model.num_layers
        return Chunk(
            rows=[items.stop - items.start] * (num_layers + 1),
            inputs=[()] * num_layers,
            x=batch.x[items],
            target=(batch.y[items], batch.num_step_items),
            seed=None if batch.address is None else address_seed(*batch.address, number),
        )

    def chunks_to_predict(self, batch: ItemBatch, is_first: bool) -> list[Chunk]:
        """Return the chunks of a batch; an empty batch has none."""
        return self.make_chunks(batch) if len(batch.y) else []

    def example_chunk(self, num_seeds: int) -> Chunk:
        """Return a chunk of the first ``num_seeds`` training items, for timing the layers."""
        module = self._datamodule
        x, y = module.collate(module.data.splits["train"][:num_seeds], None)
        return self._chunk(ItemBatch(x.to(self.device), y.to(self.device), len(y)), slice(0, len(y)), 0)

    def chunk_loss(self, logits: Tensor, target: tuple[Tensor, int]) -> Tensor:
        """Return a chunk's share of the mean loss over all items of the step, and update the last stage's metrics."""
        y, num_step_items = target
        return self.compute_loss("fit", logits, y) / num_step_items

    def predict_step(self, batch: ItemBatch, batch_idx: int) -> Tensor:
        """Return logits (B, num_classes) float32 on the CPU for a batch."""
        logits: Tensor = self(batch)
        return logits.float().cpu()

    def evaluate(self, stage: str, batch: ItemBatch) -> None:
        """Compute the loss of a batch, and update the stage's metrics."""
        if len(batch.y):
            self.compute_loss(stage, self(batch), batch.y)
