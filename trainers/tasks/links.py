"""Link prediction: training on sampled batches of links, exact evaluation on links that were held out."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader
from torchmetrics.classification import BinaryAUROC

from hoptrain.engine import Dataset, InputError
from hoptrain.engine.derived.link_split import hold_out_links
from hoptrain.samplers import LinkSampler, MiniBatch, Sampler
from hoptrain.trainers.tasks import TASKS
from hoptrain.trainers.tasks.graph_task import GraphTask, dropout_seed
from hoptrain.trainers.tasks.node_data import GraphDataModule
from hoptrain.trainers.tasks.scored import STAGES


class LinkBatch(NamedTuple):
    """This rank's share of the pairs to evaluate.

    Attributes:
        pairs: (2, N) int64 global ids.
        labels: (N,) float32, 1 for links.
    """

    pairs: Tensor
    labels: Tensor


class LinkDataModule(GraphDataModule):
    """Holds links out of a data set's graph, and feeds training with the others through a ``LinkSampler``.

    Messages pass along the links that are left, in validation and test too. Labels are not needed.
    """

    def __init__(
        self,
        dataset: str | Dataset,
        sampler: Sampler,
        val_share: float = 0.05,
        test_share: float = 0.1,
        split_seed: int = 0,
        **options: Any,
    ) -> None:
        """Open the data set and hold out links.

        Args:
            dataset: as ``GraphDataModule``; labels are not needed.
            sampler: a ``LinkSampler`` without edges.
            val_share: part of the links for validation.
            test_share: part of the links for the test.
            split_seed: of the choice of these links: another seed of the training has the same.
            options: as ``GraphDataModule``; ``batch_size`` counts edges.

        Raises:
            InputError: a sampler that is no ``LinkSampler``, or names its edges; as ``hold_out_links``.
        """
        self._shares, self._split_seed = {"val": val_share, "test": test_share}, split_seed  # before the data is prepared
        super().__init__(dataset, sampler, **options)

    def prepare(self, data: Dataset) -> Dataset:
        """The data set without the links that are held out."""
        if not isinstance(self.sampler, LinkSampler) or self.sampler.edges is not None:
            raise InputError(
                f"the sampler is {self.sampler!r}: links are dealt out by a LinkSampler without edges, since those are held out here; use one"
            )
        graph, self.held_out = hold_out_links(data.graph, self._shares, self._split_seed)
        ends = {name: np.unique(held.pairs) for name, held in self.held_out.items() if len(held.labels)}
        splits = {"train": np.arange(graph.num_nodes)} | ends
        return Dataset(name=data.name, graph=graph, x=data.x, edge_attr=data.edge_attr, splits=splits, meta=data.meta)

    def val_dataloader(self) -> DataLoader[Any]:
        """This rank's share of the validation pairs."""
        return self._link_batches("val")

    def test_dataloader(self) -> DataLoader[Any]:
        """This rank's share of the test pairs."""
        return self._link_batches("test")

    def _link_batches(self, name: str) -> DataLoader[Any]:
        held = self.held_out[name]
        mine = self.share(np.arange(len(held.labels)))
        batches = [LinkBatch(torch.from_numpy(held.pairs[:, mine]), torch.from_numpy(held.labels[mine]))] if len(held.labels) else []
        return DataLoader(batches, batch_size=None)  # type: ignore[arg-type]


class LinkPredictor(GraphTask):
    """A GNN whose vertices' vectors have a large inner product where a link is.

    Logs ``train_loss``, and for validation and test the loss and ``auc``: the probability that a link scores above a pair that is none.
    """

    data_class = LinkDataModule
    score_name = TASKS["links"].score
    score_title = "ROC AUC"
    scored = STAGES[1:]

    def __init__(
        self, in_channels: int, num_layers: int, hidden_channels: int = 128, out_channels: int = 64, dropout: float = 0.0, **options: Any
    ) -> None:
        """Build the model. The first two arguments come from the data when the command line is used.

        Args:
            in_channels: features of a vertex.
            num_layers: hops of the sampler.
            hidden_channels: width between layers (for gat over all heads together).
            out_channels: width of the vertices' vectors.
            dropout: share of hidden inputs dropped (and of gat's attention).
            options: as ``GraphTask``.
        """
        super().__init__(
            in_channels,
            out_channels,
            num_layers,
            BinaryAUROC,
            model=None,
            takes="blocks",
            hidden_channels=hidden_channels,
            dropout=dropout,
            **options,
        )

    def training_step(self, batch: MiniBatch, batch_idx: int) -> Tensor:
        """Mean loss over the pairs of a mini-batch, links and others."""
        torch.manual_seed(dropout_seed(batch))
        vectors = self.checked(self(batch), batch.num_seeds, self.hparams["out_channels"])
        scores, labels = scores_of(vectors, batch.extra["pairs"]), batch.extra["labels"]
        total = F.binary_cross_entropy_with_logits(scores, labels, reduction="sum")
        self.count("fit", scores, labels, total)
        return total / len(labels)

    def evaluate(self, stage: str, batch: LinkBatch) -> None:
        """This rank's share of a split's pairs, exactly."""
        nodes, places = np.unique(batch.pairs.cpu().numpy(), return_inverse=True)
        vectors = self.infer(nodes)
        if len(batch.labels):
            scores = scores_of(vectors, torch.from_numpy(places.reshape(2, -1)).to(self.device))
            labels = batch.labels.to(self.device)
            self.count(stage, scores, labels.long(), F.binary_cross_entropy_with_logits(scores, labels, reduction="sum"))


def scores_of(vectors: Tensor, pairs: Tensor) -> Tensor:
    """(N,) inner products of ``vectors`` (V, C) at ``pairs`` (2, N)."""
    sources, destinations = pairs.long()
    return (vectors[sources] * vectors[destinations]).sum(1)
