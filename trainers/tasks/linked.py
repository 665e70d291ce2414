"""Base class of tasks that predict links: decoders, the loss of links and their negatives, and metrics of held-out links."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hoptrain.engine import InputError
from hoptrain.engine.errors import check_choice
from hoptrain.samplers import HeteroMiniBatch, MiniBatch
from hoptrain.trainers.metrics.links import PooledScore, RankScore, title_of
from hoptrain.trainers.metrics.top import make_top_score, top_of
from hoptrain.trainers.models.decoders import DecoderName, make_decoder
from hoptrain.trainers.models.ranks import Bounds, best_of_sources, ranks_among, ranks_among_all, scores_in_parts
from hoptrain.trainers.tasks.graph_task import ExactTask
from hoptrain.trainers.tasks.scored import STAGES, metric_of

Loss = Literal["bce", "bpr"]


class LinkBatch(NamedTuple):
    """A rank's share of the links to evaluate.

    Attributes:
        links: global node ids (2, N) int64, sources above destinations.
        others: negatives (2, M) shared by all links or (2, N, K) of each link; None for all nodes.
    """

    links: Tensor
    others: Tensor | None


class RelationPairs(NamedTuple):
    """The pairs of a batch that belong to one relation, and the decoder that scores them.

    Attributes:
        name: name of the relation; empty if there is only one.
        decoder: module that scores the relation's pairs.
        ends: id ranges [begin, end) of the relation's sources and of its destinations.
        which: index of the pairs that belong to the relation.
    """

    name: str
    decoder: Any
    ends: tuple[Bounds, Bounds]
    which: Any


class LinkTaskMixin(ExactTask):
    """A mixin for tasks that predict links. A subclass computes node vectors; its data module is a ``HeldOutLinks``.

    The training loss is the binary cross-entropy, averaged over pairs. With ``bpr`` it is the mean over negatives of -log sigmoid(logit of the link -
    logit of its negative). In evaluation the loss is the binary cross-entropy, with links and negatives weighted equally; if links are ranked among
    all nodes, it is averaged over links alone.

    Attributes:
        decoder: module that computes a pair's logit from its two vectors; a list of modules if there are several relations.
    """

    scored: tuple[str, ...] = STAGES[1:]

    def decode(self, decoder: DecoderName, width: int, metric: str, hard_negatives: int | None, loss: Loss, number: int = 1) -> None:
        """Make the decoders for vectors of ``width`` channels, one for each of ``number`` relations, and set the loss and the metric.

        Raises:
            InputError: the decoder, the metric or the loss is unknown, or ``hard_negatives`` is below 1.
        """
        check_choice("loss", loss, get_args(Loss))
        if hard_negatives is not None and hard_negatives < 1:
            raise InputError(f"hard_negatives is {hard_negatives}: it must be at least 1; give 1 or more, or leave it out")
        self.name_score(metric)
        self.score_title: str = title_of(metric)
        made = [make_decoder(decoder, width) for _ in range(number)]
        self.decoder: Any = made[0] if number == 1 else nn.ModuleList(made)
        self._loss, self._hard_negatives = loss, hard_negatives

    @property
    def decoders(self) -> list[Any]:
        """Decoders, one for each relation."""
        return list(self.decoder) if isinstance(self.decoder, nn.ModuleList) else [self.decoder]

    @abstractmethod
    def pair_scores(self, batch: Any) -> Tensor:
        """Return the logits (P,) of a mini-batch's pairs, in their order."""

    def training_step(self, batch: MiniBatch | HeteroMiniBatch, batch_idx: int) -> Tensor:
        """Return the mean loss over the pairs of a mini-batch, links and negatives."""
        self.seed_dropout(batch)
        return self.loss_of(self.pair_scores(batch), batch.extra["labels"])

    def by_relation(self, pairs: Tensor) -> list[RelationPairs]:
        """Group ``pairs`` (2, N), numbered as in ``HeldOutLinks.held_out``, by relation."""
        data = self._datamodule
        whiches: list[Any] = [slice(None)]
        if len(data.ends) > 1:
            own = torch.from_numpy(data.relations_of(pairs.cpu().numpy())).to(self.device)
            whiches = [torch.nonzero(own == number)[:, 0] for number in range(len(data.ends))]
        return list(map(RelationPairs, data.relation_names, self.decoders, data.ends, whiches))

    def setup(self, stage: str) -> None:
        """Compare the model with the data, and make the metrics: metrics of ranks if each link has its own negatives.

        Raises:
            InputError: the metric needs other negatives, or a link has fewer negatives than the loss needs.
        """
        super().setup(stage)
        data = self._datamodule
        others = [held.others for held in data.held_out.values()]
        self._ranked = any(own is None or (own.ndim == 3 and self.score_name not in ("auc", "ap")) for own in others)
        self._top = top_of(self.score_name)
        data.check_score(self.score_name, self._top)
        make: Any = make_top_score if self._top else RankScore if self._ranked else PooledScore
        self.make_scores(lambda: make(self.score_name))
        names = filter(None, data.relation_names)
        self.further.update({own_score(stage, self.score_name, name): make(self.score_name) for name in names for stage in self.scored})
        self.scores.to(self.device)
        self.further.to(self.device)
        self._check_negatives(data.sampler)

    def _check_negatives(self, sampler: Any) -> None:
        """Raise InputError if the sampler draws too few negatives, or unsuitable ones, for the loss."""
        number = sampler.num_negatives
        if self._loss == "bpr" and sampler.negatives == "pairs":
            raise InputError(
                'loss is bpr and the sampler\'s negatives "pairs": bpr compares destinations of one source; set negatives "uniform", or loss: bce'
            )
        if not number:
            raise InputError(
                "the sampler's num_negatives is 0: each link needs at least one negative; give data.sampler num_negatives 1 or more"
            )
        hard = self._hard_negatives
        if hard is not None and hard > number:
            raise InputError(
                f"hard_negatives is {hard} and the sampler's num_negatives {number}: hard ones are chosen among these; raise num_negatives"
            )

    def loss_of(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of a batch's pairs, P links and P k negatives (P + P k,), and update the training metrics."""
        scores, labels = with_hard_negatives(scores, labels, self._hard_negatives)
        if self._loss == "bpr":
            num_links = int(labels.sum())
            links, others = scores[:num_links, None], scores[num_links:]
            total = -F.logsigmoid(links - others.view(num_links, len(others) // num_links)).sum()
            scores, labels = others, labels[num_links:]  # the mean is over the comparisons
            if not len(labels):  # with negatives "in_batch", a batch of one link has no negatives
                return total
        else:
            total = F.binary_cross_entropy_with_logits(scores, labels, reduction="sum")
        self.count("fit", scores, labels, total)
        return total / len(labels)

    def evaluate(self, stage: str, batch: LinkBatch) -> None:
        """Evaluate this rank's share of a split's links from full neighbourhoods."""
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
        for name, decoder, _, which in self.by_relation(torch.from_numpy(pairs)):
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
        data = self._datamodule
        vectors, links = self.infer(np.arange(data.known.num_nodes)), links.to(self.device)
        if not links.shape[1]:
            return
        for name, decoder, ends, which in self.by_relation(links):
            own = links[:, which]
            if not own.shape[1]:
                continue
            loss = F.softplus(-scores_in_parts(decoder, vectors, own))
            if not self._top:
                ranks = ranks_among_all(decoder, vectors, own, data.known, ends)
                self.count(stage, ranks, torch.ones_like(ranks), loss.repeat(2).sum())
                self._count_own(stage, name, ranks, torch.ones_like(ranks))
                continue
            for found in best_of_sources(decoder, vectors, own, ends[1], data.passed, self._top):
                metric_of(self.scores, stage).update(*found)
                self._count_own(stage, name, *found)
            metric_of(self.losses, stage).update(loss)

    def _count_own(self, stage: str, name: str, *found: Tensor) -> None:
        """Update the metric of the relation ``name``, if it has its own."""
        if (key := own_score(stage, self.score_name, name)) in self.further:
            metric_of(self.further, key).update(*found)


def own_score(stage: str, metric: str, relation: str) -> str:
    """Return the name under which a relation's own metric is logged."""
    return f"{stage}_{metric}/{relation.replace('.', '_')}"  # names of torch modules contain no dots


def with_hard_negatives(scores: Tensor, labels: Tensor, number: int | None) -> tuple[Tensor, Tensor]:
    """Return logits and labels (P + P k,) of P links with only the ``number`` highest of each link's k negatives; None keeps all."""
    num_links = int(labels.sum())
    if number is None or len(labels) == num_links:
        return scores, labels
    hardest = scores[num_links:].view(num_links, -1).topk(number).values.reshape(-1)
    return torch.cat([scores[:num_links], hardest]), labels[: num_links + len(hardest)]
