"""Labels of independent items: the steps, the loss and the scores that their tasks share."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from hoptrain.trainers.models.layered import Chunk, address_seed, seed_generators
from hoptrain.trainers.tasks.items.feed import ItemBatch, ItemDataModule
from hoptrain.trainers.tasks.labelled import LabelMixin
from hoptrain.trainers.tasks.scored import may_fuse
from hoptrain.trainers.tasks.shared_data import SharedDataModule


class ItemClassifier(LabelMixin):
    """Trains ``model``, which maps a batch's ``x`` to (B, num_classes) scores.

    Logs ``train_loss``, ``train_acc``, ``val_loss``, ``val_acc``, ``test_loss`` and ``test_acc``, each over all ranks with every item counted once;
    or another score by its name.
    """

    data_class: ClassVar[type[SharedDataModule]] = ItemDataModule
    learns_from = "items"
    example = "item"

    def __init__(
        self, model: nn.Module, num_classes: int, multilabel: bool = False, metric: str = "acc", class_weight: str | None = None
    ) -> None:
        super().__init__(None)
        self.model = model
        self.define_labels(num_classes, multilabel, metric, class_weight)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam, with the weight decay apart from the gradient."""
        return torch.optim.AdamW(self.parameters(), lr=self.hparams["lr"], weight_decay=self.hparams["weight_decay"], fused=may_fuse(self))

    def forward(self, batch: ItemBatch) -> Tensor:
        """Scores of the batch's items, (B, num_classes)."""
        logits: Tensor = self.model(batch.x)
        return logits

    def training_step(self, batch: ItemBatch, batch_idx: int) -> Tensor:
        """Loss of one batch, scaled so that the ranks' average is the mean over all items of the step."""
        if batch.address is not None:
            seed_generators(address_seed(*batch.address), self.device)  # for dropout
        total = self.compute_loss("fit", self(batch), batch.y)
        self.log("train_loss_step", total.detach() / len(batch.y), batch_size=len(batch.y))
        return total * (self.trainer.world_size / batch.num_step_items)

    chunked_step = training_step

    def make_chunks(self, batch: ItemBatch) -> list[Chunk]:
        """What a pipeline moves for a batch: its items in runs that are equal but for one."""
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
        """As ``make_chunks``; there are none of an empty batch."""
        return self.make_chunks(batch) if len(batch.y) else []

    def example_chunk(self, num_seeds: int) -> Chunk:
        """A chunk of the training split's first items: layers are timed with it."""
        module = self._datamodule
        x, y = module.collate(module.data.splits["train"][:num_seeds], None)
        return self._chunk(ItemBatch(x.to(self.device), y.to(self.device), len(y)), slice(0, len(y)), 0)

    def chunk_loss(self, logits: Tensor, target: tuple[Tensor, int]) -> Tensor:
        """A chunk's share of the mean loss over all items of the step; the last stage's metrics take its scores."""
        y, num_step_items = target
        return self.compute_loss("fit", logits, y) / num_step_items

    def predict_step(self, batch: ItemBatch, batch_idx: int) -> Tensor:
        """Scores of a batch of this rank's share, (B, num_classes) float32 on the CPU."""
        logits: Tensor = self(batch)
        return logits.float().cpu()

    def evaluate(self, stage: str, batch: ItemBatch) -> None:
        """A batch of this rank's share."""
        if len(batch.y):
            self.compute_loss(stage, self(batch), batch.y)
