"""What tasks that learn links share: a decoder, the loss of links and their negatives, and scores of links that were held out."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hoptrain.engine import InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.errors import check_choice
from hoptrain.trainers.models.decoders import DecoderName, make_decoder
from hoptrain.trainers.models.ranks import Bounds, ranks_among, ranks_among_all, scores_in_parts
from hoptrain.trainers.scores.links import PooledScore, RankScore, title_of
from hoptrain.trainers.scores.top import make_top_score, top_of
from hoptrain.trainers.tasks.pairs.link_data import LinkBatch
from hoptrain.trainers.tasks.pairs.top import best_of_sources
from hoptrain.trainers.tasks.scored import STAGES, ScoredModule, metric_of

Loss = Literal["bce", "bpr"]


class OfRelation(NamedTuple):
    """What is known of one of the relations whose links are learnt.

    Attributes:
        name: its name; empty where there is but one.
        decoder: scores its pairs.
        ends: the numbers [begin, end) of its sources, and of its destinations; None for all vertices.
        bounds: those of its destinations.
        which: of some pairs those that are of it.
    """

    name: str
    decoder: Any
    ends: tuple[Bounds, Bounds] | None
    bounds: Bounds
    which: Any


class Linked(ScoredModule):
    """A subclass says how vertices get vectors, and where the links are.

    The loss is the binary cross-entropy, the mean over pairs in training; in evaluation the mean over links and others, which weigh as much together;
    among all vertices over links alone. With ``bpr`` that of training is the mean over negatives of -log sigmoid(score of the link - score of its
    negative).

    Attributes:
        decoder: scores a pair by its vectors; of several relations a list of as many.
    """

    scored: tuple[str, ...] = STAGES[1:]

    def decode(self, decoder: DecoderName, width: int, score: str, hard_negatives: int | None, loss: Loss, number: int = 1) -> None:
        """State how vectors of ``width`` channels become scores of pairs of ``number`` relations, and what these are judged by.

        Raises:
            InputError: an unknown decoder, score or loss; no hard negatives.
        """
        check_choice("loss", loss, get_args(Loss))
        if hard_negatives is not None and hard_negatives < 1:
            raise InputError(f"hard_negatives is {hard_negatives}: at least one of a link's negatives counts; correct it or leave it out")
        self.name_score(score)
        self.score_title: str = title_of(score)
        made = [make_decoder(decoder, width) for _ in range(number)]
        self.decoder: Any = made[0] if number == 1 else nn.ModuleList(made)
        self._loss, self._hard_negatives = loss, hard_negatives

    @abstractmethod
    def infer(self, nodes: Array) -> Tensor:
        """Vectors (N, C) of ``nodes`` (N,), as they are numbered in the links held out; every rank calls it, with its own."""

    @property
    @abstractmethod
    def links(self) -> Any:
        """The data module: ``held_out``, ``known``, ``passed`` and ``bounds`` as of ``LinkDataModule``, ``num_ends``, ``check_score``, ``sampler``."""

    def by_relation(self, pairs: Tensor) -> Sequence[OfRelation]:
        """Which of ``pairs`` (2, N), as they are numbered in the links held out, are of which relation: here all of one that has no name."""
        data = self.links
        return [OfRelation("", self.decoder, data.ends, data.bounds, slice(None))]

    def take_links(self) -> None:
        """Make the scores; those are of ranks where each link is told from pairs of its own.

        Raises:
            InputError: a score that such ranks do not give, or fewer negatives than are asked for.
        """
        others = [held.others for held in self.links.held_out.values()]
        self._ranked = any(own is None or (own.ndim == 3 and self.score_name not in ("auc", "ap")) for own in others)
        self._top = top_of(self.score_name)
        self.links.check_score(self.score_name, self._top)
        make: Any = make_top_score if self._top else RankScore if self._ranked else PooledScore
        self.make_scores(lambda: make(self.score_name))
        names = [own.name for own in self.by_relation(torch.empty((2, 0))) if own.name]
        self.further.update({own_score(stage, self.score_name, name): make(self.score_name) for stage in self.scored for name in names})
        self.scores.to(self.device)
        self.further.to(self.device)
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
        labels = (torch.arange(local.shape[1], device=self.device) < number).float()
        scores = torch.empty_like(labels)
        for name, decoder, _, _, which in self.by_relation(torch.from_numpy(pairs)):
            scores[which] = scores_in_parts(decoder, vectors, local[:, which]).float()
            self._count_own(stage, name, scores[which], labels[which])
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
        for name, decoder, ends, bounds, which in self.by_relation(links):
            own = links[:, which]
            if not own.shape[1]:
                continue
            loss = F.softplus(-scores_in_parts(decoder, vectors, own))
            if not self._top:
                ranks = ranks_among_all(decoder, vectors, own, data.known, ends)
                self.count(stage, ranks, torch.ones_like(ranks), loss.repeat(2).sum())
                self._count_own(stage, name, ranks, torch.ones_like(ranks))
                continue
            for found in best_of_sources(decoder, vectors, own, bounds, data.passed, self._top):
                metric_of(self.scores, stage).update(*found)
                self._count_own(stage, name, *found)
            metric_of(self.losses, stage).update(loss)

    def _count_own(self, stage: str, name: str, *found: Tensor) -> None:
        """Count what was found of the relation ``name`` in its own score, where it has one."""
        if (key := own_score(stage, self.score_name, name)) in self.further:
            metric_of(self.further, key).update(*found)


def own_score(stage: str, score: str, relation: str) -> str:
    """Under which name a relation's own score is logged."""
    return f"{stage}_{score}/{relation.replace('.', '_')}"  # a module's name has no point


def with_hard_negatives(scores: Tensor, labels: Tensor, number: int | None) -> tuple[Tensor, Tensor]:
    """Scores and labels (P + P k,) of P links and their k negatives each, without all but the ``number`` highest negatives of each; None: all."""
    num_links = int(labels.sum())
    if number is None or len(labels) == num_links:
        return scores, labels
    hardest = scores[num_links:].view(num_links, -1).topk(number).values.reshape(-1)
    return torch.cat([scores[:num_links], hardest]), labels[: num_links + len(hardest)]
