"""Base class of link prediction tasks: decoders, the loss of links and negatives, and metrics of held-out links."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hoptrain.engine import InputError
from hoptrain.engine.errors import check_choice
from hoptrain.samplers import HeteroMiniBatch, MiniBatch
from hoptrain.trainers.metrics.links import PooledScore, RankScore, title_of
from hoptrain.trainers.metrics.own import AnyLoss, AnyMetric, check_loss, name_of, row_losses
from hoptrain.trainers.metrics.top import NAMES, make_top_score, most_of, top_of
from hoptrain.trainers.models.decoders import DecoderName, make_decoder
from hoptrain.trainers.models.ranks import Bounds, best_of_sources, ranks_among, ranks_among_all, scores_in_parts
from hoptrain.trainers.tasks.graph_task import ExactTask
from hoptrain.trainers.tasks.scored import STAGES, metric_of

LossName = Literal["bce", "bpr"]
Loss: TypeAlias = LossName | AnyLoss
"""The name of a link loss, or a custom loss: a function of logits (P,) and labels (P,), which are 1 for links and 0 for negatives."""


class LinkBatch(NamedTuple):
    """A rank's share of the links to evaluate.

    Attributes:
        links: global node ids (2, N) int64, sources above destinations.
        others: negatives: (2, M) for all links together, or (2, N, K) with K for each link. None ranks links among all nodes.
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

    The training loss is one of:

    * ``bce``: binary cross-entropy, averaged over links and negatives.
    * ``bpr``: -log sigmoid(logit of the link - logit of its negative), averaged over negatives.
    * a custom loss: it gets logits and labels (P + P k,) of a batch, those of P links first, then those of the k negatives of each link.

    The loss in evaluation is the custom loss, or else the binary cross-entropy, with equal total weights of links and negatives. If links are ranked
    among all nodes, it is averaged over links alone.

    A custom metric gets logits and labels (1 or 0) of all held-out links and negatives. Metrics of ``torch_geometric.metrics`` get the best
    destinations of each source, as ``recall@K`` does.

    Attributes:
        decoder: module that computes a pair's logit from its two vectors; a list of modules if there are several relations.
    """

    scored: tuple[str, ...] = STAGES[1:]

    def decode(self, decoder: DecoderName, width: int, metric: AnyMetric, hard_negatives: int | None, loss: Loss, number: int = 1) -> None:
        """Make the decoders for vectors of ``width`` channels, one for each of ``number`` relations, and set the loss and the metric.

        Raises:
            InputError: the decoder, the metric or the loss is unknown, or ``hard_negatives`` is below 1.
        """
        if isinstance(loss, str):
            check_choice("loss", loss, get_args(LossName))
        else:
            self.loss = check_loss(loss)
        self.hparams["loss"] = loss if isinstance(loss, str) else name_of(loss)
        if hard_negatives is not None and hard_negatives < 1:
            raise InputError(f"hard_negatives is {hard_negatives}: it must be at least 1; give 1 or more, or leave it out")
        self.define_metric(metric)
        if isinstance(metric, str):
            self.score_title: str = title_of(metric)
        made = [make_decoder(decoder, width) for _ in range(number)]
        self.decoder: Any = made[0] if number == 1 else nn.ModuleList(made)
        self._is_bpr, self._hard_negatives = loss == "bpr", hard_negatives

    @property
    def decoders(self) -> list[Any]:
        """Decoders, one for each relation."""
        return list(self.decoder) if isinstance(self.decoder, nn.ModuleList) else [self.decoder]

    @abstractmethod
    def pair_scores(self, batch: Any) -> Tensor:
        """Return the logits (P,) of a mini-batch's pairs, in the order of the pairs."""

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
        """Check that the model matches the data, and make the metrics: metrics of ranks if each link has its own negatives.

        Raises:
            InputError: the metric needs other negatives, or a link has fewer negatives than the loss needs.
        """
        super().setup(stage)
        data = self._datamodule
        others = [held.others for held in data.held_out.values()]
        is_pooled = self.has_own_metric or self.score_name in ("auc", "ap")
        self._ranked = any(own is None or (own.ndim == 3 and not is_pooled) for own in others)
        self._top = top_of(self.score_name) if self._clone_own is None else most_of(self._clone_own())
        if self.has_own_metric and not self._top and self._ranked:
            raise InputError(
                f"metric is {self.score_name} and links are ranked among all nodes: your own metric gets links and their negatives; give mrr, hits@K, "
                f"{NAMES} or a metric of torch_geometric.metrics, or set eval_negatives to uniform"
            )
        data.check_score(self.score_name, self._top)
        make: Any = make_top_score if self._top else RankScore if self._ranked else PooledScore
        self.make_scores(lambda: make(self.score_name))
        for stage in self.scored:
            for name in filter(None, data.relation_names):
                own_metrics = self.collection_of(stage).clone().items()
                self.further.update({own_score(stage, key, name): metric for key, metric in own_metrics})
        self.scores.to(self.device)
        self.further.to(self.device)
        self._check_negatives(data.sampler)

    def _check_negatives(self, sampler: Any) -> None:
        """Raise InputError if the sampler draws too few negatives, or unsuitable ones, for the loss."""
        number = sampler.num_negatives
        if self._is_bpr and sampler.negatives == "pairs":
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
        if self._is_bpr:
            num_links = int(labels.sum())
            links, others = scores[:num_links, None], scores[num_links:]
            total = -F.logsigmoid(links - others.view(num_links, len(others) // num_links)).sum()
            scores, labels = others, labels[num_links:]  # the mean is over all comparisons of a link with a negative
            if not len(labels):  # with negatives "in_batch", a batch of one link has no negatives
                return total
        elif self.loss is not None:
            total = self._pair_losses(scores, labels).sum()
        else:
            total = F.binary_cross_entropy_with_logits(scores, labels, reduction="sum")
        self.count("fit", scores, labels, total)
        mean = total / len(labels)
        self.log_step(mean, len(labels))
        return mean

    def _pair_losses(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the losses (N,) of pairs: by the custom loss, or else the binary cross-entropy."""
        if self.loss is not None:
            return row_losses(self.loss, scores, labels)
        return F.binary_cross_entropy_with_logits(scores, labels, reduction="none")

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
            self._count_own(stage, name, scores[which], labels[which].long())
        losses = self._pair_losses(scores, labels)
        if self._ranked:
            ranks = ranks_among(scores[:number], scores[number:].reshape(shape))
            losses = (losses[:number] + losses[number:].reshape(shape).mean(1)) / 2
            self.count(stage, ranks, labels[:number], losses.sum())
        else:
            self.count(stage, scores, labels.long(), losses.sum())

    def _evaluate_among_all(self, stage: str, links: Tensor) -> None:
        data = self._datamodule
        vectors, links = self.infer(np.arange(data.known.num_nodes)), links.to(self.device)
        if not links.shape[1]:
            return
        for name, decoder, ends, which in self.by_relation(links):
            own = links[:, which]
            if not own.shape[1]:
                continue
            scores = scores_in_parts(decoder, vectors, own)
            loss = F.softplus(-scores) if self.loss is None else row_losses(self.loss, scores, torch.ones_like(scores))
            if not self._top:
                ranks = ranks_among_all(decoder, vectors, own, data.known, ends)
                self.count(stage, ranks, torch.ones_like(ranks), loss.repeat(2).sum())
                self._count_own(stage, name, ranks, torch.ones_like(ranks))
                continue
            for found in best_of_sources(decoder, vectors, own, ends[1], data.passed, self._top):
                self.update_scores(stage, *found)
                self._count_own(stage, name, *found)
            metric_of(self.losses, stage).update(loss)

    def _count_own(self, stage: str, name: str, *found: Tensor) -> None:
        """Update the metrics of the relation ``name``, if metrics are kept for this relation alone."""
        for metric in self.collection_of(stage):
            if (key := own_score(stage, str(metric), name)) in self.further:
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
