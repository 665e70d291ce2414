"""Full-batch node classification and regression: an epoch is one step, with the gradient of all training nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from hoptrain.engine import Address, Dataset, InputError, Schedule
from hoptrain.engine.arrays import Array
from hoptrain.samplers import NeighborSampler
from hoptrain.trainers.models.inference import CHUNK_EDGES, offers_layers
from hoptrain.trainers.models.layered import LayerwiseModule
from hoptrain.trainers.tasks.full_batch.part import WholePart, partition_bounds
from hoptrain.trainers.tasks.items.feed import ItemBatch, ItemLoader
from hoptrain.trainers.tasks.nodes.data import Features, NodeDataModule
from hoptrain.trainers.tasks.nodes.task import NodeClassifier


class FullBatchDataModule(NodeDataModule):
    """A data module for full-batch training. An epoch is one step, in which each rank trains on the training nodes that it owns."""

    def __init__(
        self,
        dataset: str | Dataset,
        num_hops: int = 2,
        root: str | None = None,
        scale: float = 1.0,
        features: Features = "stored",
        chunk_edges: int = CHUNK_EDGES,
        seed: int | None = None,
    ) -> None:
        """Open the data set. The first time, convert, download or generate it.

        Args:
            dataset: name of a data set ('hoptrain data list' shows them), a folder written by 'hoptrain data convert', or in Python a ``Dataset``.
            num_hops: number of layers of the model.
            root: folder with the data sets' files; by default $HOPTRAIN_DATA.
            scale: size of a synthetic data set relative to the real one.
            features: stored takes the data set's features; degrees or walks computes features from the graph instead.
            chunk_edges: approximate number of edges that a layer processes at once. A rank with more edges recomputes layers in the backward pass.
            seed: random seed of dropout; by default that of seed_everything.

        Raises:
            InputError: the data set cannot be used, or a size is below 1.
        """
        for name, value in (("num_hops", num_hops), ("chunk_edges", chunk_edges)):
            if value < 1:
                raise InputError(f"{name} is {value}: it must be at least 1; give for instance {2 if name == 'num_hops' else CHUNK_EDGES}")
        hops = NeighborSampler([-1] * num_hops)
        super().__init__(dataset, hops, root, scale, features=features, batch_size=1, num_workers=0, seed=seed)
        self.chunk_edges = chunk_edges

    def make_loader(self, rank: int, world_size: int, seed: int) -> ItemLoader:
        """Return a loader of one step per epoch, whose items are the ranks' partitions.

        Raises:
            InputError: there are more ranks than nodes.
        """
        if world_size > self.data.graph.num_nodes:
            raise InputError(
                f"{world_size} ranks for {self.data.graph.num_nodes} nodes: each rank needs at least one node; use fewer devices"
            )
        schedule = Schedule(items=np.arange(world_size), batch_size=1, rank=rank, world_size=world_size, shuffle=False, seed=seed)
        train, bounds = self.data.split("train"), partition_bounds(self.data.graph, world_size)
        labels: Any = self.data.y

        def collate(items: Array, _: Address | None) -> tuple[Tensor, Tensor]:
            first, last = bounds[items[0]], bounds[items[0] + 1]
            own = train[(first <= train) & (train < last)]
            return torch.from_numpy(own.astype(np.int64)), torch.from_numpy(np.take(labels, own, axis=0))

        return ItemLoader(schedule, collate)


class WholeGraphClassifier(NodeClassifier):
    """A node classifier trained on the whole graph at once; its options, metrics and evaluation are those of ``NodeClassifier``.

    The gradient is that of all training nodes with their full neighbourhoods. Without dropout it does not depend on ``chunk_edges`` and the number of
    ranks, except for the order of float32 sums. Dropout masks are drawn per chunk and rank, so they depend on both. Runs with equal settings on a CPU
    are bit-identical.
    """

    data_class = FullBatchDataModule

    def setup(self, stage: str) -> None:
        """Check that the model matches the data, and for training build the rank's partition.

        Raises:
            InputError: the model does not fit the data, does not offer its layers, or has batch norm although the rank has several chunks.
        """
        super().setup(stage)
        if stage != "fit":
            return
        has_layers = offers_layers(self.model, self.forward_inputs)
        if not has_layers:
            raise InputError(
                f"{type(self.model).__name__} with task full_batch: the model needs a method layer(i, x, ...); add it, or use task nodes"
            )
        module, trainer = self._datamodule, self.trainer
        ranks: dict[str, Any] = {"rank": trainer.global_rank, "world_size": trainer.world_size}
        options: dict[str, Any] = {"normalize": self.normalize_features, "device": self.device} | ranks
        self._part = WholePart.of(module.data, module.chunk_edges, **options)
        self._num_train = len(module.data.split("train"))
        if len(self._part.pieces) > 1 and any(isinstance(each, torch.nn.BatchNorm1d) for each in self.modules()):
            raise InputError(
                f"norm is batch with {len(self._part.pieces)} chunks: each would have its own mean; raise data.chunk_edges, or set norm: layer"
            )

    def training_step(self, batch: ItemBatch, batch_idx: int) -> Tensor:  # type: ignore[override]
        """Return the loss of the rank's training nodes, scaled so that the ranks' average is the mean over all training nodes."""
        model, address = self.model, batch.address or Address(0, 0, 0)
        if not isinstance(model, LayerwiseModule):
            raise RuntimeError("a step was called before setup had checked the model: call the Trainer's fit")
        logits = self._part.apply(model, self.forward_inputs, address)[batch.x - self._part.first]
        # A rank without training nodes takes part in all collectives, with a gradient of 0.
        total = self.compute_loss("fit", logits, batch.y) if len(batch.y) else logits.sum()
        number = max(1, len(batch.y))
        self.log_step(total / number, number)
        return total * (self.trainer.world_size / self._num_train)
