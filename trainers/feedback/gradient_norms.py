"""Gradient norms for ``MVSSampler`` (Cong et al. 2020): training records them at each step, and the sampler uses them in the next epoch."""

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
    """A feedback that records each seed's gradient norm of its last training step.

    The norm is that of the loss's gradient with respect to the node's logits, which the forward pass already provides. Up to a common factor, it bounds
    the norm of the gradient with respect to the weights (Katharopoulos & Fleuret 2018, "Not all samples are created equal"). A node that was never a
    seed keeps the sampler's initial norm of 1. For the cross-entropy, norms are at most 2**0.5.
    """

    def __init__(self, sampler: MVSSampler, num_nodes: int) -> None:
        """Create the buffer ``norms`` (V,) for the norms of the current epoch; -1 marks a node without a norm."""
        super().__init__()
        self._sampler = sampler
        self.norms = torch.full((num_nodes,), UNSEEN)

    def wrap(self, apply: Apply) -> Apply:
        """Return a function that calls ``apply`` and records the gradient norms of the seeds."""

        def noted(x: Tensor, batch: MiniBatch, degrees: Tensor) -> Tensor:
            outputs = apply(x, batch, degrees)
            self.see(batch, outputs)
            return outputs

        return noted

    @torch.no_grad()
    def see(self, batch: MiniBatch, outputs: Tensor) -> None:
        """Record the norms of a batch's seeds from their logits (B, num_classes)."""
        if batch.y.is_floating_point():
            raise InputError("MVSSampler with regression targets: it needs errors of probabilities; use another sampler")
        errors = torch.sigmoid(outputs) - batch.y if batch.y.ndim == 2 else _errors(outputs, batch.y)
        scale = outputs.shape[1] if batch.y.ndim == 2 else 1
        self.norms[batch.seeds.long().cpu()] = (errors.norm(dim=1) / scale).float().cpu()

    def begin_epoch(self, trainer: Trainer) -> None:
        """Give the sampler the norms that all ranks recorded in the previous epoch."""
        norms = trainer.strategy.reduce(self.norms.to(trainer.strategy.root_device), reduce_op="max").cpu()
        seen = torch.nonzero(norms > UNSEEN)[:, 0]
        self._sampler.update(seen.numpy(), norms[seen].numpy())
        self.norms.fill_(UNSEEN)

    def tables(self) -> dict[str, Tensor]:
        """Return the norms recorded in this epoch."""
        return {"norms": self.norms}


def _errors(logits: Tensor, y: Tensor) -> Tensor:
    return torch.softmax(logits, 1) - F.one_hot(y, logits.shape[1])


def make(sampler: MVSSampler, model: nn.Module, data: Dataset, normalize: bool) -> GradientNorms:
    """Return the feedback of an ``MVSSampler``."""
    return GradientNorms(sampler, data.graph.num_nodes)
