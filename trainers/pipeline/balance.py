"""Measurement of the layers' times, from which a plan derives stages of equal duration."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from hoptrain.engine import InputError
from hoptrain.trainers.models.layered import Chunk, PipelineModule


def layer_seconds(model: nn.Module, chunk: Chunk, loss: Callable[[Tensor, Any], Tensor], rounds: int = 5) -> list[float]:
    """Measure the seconds of each layer's forward and backward pass with ``chunk``: medians of ``rounds``, after one warm-up.

    The last layer's time includes the loss. Gradients and torch's random state do not change.

    Args:
        model: the whole model, a ``PipelineModule``.
        chunk: chunk with the inputs of all layers.
        loss: function of (output, target).
        rounds: number of measurements.

    Raises:
        InputError: the model is not a ``PipelineModule``, or the chunk lacks the first layer's input.
    """
    if not isinstance(model, PipelineModule) or chunk.x is None:
        lacks = "x, the first layer's input" if isinstance(model, PipelineModule) else "num_layers, layer, shape and modules_of"
        raise InputError(f"layers of {type(model).__name__} cannot be timed with this chunk: {lacks} must be given; add it")
    grads = [parameter.grad for parameter in model.parameters()]
    with torch.random.fork_rng(devices=[]):
        times = [_round(model, chunk.x, chunk, loss) for _ in range(rounds + 1)][1:]
    for parameter, grad in zip(model.parameters(), grads, strict=True):
        parameter.grad = grad
    return [statistics.median(each) for each in zip(*times, strict=True)]


def _round(model: PipelineModule, x: Tensor, chunk: Chunk, loss: Callable[[Tensor, Any], Tensor]) -> list[float]:
    tapes, seconds = [], []
    for i in range(model.num_layers):
        entering = x.detach().requires_grad_(i > 0)
        begin = _now(entering)
        x = model.layer(i, entering, *chunk.inputs[i])
        out = loss(x, chunk.target) if i == model.num_layers - 1 else x
        seconds.append(_now(out) - begin)
        tapes.append((entering, out))
    grad = torch.ones_like(tapes[-1][1])
    for i in reversed(range(model.num_layers)):
        entering, out = tapes[i]
        begin = _now(out)
        torch.autograd.backward(out, grad)
        seconds[i] += _now(out) - begin
        if i:
            grad = entering.grad if entering.grad is not None else torch.zeros_like(entering)
    return seconds


def _now(tensor: Tensor) -> float:
    if tensor.device.type == "cuda":
        torch.cuda.synchronize(tensor.device)
    return time.perf_counter()
