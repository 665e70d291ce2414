"""Link prediction: training on sampled batches of links, exact evaluation on links that were held out."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hoptrain.engine import InputError
from hoptrain.samplers import MiniBatch
from hoptrain.trainers.models.decoders import DecoderName, make_decoder
from hoptrain.trainers.models.ranks import ranks_among, ranks_among_all, scores_in_parts
from hoptrain.trainers.scores.links import PooledScore, RankScore, title_of
from hoptrain.trainers.tasks import TASKS
from hoptrain.trainers.tasks.graph_task import GraphTask, dropout_seed
from hoptrain.trainers.tasks.pairs.link_data import LinkBatch, LinkDataModule
from hoptrain.trainers.tasks.scored import STAGES


class LinkPredictor(GraphTask):
    """A GNN and a decoder, which scores a pair of vertices by their vectors: high where a link is.

    Logs ``train_loss``, and for validation and test the loss and the score, as ``val_auc`` for instance. The loss is the binary cross-entropy, the
    mean over pairs in training; in evaluation the mean over links and others, which weigh as much together; among all vertices over links alone.
    """

    data_class = LinkDataModule
    scored = STAGES[1:]

    def __init__(
        self,
        in_channels: int,
        num_layers: int,
        hidden_channels: int = 128,
        out_channels: int = 64,
        dropout: float = 0.0,
        decoder: DecoderName = "dot",
        score: str = TASKS["links"].score,
        hard_negatives: int | None = None,
        **options: Any,
    ) -> None:
        """Build the model. The first two arguments come from the data when the command line is used.

        Args:
            in_channels: features of a vertex.
            num_layers: hops of the sampler.
            hidden_channels: width between layers (for gat over all heads together).
            out_channels: width of the vertices' vectors.
            dropout: share of hidden inputs dropped (and of gat's attention).
            decoder: scores a pair: dot, the inner product; distmult, weighted by channel; complex, of complex numbers; mlp, of both vectors.
            score: what validation and test are judged by: auc, ap, mrr or hits@K, as hits@20 (``hoptrain.trainers.scores.links``).
            hard_negatives: of each link's negatives in a batch only this many count in the loss, those that score highest (Zhang et al. 2013,
                "Optimizing top-n collaborative filtering via dynamic negative item sampling"); by default all.
            options: as ``GraphTask``.

        Raises:
            InputError: as ``GraphTask``; an unknown decoder or score; no hard negatives.
        """
        super().__init__(
            in_channels,
            out_channels,
            num_layers,
            metric=None,
            model=None,
            takes="blocks",
            hidden_channels=hidden_channels,
            dropout=dropout,
            **options,
        )
        if hard_negatives is not None and hard_negatives < 1:
            raise InputError(f"hard_negatives is {hard_negatives}: at least one of a link's negatives counts; correct it or leave it out")
        self.score_name, self.score_title = score, title_of(score)
        self.decoder = make_decoder(decoder, out_channels)

    def setup(self, stage: str) -> None:
        """See ``GraphTask``; the score is of ranks where each link is told from pairs of its own.

        Raises:
            InputError: besides, a score that such ranks do not give, or more hard negatives than a link has.
        """
        super().setup(stage)
        data: Any = self._datamodule
        others = [held.others for held in data.held_out.values()]
        self._ranked = any(own is None or (own.ndim == 3 and self.score_name not in ("auc", "ap")) for own in others)
        self.make_scores(lambda: (RankScore if self._ranked else PooledScore)(self.score_name))
        self.scores.to(self.device)
        hard = self.hparams["hard_negatives"]
        if hard is not None and hard > data.sampler.num_negatives:
            raise InputError(
                f"hard_negatives is {hard} and the sampler's num_negatives {data.sampler.num_negatives}: they are chosen among those; "
                "give num_negatives more"
            )

    def training_step(self, batch: MiniBatch, batch_idx: int) -> Tensor:
        """Mean loss over the pairs of a mini-batch, links and others."""
        torch.manual_seed(dropout_seed(batch))
        vectors = self.checked(self(batch), batch.num_seeds, self.hparams["out_channels"])
        scores, labels = self.decoder(*vectors[batch.extra["pairs"].long()]), batch.extra["labels"]
        scores, labels = with_hard_negatives(scores, labels, self.hparams["hard_negatives"])
        total = F.binary_cross_entropy_with_logits(scores, labels, reduction="sum")
        self.count("fit", scores, labels, total)
        return total / len(labels)

    def evaluate(self, stage: str, batch: LinkBatch) -> None:
        """This rank's share of a split's links, exactly."""
        if batch.others is None:
            self._evaluate_among_all(stage, batch.links)
            return
        shape, number = batch.others.shape[1:], batch.links.shape[1]
        pairs = torch.cat([batch.links, batch.others.reshape(2, -1)], 1).cpu().numpy()
        nodes, places = np.unique(pairs, return_inverse=True)
        vectors, local = self.infer(nodes), torch.from_numpy(places.reshape(2, -1)).to(self.device)
        if not len(nodes):
            return
        scores = scores_in_parts(self.decoder, vectors, local)
        labels = (torch.arange(len(scores), device=self.device) < number).float()
        losses = F.binary_cross_entropy_with_logits(scores, labels, reduction="none")
        if self._ranked:
            ranks = ranks_among(scores[:number], scores[number:].reshape(shape))
            losses = (losses[:number] + losses[number:].reshape(shape).mean(1)) / 2
            self.count(stage, ranks, labels[:number], losses.sum())
        else:
            self.count(stage, scores, labels, losses.sum())

    def _evaluate_among_all(self, stage: str, links: Tensor) -> None:
        data: Any = self._datamodule
        vectors, links = self.infer(np.arange(data.data.graph.num_nodes)), links.to(self.device)
        if links.shape[1]:
            ranks = ranks_among_all(self.decoder, vectors, links, data.known)
            loss = F.softplus(-scores_in_parts(self.decoder, vectors, links)).repeat(2).sum()
            self.count(stage, ranks, torch.ones_like(ranks), loss)


def with_hard_negatives(scores: Tensor, labels: Tensor, number: int | None) -> tuple[Tensor, Tensor]:
    """Scores and labels (P + P k,) of P links and their k negatives each, without all but the ``number`` highest negatives of each; None: all."""
    num_links = int(labels.sum())
    if number is None or len(labels) == num_links:
        return scores, labels
    hardest = scores[num_links:].view(num_links, -1).topk(number).values.reshape(-1)
    return torch.cat([scores[:num_links], hardest]), labels[: num_links + len(hardest)]
