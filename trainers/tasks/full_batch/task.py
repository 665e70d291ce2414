"""Classification of nodes, and regression, by training on the whole graph: a step an epoch, with the gradient of all training nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from hoptrain.engine import Address, Dataset, InputError, Schedule
from hoptrain.engine.arrays import Array
from hoptrain.samplers import NeighborSampler
from hoptrain.trainers.models.inference import CHUNK_EDGES
from hoptrain.trainers.models.layered import LayerwiseModule
from hoptrain.trainers.tasks.full_batch.part import WholePart, shares_of
from hoptrain.trainers.tasks.items.feed import ItemBatch, ItemLoader
from hoptrain.trainers.tasks.nodes.data import Features, NodeDataModule
from hoptrain.trainers.tasks.nodes.task import NodeClassifier


class FullBatchDataModule(NodeDataModule):
    """Loads a data set; an epoch is one step, in which each rank learns from the training nodes among its own."""

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
        """Open the data set (and convert, download or generate it the first time).

        Args:
            dataset: as of ``NodeDataModule``.
            num_hops: layers of the model.
            root: folder with the data's files; by default $HOPTRAIN_DATA.
            scale: size of a synthetic data set as a share of the real one.
            features: as of ``NodeDataModule``.
            chunk_edges: edges that a layer computes at once, about. With more of them in the graph a layer is computed again for its gradient.
            seed: of dropout; by default that of seed_everything.

        Raises:
            InputError: as ``NodeDataModule``; sizes below 1.
        """
        for name, value in (("num_hops", num_hops), ("chunk_edges", chunk_edges)):
            if value < 1:
                raise InputError(f"{name} is {value}: it is at least 1; give for instance {2 if name == 'num_hops' else CHUNK_EDGES}")
        hops = NeighborSampler([-1] * num_hops)
        super().__init__(dataset, hops, root, scale, features=features, batch_size=1, num_workers=0, seed=seed)
        self.chunk_edges = chunk_edges

    def make_loader(self, rank: int, world_size: int, seed: int) -> ItemLoader:
        """A step an epoch: the items that are dealt out are the ranks' parts of the graph.

        Raises:
            InputError: more ranks than nodes.
        """
        if world_size > self.data.graph.num_nodes:
            raise InputError(f"{world_size} ranks for {self.data.graph.num_nodes} nodes: each has one at least; use fewer devices")
        schedule = Schedule(items=np.arange(world_size), batch_size=1, rank=rank, world_size=world_size, shuffle=False, seed=seed)
        train, bounds = self.data.split("train"), shares_of(self.data.graph, world_size)
        labels: Any = self.data.y

        def collate(items: Array, _: Address | None) -> tuple[Tensor, Tensor]:
            first, last = bounds[items[0]], bounds[items[0] + 1]
            own = train[(first <= train) & (train < last)]
            return torch.from_numpy(own.astype(np.int64)), torch.from_numpy(np.take(labels, own, axis=0))

        return ItemLoader(schedule, collate)


class WholeGraphClassifier(NodeClassifier):
    """A model that classifies nodes, trained on the whole graph: options, scores and evaluation are those of ``NodeClassifier``.

    With one rank and no dropout the gradient is that of all training nodes and their whole neighbourhoods, by any ``chunk_edges`` and any number of
    ranks, but for the order in which float32 numbers are added up. Dropout draws for each chunk of each rank: it depends on both. With the same ones a
    run on a CPU repeats bit for bit.
    """

    data_class = FullBatchDataModule

    def setup(self, stage: str) -> None:
        """See ``NodeClassifier``; for training also the rank's part of the graph.

        Raises:
            InputError: besides, a model that does not say its layers, or that normalises over batches where a chunk is no batch.
        """
        super().setup(stage)
        if stage != "fit":
            return
        if not self._is_exact:
            raise InputError(
                f"{type(self.model).__name__} with task full_batch: it goes layer by layer; give a model that says its layers, or take task nodes"
            )
        module, trainer = self._datamodule, self.trainer
        ranks: dict[str, Any] = {"rank": trainer.global_rank, "world_size": trainer.world_size}
        options: dict[str, Any] = {"normalize": self.normalize_features, "device": self.device} | ranks
        self._part = WholePart.of(module.data, module.chunk_edges, **options)
        self._num_train = len(module.data.split("train"))
        if len(self._part.pieces) > 1 and any(isinstance(each, torch.nn.BatchNorm1d) for each in self.model.modules()):
            raise InputError(
                f"norm batch over {len(self._part.pieces)} chunks: each would have a mean of its own; raise data.chunk_edges, or take norm layer"
            )

    def training_step(self, batch: ItemBatch, batch_idx: int) -> Tensor:  # type: ignore[override]
        """The loss of the rank's training nodes, scaled so that the ranks' average is the mean over all of them."""
        model, address = self.model, batch.address or Address(0, 0, 0)
        if not isinstance(model, LayerwiseModule):
            raise RuntimeError("the model was not looked at before")
        logits = self._part.apply(model, self.forward_inputs, address)[batch.x - self._part.first]
        # A rank without any training node takes part in all collectives, and its gradient is 0.
        total = self.compute_loss("fit", logits, batch.y) if len(batch.y) else logits.sum()
        self.log("train_loss_step", total.detach() / max(1, len(batch.y)), batch_size=max(1, len(batch.y)))
        return total * (self.trainer.world_size / self._num_train)
