"""What tasks that learn links share: a decoder, the loss of links and their negatives, and scores of links that were held out."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Literal, get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hoptrain.engine import InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.errors import check_choice
from hoptrain.trainers.models.decoders import Decoder, DecoderName, make_decoder
from hoptrain.trainers.models.ranks import ranks_among, ranks_among_all, scores_in_parts
from hoptrain.trainers.scores.links import PooledScore, RankScore, title_of
from hoptrain.trainers.scores.top import make_top_score, top_of
from hoptrain.trainers.tasks.pairs.link_data import LinkBatch
from hoptrain.trainers.tasks.pairs.top import best_of_sources
from hoptrain.trainers.tasks.scored import STAGES, ScoredModule, metric_of

Loss = Literal["bce", "bpr"]


class Linked(ScoredModule):
    """A subclass says how vertices get vectors, and where the links are.

    The loss is the binary cross-entropy, the mean over pairs in training; in evaluation the mean over links and others, which weigh as much together;
    among all vertices over links alone. With ``bpr`` that of training is the mean over negatives of -log sigmoid(score of the link - score of its
    negative).

    Attributes:
        decoder: scores a pair by its vectors.
    """

    scored: tuple[str, ...] = STAGES[1:]

    def decode(self, decoder: DecoderName, width: int, score: str, hard_negatives: int | None, loss: Loss) -> None:
        """State how vectors of ``width`` channels become scores of pairs, and what these are judged by.

        Raises:
            InputError: an unknown decoder, score or loss; no hard negatives.
        """
        check_choice("loss", loss, get_args(Loss))
        if hard_negatives is not None and hard_negatives < 1:
            raise InputError(f"hard_negatives is {hard_negatives}: at least one of a link's negatives counts; correct it or leave it out")
        self.score_name: str = score
        self.score_title: str = title_of(score)
        self.decoder: Decoder = make_decoder(decoder, width)
        self._loss, self._hard_negatives = loss, hard_negatives

    @abstractmethod
    def infer(self, nodes: Array) -> Tensor:
        """Vectors (N, C) of ``nodes`` (N,), as they are numbered in the links held out; every rank calls it, with its own."""

    @property
    @abstractmethod
    def links(self) -> Any:
        """The data module: ``held_out``, ``known``, ``passed`` and ``bounds`` as of ``LinkDataModule``, ``num_ends``, ``check_score``, ``sampler``."""

    def take_links(self) -> None:
        """Make the scores; those are of ranks where each link is told from pairs of its own.

        Raises:
            InputError: a score that such ranks do not give, or fewer negatives than are asked for.
        """
        others = [held.others for held in self.links.held_out.values()]
        self._ranked = any(own is None or (own.ndim == 3 and self.score_name not in ("auc", "ap")) for own in others)
        self._top = top_of(self.score_name)
        self.links.check_score(self.score_name, self._top)
        if self._top:
            self.make_scores(lambda: make_top_score(self.score_name))
        else:
            self.make_scores(lambda: (RankScore if self._ranked else PooledScore)(self.score_name))
        self.scores.to(self.device)
        self._check_negatives(self.links.sampler)

    def _check_negatives(self, sampler: Any) -> None:
        """Whether a link has the negatives that the loss takes."""
        number = sampler.num_negatives
        if self._loss == "bpr" and sampler.negatives == "pairs":
            raise InputError(
                'loss is bpr and the sampler\'s negatives "pairs": it compares destinations of one source; draw them "uniform", or set loss: bce'
            )
        if not number:
            raise InputError(
                "the sampler's num_negatives is 0: links are learnt beside pairs that are none; give data.sampler num_negatives 1, or more"
            )
        hard = self._hard_negatives
        if hard is not None and hard > number:
            raise InputError(
                f"hard_negatives is {hard} and the sampler's num_negatives {number}: they are chosen among those; give num_negatives more"
            )

    def loss_of(self, scores: Tensor, labels: Tensor) -> Tensor:
        """The mean loss of a batch's pairs, links and others (P + P k,), which is counted."""
        scores, labels = with_hard_negatives(scores, labels, self._hard_negatives)
        if self._loss == "bpr":
            num_links = int(labels.sum())
            links, others = scores[:num_links, None], scores[num_links:]
            total = -F.logsigmoid(links - others.view(num_links, len(others) // num_links)).sum()
            scores, labels = others, labels[num_links:]  # the mean is over the comparisons
            if not len(labels):  # in_batch, and the last batch has one link: there is nothing to compare it with
                return total
        else:
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
        data = self.links
        vectors, links = self.infer(np.arange(data.num_ends)), links.to(self.device)
        if not links.shape[1]:
            return
        loss = F.softplus(-scores_in_parts(self.decoder, vectors, links))
        if self._top:
            for best, own in best_of_sources(self.decoder, vectors, links, data.bounds, data.passed, self._top):
                metric_of(self.scores, stage).update(best, own)
            metric_of(self.losses, stage).update(loss)
        else:
            ranks = ranks_among_all(self.decoder, vectors, links, data.known, data.ends)
            self.count(stage, ranks, torch.ones_like(ranks), loss.repeat(2).sum())


def with_hard_negatives(scores: Tensor, labels: Tensor, number: int | None) -> tuple[Tensor, Tensor]:
    """Scores and labels (P + P k,) of P links and their k negatives each, without all but the ``number`` highest negatives of each; None: all."""
    num_links = int(labels.sum())
    if number is None or len(labels) == num_links:
        return scores, labels
    hardest = scores[num_links:].view(num_links, -1).topk(number).values.reshape(-1)
    return torch.cat([scores[:num_links], hardest]), labels[: num_links + len(hardest)]
