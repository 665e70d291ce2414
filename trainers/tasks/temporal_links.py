"""Temporal link prediction with a temporal graph network (TGN), trained and evaluated on events in the order of time."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from hoptrain.engine import Dataset, InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.datasets.events import Events, load_events
from hoptrain.engine.queue.options import DEFAULTS, WorkerOptions
from hoptrain.samplers import MiniBatch, SampleLoader
from hoptrain.samplers.wrappers.events import EventSampler, EventSchedule
from hoptrain.trainers.metrics.links import TITLES, PooledScore, RankScore, check_ranked
from hoptrain.trainers.metrics.own import AnyLoss, AnyMetric, row_losses
from hoptrain.trainers.models.ranks import ranks_among
from hoptrain.trainers.models.tgn import TGN, EventMemory, EventTensors
from hoptrain.trainers.tasks import TASKS
from hoptrain.trainers.tasks.options import check_training
from hoptrain.trainers.tasks.scored import STAGES, LRSchedulerCallable, OptimizerCallable, ScoredModule, metric_of
from hoptrain.trainers.tasks.shared_data import SharedDataModule, open_data, share_of

_LOGGED = {"ap": PooledScore, "auc": PooledScore, "mrr": RankScore}
"""Name of a metric that is always logged -> its class."""


class EventDataModule(SharedDataModule):
    """A data module that yields the events of training, validation and test in the order of time.

    Each rank gets a contiguous part of the events of every step. Only events before the step count as neighbours.

    Examples:
        >>> import numpy as np
        >>> from hoptrain import EventDataModule, Events
        >>> events = Events(src=np.arange(60) % 7, dst=7 + np.arange(60) % 5, t=np.arange(60))
        >>> data = EventDataModule(events, num_neighbors=3, batch_size=20, num_workers=0, seed=1)
        >>> len(data.train_dataloader())  # 42 training events, 20 a step; 9 events are for validation, 9 for the test
        3
    """

    data: Events

    def __init__(
        self,
        events: str | Events,
        root: str | None = None,
        val_ratio: float | None = None,
        test_ratio: float | None = None,
        num_neighbors: int = 10,
        num_negatives: int = 100,
        batch_size: int = 200,
        num_workers: int = 2,
        shuffle: bool = False,
        seed: int | None = None,
        worker_options: WorkerOptions = DEFAULTS,
    ) -> None:
        """Open the events and split them by time.

        Args:
            events: name of a .npz file with src, dst and t, or in Python ``Events``.
            root: folder with the file; by default $HOPTRAIN_DATA.
            val_ratio: fraction of the events for validation, the latest ones before those of the test. By default that of the data's split, or 0.15.
            test_ratio: fraction of the events for the test, the latest ones. By default that of the data's split, or 0.15.
            num_neighbors: number of a node's latest events to read as its neighbours.
            num_negatives: number of negatives of each event in validation and test; in training there is always one.
            batch_size: number of events per rank and step.
            num_workers: sampler processes per rank for training; 0 samples in the training process.
            shuffle: must be false, since the node memory is updated in the order of time.
            seed: seed of the negatives; by default that of seed_everything.
            worker_options: options of the queue between the sampler processes and the trainer.

        Raises:
            InputError: events are invalid, ratios are given for data with a split, or shuffle is true; see also ``Events.divided``.
        """
        if shuffle:
            raise InputError("shuffle is True: it must be false, since the memory is updated in the order of time; leave it out")
        super().__init__(batch_size, seed)
        data = open_data(events, load_events, root=root)
        if data.ends is None:
            data = data.divided(0.15 if val_ratio is None else val_ratio, 0.15 if test_ratio is None else test_ratio)
        elif val_ratio is not None or test_ratio is not None:
            raise InputError(f"val_ratio is {val_ratio} and test_ratio {test_ratio}: {data.name} has its own split; leave them out")
        self.data = data
        self.num_workers: int = num_workers
        self.num_negatives: int = num_negatives
        self._queue = worker_options
        self._graph = Dataset(graph=data.graph(), name=data.name, validate=False)
        self._samplers = {name: EventSampler(data, num_neighbors, 1 if name == "train" else num_negatives) for name in data.splits}

    @property
    def num_nodes(self) -> int:
        """Number of nodes, V."""
        return self.data.num_nodes

    @property
    def message_channels(self) -> int:
        """Width of a message, D; at least 1, since PyG's memory needs messages."""
        return max(1, self.data.message_channels)

    @property
    def step_size(self) -> int:
        """Number of events of a step over all ranks."""
        return self.batch_size * self.world_size

    def tensors(self, device: torch.device) -> EventTensors:
        """Return all events as tensors on ``device``, for an ``EventMemory``. Events without messages get a message of one zero."""
        messages = self.data.messages
        src, dst, t = (torch.from_numpy(column).to(device) for column in (self.data.src, self.data.dst, self.data.t))
        rows = torch.zeros(len(t), 1) if messages is None else torch.from_numpy(messages)
        return EventTensors(src, dst, t, rows.to(device))

    def make_loader(self, rank: int, world_size: int, seed: int) -> SampleLoader[MiniBatch]:
        """Return the training loader of a rank."""
        return self._loader("train", rank, world_size, seed, self.num_workers)

    def val_dataloader(self) -> SampleLoader[MiniBatch] | list[MiniBatch]:
        """Return a loader of this rank's part of every step of the validation events; an empty list if there are none."""
        return self._evaluated("val") if "val" in self.data.splits else []

    def test_dataloader(self) -> SampleLoader[MiniBatch]:
        """Return a loader of this rank's part of every step of the test events."""
        return self._evaluated("test")

    def predict_dataloader(self) -> None:
        """Raise InputError: prediction is undefined, since logits depend on the time.

        Raises:
            InputError: always.
        """
        raise InputError("predict with events: a pair's logit depends on the time, which predict lacks; use test")

    def _evaluated(self, split: str) -> SampleLoader[MiniBatch]:
        if split not in self.data.splits:
            raise InputError(f"{self.data.name} has no {split} events: its splits are {', '.join(self.data.splits)}; give {split}_ratio")
        loader = self._loader(split, *((0, 1) if self.trainer is None else share_of(self.trainer)), self.seed, 0)
        loader.repeats = True  # every evaluation uses the same negatives
        return loader

    def _loader(self, split: str, rank: int, world_size: int, seed: int, num_workers: int) -> SampleLoader[MiniBatch]:
        numbers: Array = self.data.splits[split]
        schedule = EventSchedule(items=numbers, batch_size=self.batch_size, rank=rank, world_size=world_size, shuffle=False, seed=seed)
        sampler = self._samplers[split].prepare(self._graph.graph, numbers)
        return SampleLoader(
            self._graph, sampler, schedule=schedule, num_workers=num_workers, worker_options=self._queue if num_workers else DEFAULTS
        )


class EventPredictor(ScoredModule):
    """A LightningModule with a ``TGN``, which learns to distinguish an event from pairs of its source with other destinations.

    The node memory is reset at the start of every epoch, and reads the events of a step after their logits have been computed. Every rank reads the
    events of all ranks, so all have the same memory without communication. A checkpoint stores the memory. Evaluation uses a copy of the memory, which
    first reads the events in between (for a test after training, the validation events), so the memory of the training does not change.

    The task logs the losses, and three metrics of validation and test. ``ap`` is the average precision over events and one negative each. ``auc`` is
    the area under the ROC curve of the same pairs. ``mrr`` is the mean of 1 / rank of an event among itself and all of its negatives; half of the ties
    rank above it. A custom loss or metric gets logits and labels (1 for events) of the events and of one negative each.

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
        ['train_loss', 'train_loss_step', 'val_ap', 'val_auc', 'val_loss', 'val_mrr']
    """

    data_class = EventDataModule
    learns_from = "events"
    score_name: str = TASKS["temporal_links"].metric
    score_title = TITLES[score_name]
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
        metric: AnyMetric = TASKS["temporal_links"].metric,
        loss: AnyLoss | None = None,
        optimizer: OptimizerCallable | None = None,
        lr_scheduler: LRSchedulerCallable | None = None,
    ) -> None:
        """Build the model. On the command line, the first two arguments come from the data.

        Args:
            num_nodes: number of nodes.
            message_channels: width of an event's message.
            memory_channels: width of a node's memory.
            time_channels: width of the time encoding.
            hidden_channels: width of the nodes' vectors, summed over all attention heads.
            heads: number of attention heads.
            dropout: dropout probability of attention weights.
            lr: Adam's learning rate.
            weight_decay: Adam's L2 penalty.
            metric: metric that selects the best checkpoint: ap, auc, mrr or hits@K; or a metric or MetricCollection of torchmetrics.
            loss: your own loss instead of the binary cross-entropy: a loss of torch, or a function of the pairs' logits and labels.
            optimizer: your own optimiser: a function of the parameters, such as a class of torch.optim. Then lr and weight_decay are not used.
            lr_scheduler: learning rate schedule, stepped after each epoch: a function of the optimiser, such as a class of torch.optim.lr_scheduler.

        Raises:
            InputError: a number is out of range, or the metric is unknown.
        """
        check_training(dropout=dropout, lr=lr, weight_decay=weight_decay)
        sizes = {"memory_channels": memory_channels, "time_channels": time_channels, "hidden_channels": hidden_channels, "heads": heads}
        if min(sizes.values()) < 1 or hidden_channels % heads:
            raise InputError(f"{sizes}: all must be at least 1, and hidden_channels a multiple of heads; change them")
        super().__init__(loss=loss, optimizer=optimizer, lr_scheduler=lr_scheduler)
        self.define_metric(metric)
        if isinstance(metric, str):
            self.score_title = TITLES[metric] if metric in ("ap", "auc") else check_ranked(metric)
        self._is_ranked = not self.has_own_metric and self.score_name not in ("ap", "auc")
        self.make_scores(lambda: (RankScore if self._is_ranked else PooledScore)(self.score_name))
        others = {name: kind for name, kind in _LOGGED.items() if name != self.score_name}
        self.further.update({f"{stage}_{name}": kind(name) for stage in self.scored for name, kind in others.items()})
        self.save_hyperparameters()
        self.model: TGN = TGN(num_nodes, message_channels, **sizes, dropout=dropout)
        # Every rank computes the same memory itself, so DDP need not broadcast rank 0's buffers at every step.
        self.tables_of_rank: Sequence[str] = [f"model.memory.{name}" for name, _ in self.model.memory.named_buffers()]
        self._evaluated: tuple[EventMemory] | None = None  # in a tuple, so that it is not registered as a submodule

    def setup(self, stage: str) -> None:
        """Pass the events of the data module to the node memory.

        Raises:
            InputError: the data module is of another class, or the precision is not 32-true.
        """
        super().setup(stage)
        module: EventDataModule = self._datamodule
        if self.trainer.precision != "32-true":
            raise InputError(f"trainer.precision is {self.trainer.precision}: times and memory need full precision; use 32-true")
        self.model.memory.events = module.tensors(self.device)

    def forward(self, batch: MiniBatch) -> Tensor:
        """Compute logits (P,) of the batch's pairs from the memory of the training."""
        scores: Tensor = self.model(batch, self.model.memory)
        return scores

    def training_step(self, batch: MiniBatch, batch_idx: int) -> Tensor:
        """Return the loss of one batch, scaled so that the ranks' average is the mean over all pairs of the step."""
        self.seed_dropout(batch)
        memory = self.model.memory
        begin, end = batch.extra["step"].tolist()
        if begin == 0:
            memory.reset_state()
        scores, labels = self(batch), batch.extra["labels"]
        total = self._loss(scores, labels)
        self.count("fit", scores, labels, total)
        self.log_step(total / len(labels), len(labels))
        with torch.no_grad():
            memory.update(begin, end)
        loss: Tensor = total * (self.trainer.world_size / (2 * (end - begin)))
        return loss

    def _loss(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the sum of the losses over pairs (P,)."""
        if self.loss is not None:
            return row_losses(self.loss, scores, labels).sum()
        return F.binary_cross_entropy_with_logits(scores, labels, reduction="sum")

    def on_validation_epoch_start(self) -> None:
        """Copy the memory of the training for the evaluation."""
        self._evaluated = (self.model.memory.settled(),)

    on_test_epoch_start = on_validation_epoch_start

    def evaluate(self, stage: str, batch: MiniBatch) -> None:
        """Evaluate this rank's part of a step, and update the copied memory."""
        if self._evaluated is None:
            raise RuntimeError("evaluate was called before the evaluation started: use trainer.validate or trainer.test")
        (memory,), (begin, end) = self._evaluated, batch.extra["step"].tolist()
        size = self._datamodule.step_size
        for first in range(int(memory.num_taken), begin, size):
            memory.update(first, min(first + size, begin))
        scores, labels = self.model(batch, memory), batch.extra["labels"]
        memory.update(begin, end)
        number = int(labels.sum())
        events, others = scores[:number], scores[number:].view(number, -1)
        one = torch.cat([events, others[:, 0]])
        halves = torch.cat([labels[:number], torch.zeros_like(events)])
        pairs, ranks = (one, halves.long()), (ranks_among(events, others), labels[:number])
        total = self._loss(one, halves)
        self.count(stage, *((*ranks, total / 2) if self._is_ranked else (*pairs, total)))
        for key in self.further:
            if key.startswith(f"{stage}_"):
                metric_of(self.further, key).update(*(ranks if key.endswith("mrr") else pairs))

    def on_validation_epoch_end(self) -> None:
        """Log the loss and the metrics over all ranks, and delete the memory's copy."""
        super().on_validation_epoch_end()
        self._evaluated = None

    def on_test_epoch_end(self) -> None:
        """Log the loss and the metrics over all ranks, and delete the memory's copy."""
        super().on_test_epoch_end()
        self._evaluated = None
