"""Adaptive sampling (AS-GCN, Huang et al. 2018): a classifier that learns the probabilities with which its sampler draws nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hoptrain.engine import InputError
from hoptrain.engine.arrays import Array
from hoptrain.samplers import ASGCNSampler, Block, MiniBatch
from hoptrain.trainers.models import GNN
from hoptrain.trainers.models.features import model_input, to_input
from hoptrain.trainers.tasks.nodes.task import NodeClassifier

LOWEST_SCORE = 2.0**-10
"""Lower bound of a node's sampling score: its logarithm stays finite, and every node can be drawn."""
_ROWS = 1 << 16
"""Number of nodes whose features are read at once."""


class AdaptiveNodeClassifier(NodeClassifier):
    """A ``NodeClassifier`` that learns the scores of its ``ASGCNSampler``: g(u) = max(0, x_u . w + b), with w = 0 and b = 1 at the start.

    The loss has an additional term: ``variance_weight`` times the variance of the last layer's sampled means (``sampling_variance``, also logged) per
    seed. Only w and b get gradients from this term. Each epoch is sampled with the scores that its first step had; to get them, sampler processes
    restart for each epoch, which takes seconds.

    Examples:
        >>> from pytorch_lightning import Trainer
        >>> from hoptrain import AdaptiveNodeClassifier, ASGCNSampler, NodeDataModule
        >>> data = NodeDataModule("digits-knn", ASGCNSampler([64, 64]), batch_size=256, num_workers=0, seed=1)
        >>> model = AdaptiveNodeClassifier(data.num_features, data.num_classes, data.num_hops, hidden_channels=16)
        >>> trainer = Trainer(fast_dev_run=2, enable_progress_bar=False, enable_model_summary=False)
        >>> trainer.fit(model, data)
        >>> sorted(trainer.callback_metrics)
        ['sampling_variance', 'train_acc', 'train_loss', 'train_loss_step', 'val_acc', 'val_loss']
    """

    def __init__(self, in_channels: int, num_classes: int, num_layers: int, variance_weight: float = 0.5, **options: Any) -> None:
        """Build the model.

        Args:
            in_channels: number of features of a node.
            num_classes: number of classes, or of labels.
            num_layers: number of layers, which equals the sampler's hops.
            variance_weight: weight of the sampling variance in the loss.
            options: further options of ``NodeClassifier``.

        Raises:
            InputError: ``variance_weight`` is negative, or a custom model is given.
        """
        if variance_weight < 0:
            raise InputError(f"variance_weight is {variance_weight}: it must be at least 0; give 0 or more")
        super().__init__(in_channels, num_classes, num_layers, **options)
        if not isinstance(self.model, GNN):
            raise InputError("AdaptiveNodeClassifier with your own model: it needs the last layer of the built-in GNN; leave model out")
        self.variance_weight = variance_weight
        self.scorer: nn.Linear = nn.Linear(in_channels, 1)
        nn.init.zeros_(self.scorer.weight)
        nn.init.ones_(self.scorer.bias)
        # w and b of the epoch's sampler, and the epoch. A checkpoint stores them for runs that resume in the middle of an epoch.
        self.register_buffer("sampled_by", torch.cat([torch.zeros(in_channels), torch.ones(1)]))
        self.register_buffer("sampled_epoch", torch.zeros((), dtype=torch.int64))
        self.sampled_by: Tensor
        self.sampled_epoch: Tensor
        self._hidden = torch.empty(0)
        self.model.layers[-1].register_forward_pre_hook(self._keep_hidden)

    def _keep_hidden(self, layer: nn.Module, arguments: tuple[Any, ...]) -> None:
        if self.training:
            self._hidden = arguments[0].detach()

    def on_train_start(self) -> None:
        """Set the sampler's scores to those of the epoch's start, for a run that resumes in the middle of an epoch."""
        self._set_scores()

    def on_train_epoch_start(self) -> None:
        """Set the sampler's scores to the current ones."""
        super().on_train_epoch_start()
        if self._take_scores():
            self._set_scores()

    def _take_scores(self) -> bool:
        """If the next batch begins a new epoch, store w and b. Return whether it begins an epoch."""
        epoch = self.current_epoch
        begins = bool(self.sampled_epoch != epoch)
        if begins:
            with torch.no_grad():
                self.sampled_by.copy_(torch.cat([self.scorer.weight[0], self.scorer.bias]))
                self.sampled_epoch.fill_(epoch)
        return begins

    def training_step(self, batch: MiniBatch, batch_idx: int) -> Tensor:
        """Return the classifier's loss plus the weighted sampling variance."""
        loss = super().training_step(batch, batch_idx)
        block, last = batch.blocks[-1], len(batch.blocks) - 1
        sources = to_input(batch.x[: block.num_src], self.normalize_features)
        log_scores = self.scorer(sources)[:, 0].clamp(min=LOWEST_SCORE).log()
        degrees = self.degrees[batch.node_ids[: block.num_dst].long()]
        variance = sampling_variance(
            block, self._hidden, degrees, batch.extra[f"draws{last}"], batch.extra[f"probabilities{last}"], log_scores
        )
        self.log("sampling_variance", variance.detach() / batch.num_seeds, batch_size=batch.num_seeds)
        return loss + variance * (self.variance_weight * self.trainer.world_size / batch.num_step_seeds)

    def _set_scores(self) -> None:
        """Give the sampler the scores of all nodes; sampler processes restart with them."""
        sampler = self._datamodule.sampler
        if not isinstance(sampler, ASGCNSampler):
            raise InputError(
                f"AdaptiveNodeClassifier with {type(sampler).__name__}: it learns the scores of an ASGCNSampler; use an ASGCNSampler"
            )
        sampler.set_scores(self._scores_of_all())
        if self._datamodule.loader is not None:
            self._datamodule.loader.close()

    @torch.no_grad()
    def _scores_of_all(self) -> Array:
        """Return the scores (V,) float32 of all nodes. They are always computed on the CPU, so that all ranks get bit-identical values."""
        data = self._datamodule.data
        parameters, device = self.sampled_by.cpu(), torch.device("cpu")
        scores = np.empty(data.graph.num_nodes, np.float32)
        for begin in range(0, len(scores), _ROWS):
            nodes = np.arange(begin, min(begin + _ROWS, len(scores)))
            x = model_input(data, nodes, self.normalize_features, device)
            scores[nodes] = (x @ parameters[:-1] + parameters[-1]).clamp(min=LOWEST_SCORE).numpy()
        return scores


def sampling_variance(block: Block, hidden: Tensor, degrees: Tensor, draws: Tensor, probabilities: Tensor, log_scores: Tensor) -> Tensor:
    """Return an unbiased estimate of the variance of a block's sampled means of ``hidden``, summed over destinations and channels.

    A single draw of source u gives the estimate X = p(u|v) h(u) / q(u) for each destination v; the block's means average t such draws. The gradient with
    respect to the scores is unbiased too. Only q depends on the scores: the derivative of E |X|**2 is that of the sum over u of (p h)**2 / q, which is
    minus the covariance of |X|**2 and the derivative of log g under q. The draws are samples from q.

    Args:
        block: block of an ``ASGCNSampler``, as torch tensors.
        hidden: inputs (num_src, C) that the layer averages; they get no gradient.
        degrees: in-degrees (num_dst,) of the destinations in the whole graph.
        draws: number of times (num_src,) that each source was drawn; from the batch's ``extra``.
        probabilities: probabilities q (num_src,) of the drawn sources; from the batch's ``extra``.
        log_scores: logarithms (num_src,) of the scores that q is proportional to.

    Returns:
        A scalar; 0 if fewer than two draws were made.
    """
    count = int(draws.sum())
    if count < 2:
        return log_scores.sum() * 0
    hidden = hidden.detach()
    source, destination = block.edge_index()
    # Parallel edges are summed before they are squared.
    pairs, copies = torch.unique(destination * block.num_src + source, return_counts=True)
    transitions = copies / degrees[pairs // block.num_src]
    squares = hidden.new_zeros(block.num_src).index_add_(0, pairs % block.num_src, transitions.to(hidden.dtype) ** 2)
    # |X|**2, where X is the contribution of a draw to the estimate
    each = squares * hidden.square().sum(1) / torch.where(draws > 0, probabilities, 1) ** 2
    shares = draws / count
    weights = (block.weights / degrees[destination]).to(hidden.dtype)
    means = hidden.new_zeros(block.num_dst, hidden.shape[1]).index_add_(0, destination, weights[:, None] * hidden[source])
    value = ((shares * each).sum() - means.square().sum()) / (count - 1)
    covariance = (shares * each * (log_scores - (shares * log_scores).sum())).sum() / (count - 1)
    return value - (covariance - covariance.detach())
