"""Which events come next: a temporal graph network, trained and evaluated in the order of time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hoptrain.engine import InputError
from hoptrain.samplers import MiniBatch
from hoptrain.trainers.models.ranks import ranks_among
from hoptrain.trainers.models.tgn import TGN, EventMemory
from hoptrain.trainers.scores.links import TITLES, PooledScore, RankScore
from hoptrain.trainers.tasks import TASKS
from hoptrain.trainers.tasks.events.data import EventDataModule
from hoptrain.trainers.tasks.graph_task import seed_dropout
from hoptrain.trainers.tasks.options import check_training
from hoptrain.trainers.tasks.scored import STAGES, ScoredModule, metric_of

_FURTHER = {"auc": PooledScore, "mrr": RankScore}
"""The scores that are logged beside the average precision."""


class EventPredictor(ScoredModule):
    """A ``TGN`` that tells an event from the pairs of its source with other destinations.

    The memory begins anew with every epoch and takes in each step's events once they were scored; every rank takes in those of all ranks, so
    that all have the same memory without a word. It is part of a checkpoint. Evaluation goes on from a copy of the training's memory, which
    first takes in what lies between (a test after a training: the validation's events), and leaves no trace.

    Logs the losses, and for validation and test ``ap``, the average precision of events and one negative each, ``auc``, the area under the ROC
    curve of the same, and ``mrr``, the mean of 1 / rank of an event among itself and all of its negatives; of equal scores half are above.

    Examples:
        >>> import numpy as np
        >>> from pytorch_lightning import Trainer
        >>> from hoptrain import EventDataModule, EventPredictor, Events
        >>> events = Events(src=np.arange(60) % 7, dst=7 + np.arange(60) % 5, t=np.arange(60))
        >>> data = EventDataModule(events, num_neighbors=3, batch_size=20, num_workers=0, seed=1)
        >>> model = EventPredictor(data.num_nodes, data.message_channels, memory_channels=8, time_channels=8, hidden_channels=8)
        >>> trainer = Trainer(fast_dev_run=2, enable_progress_bar=False, enable_model_summary=False)
        >>> trainer.fit(model, data)
        >>> sorted(trainer.callback_metrics)
        ['train_loss', 'val_ap', 'val_auc', 'val_loss', 'val_mrr']
    """

    score_name: str = TASKS["events"].score
    score_title: str = TITLES[score_name]
    scored: tuple[str, ...] = STAGES[1:]

    def __init__(
        self,
        num_nodes: int,
        message_channels: int,
        memory_channels: int = 100,
        time_channels: int = 100,
        hidden_channels: int = 100,
        heads: int = 2,
        dropout: float = 0.1,
        lr: float = 1e-4,
        weight_decay: float = 0.0,
    ) -> None:
        """Build the model. The first two arguments come from the data when the command line is used.

        Args:
            num_nodes: vertices.
            message_channels: numbers that come with an event.
            memory_channels: numbers that are kept of a vertex.
            time_channels: width of an encoded time.
            hidden_channels: width of the vertices' vectors, over all heads together.
            heads: of the attention.
            dropout: share of the attention that is dropped.
            lr: Adam's learning rate.
            weight_decay: Adam's L2 penalty.

        Raises:
            InputError: numbers that have no meaning.
        """
        check_training(dropout=dropout, lr=lr, weight_decay=weight_decay)
        sizes = {"memory_channels": memory_channels, "time_channels": time_channels, "hidden_channels": hidden_channels, "heads": heads}
        if min(sizes.values()) < 1 or hidden_channels % heads:
            raise InputError(f"{sizes}: all are at least 1, and the heads share hidden_channels out evenly; correct them")
        super().__init__(partial(PooledScore, self.score_name))
        self.further.update({f"{stage}_{name}": kind(name) for stage in self.scored for name, kind in _FURTHER.items()})
        self.save_hyperparameters()
        self.model: TGN = TGN(num_nodes, message_channels, **sizes, dropout=dropout)
        # Every rank computes the same memory by itself; by default DDP would send rank 0's to the others, at every step.
        self.tables_of_rank: Sequence[str] = [f"model.memory.{name}" for name, _ in self.model.memory.named_buffers()]
        self._evaluated: tuple[EventMemory] | None = None  # in a tuple, lest it become part of the model

    def setup(self, stage: str) -> None:
        """Give the memory the events.

        Raises:
            InputError: another kind of data, or half the precision.
        """
        if not isinstance(self._datamodule, EventDataModule):
            raise InputError(
                "EventPredictor needs the events that it learns from: run it with trainer.fit(model, datamodule=EventDataModule(...))"
            )
        if self.trainer.precision != "32-true":
            raise InputError(f"trainer.precision is {self.trainer.precision}: times need all digits, and a memory adds up; use 32-true")
        self.model.memory.events = self._datamodule.tensors(self.device)

    @property
    def _datamodule(self) -> Any:
        return getattr(self.trainer, "datamodule", None)

    def forward(self, batch: MiniBatch) -> Tensor:
        """Scores of the batch's pairs, (P,), by the training's memory."""
        scores: Tensor = self.model(batch, self.model.memory)
        return scores

    def training_step(self, batch: MiniBatch, batch_idx: int) -> Tensor:
        """Loss of one batch, scaled so that the ranks' average is the mean over all pairs of the step."""
        seed_dropout(batch, self.device)
        memory = self.model.memory
        begin, end = batch.extra["step"].tolist()
        if begin == 0:
            memory.reset_state()
        scores, labels = self(batch), batch.extra["labels"]
        total = F.binary_cross_entropy_with_logits(scores, labels, reduction="sum")
        self.count("fit", scores, labels, total)
        with torch.no_grad():
            memory.take_in(begin, end)
        loss: Tensor = total * (self.trainer.world_size / (2 * (end - begin)))
        return loss

    def on_validation_epoch_start(self) -> None:
        """Go on from a copy of the training's memory."""
        self._evaluated = (self.model.memory.settled(),)

    on_test_epoch_start = on_validation_epoch_start

    def evaluate(self, stage: str, batch: MiniBatch) -> None:
        """This rank's part of a step."""
        if self._evaluated is None:
            raise RuntimeError("a batch before the evaluation's beginning: run it with trainer.validate or trainer.test")
        (memory,), (begin, end) = self._evaluated, batch.extra["step"].tolist()
        size = self._datamodule.step_size
        for first in range(int(memory.num_taken), begin, size):
            memory.take_in(first, min(first + size, begin))
        scores, labels = self.model(batch, memory), batch.extra["labels"]
        memory.take_in(begin, end)
        number = int(labels.sum())
        events, others = scores[:number], scores[number:].view(number, -1)
        one = torch.cat([events, others[:, 0]])
        halves = torch.cat([labels[:number], torch.zeros_like(events)])
        self.count(stage, one, halves, F.binary_cross_entropy_with_logits(one, halves, reduction="sum"))
        metric_of(self.further, f"{stage}_auc").update(one, halves)
        metric_of(self.further, f"{stage}_mrr").update(ranks_among(events, others), labels[:number])

    def on_validation_epoch_end(self) -> None:
        """Log loss and scores over all ranks, and let the memory's copy go."""
        super().on_validation_epoch_end()
        self._evaluated = None

    def on_test_epoch_end(self) -> None:
        """Log loss and scores over all ranks, and let the memory's copy go."""
        super().on_test_epoch_end()
        self._evaluated = None
