"""Protocols of models whose layers can be applied one by one, for layer-wise inference and pipelines; and the chunks that pipelines pass to layers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor


@runtime_checkable
class LayerwiseModule(Protocol):
    """A protocol of modules whose layers can be applied one by one: layer i takes the output of layer i - 1. Layer-wise inference needs such a model."""

    @property
    def num_layers(self) -> int:
        """Number of layers, L."""

    def layer(self, i: int, x: Tensor, *inputs: Any) -> Tensor:
        """Apply layer ``i`` to rows (R, ...), with additional ``inputs`` such as a block, and return rows (R', ...)."""


@runtime_checkable
class PipelineModule(LayerwiseModule, Protocol):
    """A protocol of modules whose layers can run in different processes."""

    def shape(self, i: int) -> tuple[int, ...]:
        """Return the shape of an input row of layer ``i``, in [1, L - 1]."""

    def modules_of(self, i: int) -> tuple[str, ...]:
        """Return the names of the submodules that only layer ``i`` uses, for instance ("layers.0", "norms.0"). Stages keep submodules that no layer names."""


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Chunk:
    """A part of a batch. Every stage of a model replica gets the same chunks, but needs ``inputs`` only for its own layers.

    Attributes:
        rows: L + 1 numbers: number of input rows of each layer, and of output rows of the last one. Every stage needs all of them.
        inputs: L tuples: additional inputs of each layer, such as its block. Tuples of layers of other stages may be empty.
        x: input (rows[0], ...) of layer 0, for the first stage.
        target: second argument of the loss, for the last stage.
        seed: in training, torch's generator is seeded with this seed and the layer's number before each layer, so that dropout does not depend on
            stages or schedule. None does not seed it.
    """

    rows: Sequence[int]
    inputs: Sequence[tuple[Any, ...]]
    x: Tensor | None = None
    target: Any = None
    seed: int | None = None

    def layer_seed(self, layer: int) -> int:
        """Return torch's seed for a layer of this chunk."""
        return address_seed(self.seed or 0, layer)


def apply_layers(model: Any, chunk: Chunk, layers: Iterable[int], x: Tensor) -> Tensor:
    """Apply some consecutive layers of a ``PipelineModule`` to ``x``; in training, seed torch for each with the chunk's seed."""
    for i in layers:
        if model.training and chunk.seed is not None:
            seed_generators(chunk.layer_seed(i), x.device)
        x = model.layer(i, x, *chunk.inputs[i])
    return x


def empty_chunk(num_layers: int) -> Chunk:
    """Return a chunk without rows, which contributes no gradient and no loss."""
    return Chunk(rows=(0,) * (num_layers + 1), inputs=((),) * num_layers)


def seed_generators(seed: int, device: torch.device) -> None:
    """Seed the random generators of a step on ``device``: the CPU's and the device's own.

    They then draw the same numbers as after ``torch.manual_seed(seed)``, which takes up to a millisecond: it also records the seed, with the caller's
    stack, for each kind of device that the process has not initialised.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        number = torch.cuda.current_device() if device.index is None else device.index
        torch.cuda.default_generators[number].manual_seed(seed)
    elif device.type != "cpu":
        torch.manual_seed(seed)


def address_seed(*address: int) -> int:
    """Hash the numbers of an address to a 63-bit seed."""
    text = "/".join(map(str, address)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1
