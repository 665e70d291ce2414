"""A training with hoptrain's own data module, model and Lightning's ``Trainer``, as in the README, with the callbacks of ``hoptrain fit``.

Without workers graph and features are in the process's memory (``in_memory``). On a GPU without workers batches are sampled on the GPU.
"""

from __future__ import annotations

import torch
from pytorch_lightning import Callback, Trainer

from hoptrain.benchmarks.trainings.cell import Cell
from hoptrain.benchmarks.trainings.epochs import Epochs, accuracy
from hoptrain.engine import Dataset
from hoptrain.samplers import NeighborSampler, SampleLoader
from hoptrain.trainers import NodeClassifier, NodeDataModule
from hoptrain.trainers.callbacks.callbacks import ThroughputMonitor
from hoptrain.trainers.callbacks.timeline import BatchTraceCallback


def train(cell: Cell, data: Dataset, epochs: Epochs) -> float:
    """Train, and return the accuracy on the test split."""
    samples_there = cell.device == "cuda" and not cell.workers
    module = NodeDataModule(
        data,
        NeighborSampler(cell.fanouts),
        in_memory=not cell.workers,
        batch_size=cell.batch_size,
        num_workers=cell.workers,
        seed=cell.seed,
        sampler_device="cuda" if samples_there else "cpu",
        feature_placement=cell.features if samples_there else "auto",
    )
    model = NodeClassifier(
        module.num_features,
        module.num_classes,
        module.num_hops,
        arch=cell.arch,
        hidden_channels=cell.hidden,
        heads=cell.heads,
        dropout=cell.dropout,
        lr=cell.lr,
    )
    trainer = Trainer(
        accelerator="gpu" if cell.device == "cuda" else "cpu",
        devices=1,
        max_epochs=epochs.number,
        callbacks=[BatchTraceCallback(), ThroughputMonitor(), _Clock(epochs)],
        limit_val_batches=0,
        use_distributed_sampler=False,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, module)
    model.eval().to(cell.device)
    test = SampleLoader(module.data, NeighborSampler(cell.fanouts), split="test", batch_size=cell.batch_size, shuffle=False, seed=cell.seed)
    with torch.no_grad():
        return accuracy((model(batch), batch.y) for batch in (sampled.to(cell.device) for sampled in test))


class _Clock(Callback):
    """A callback that times the epochs of a trainer."""

    def __init__(self, epochs: Epochs) -> None:
        self._epochs = epochs

    def on_train_epoch_start(self, *_: object) -> None:
        """Start the clocks."""
        self._epochs.begin()

    def on_train_epoch_end(self, *_: object) -> None:
        """Stop the clocks."""
        self._epochs.end()
