"""Gradient norms for ``MVSSampler`` (Cong et al. 2020): the trainer sees them at each step, the sampler draws by them in the next epoch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from pytorch_lightning import Trainer
from torch import Tensor, nn

from hoptrain.engine import Dataset, InputError
from hoptrain.samplers import MiniBatch, MVSSampler
from hoptrain.trainers.feedback import Apply, Feedback

UNSEEN = -1.0


class GradientNorms(Feedback):
    """The norm of each seed's gradient when it was last trained on.

    It is that of the loss by the scores of the node: known at no cost, and up to a factor that all nodes share a bound of the norm by the
    weights (Katharopoulos & Fleuret 2018, "Not all samples are created equal"). A node that was never a seed keeps the norm 1 of a sampler
    that knows nothing; the norm of an error in probabilities is at most 2**0.5.
    """

    def __init__(self, sampler: MVSSampler, num_nodes: int) -> None:
        """Know of no node. ``norms`` (V,) are those seen in this epoch, -1 where there is none."""
        super().__init__()
        self._sampler = sampler
        self.norms = torch.full((num_nodes,), UNSEEN)

    def wrap(self, apply: Apply) -> Apply:
        """Return ``apply``, whose scores are noted."""

        def noted(x: Tensor, batch: MiniBatch, degrees: Tensor) -> Tensor:
            outputs = apply(x, batch, degrees)
            self.see(batch, outputs)
            return outputs

        return noted

    @torch.no_grad()
    def see(self, batch: MiniBatch, outputs: Tensor) -> None:
        """Note the norms of a batch's seeds by their scores (B, num_classes)."""
        if batch.y.is_floating_point():
            raise InputError("MVSSampler with targets of a regression: its norms are of errors in probabilities; take another sampler")
        errors = torch.sigmoid(outputs) - batch.y if batch.y.ndim == 2 else _errors(outputs, batch.y)
        scale = outputs.shape[1] if batch.y.ndim == 2 else 1
        self.norms[batch.seeds.long().cpu()] = (errors.norm(dim=1) / scale).float().cpu()

    def begin_epoch(self, trainer: Trainer) -> None:
        """Give the sampler what all ranks have seen in the epoch before."""
        norms = trainer.strategy.reduce(self.norms.to(trainer.strategy.root_device), reduce_op="max").cpu()
        seen = torch.nonzero(norms > UNSEEN)[:, 0]
        self._sampler.update(seen.numpy(), norms[seen].numpy())
        self.norms.fill_(UNSEEN)

    def tables(self) -> dict[str, Tensor]:
        """The norms seen in this epoch."""
        return {"norms": self.norms}


def _errors(logits: Tensor, y: Tensor) -> Tensor:
    return torch.softmax(logits, 1) - F.one_hot(y, logits.shape[1])


def make(sampler: MVSSampler, model: nn.Module, data: Dataset, normalize: bool) -> GradientNorms:
    """Return the feedback of an ``MVSSampler``."""
    return GradientNorms(sampler, data.graph.num_nodes)
