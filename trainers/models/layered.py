"""A model as layers: what it offers to be applied layer by layer, in one process or in several, and a part of a batch on its way through them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor


@runtime_checkable
class LayerwiseModule(Protocol):
    """A module that says its layers: layer i is applied to what layer i - 1 returned. Exact inference takes such a one."""

    @property
    def num_layers(self) -> int:
        """L."""

    def layer(self, i: int, x: Tensor, *inputs: Any) -> Tensor:
        """Apply layer ``i`` with its own side inputs: (R, ...) in, (R', ...) out, rows first."""


@runtime_checkable
class PipelineModule(LayerwiseModule, Protocol):
    """A module whose layers can stand in different processes."""

    def shape(self, i: int) -> tuple[int, ...]:
        """The shape of one row of what enters layer ``i``, i in 1 to L - 1."""

    def modules_of(self, i: int) -> tuple[str, ...]:
        """Names of the submodules that layer ``i`` alone uses, for instance ("layers.0", "norms.0"). All others are kept by every stage."""


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Chunk:
    """A part of a batch. Every stage of a copy gets the same chunks; a stage needs only its own layers' ``inputs``.

    Attributes:
        rows: L + 1 numbers, the rows that enter each layer and those that leave the last: every stage needs all of them.
        inputs: L tuples, what each layer takes beside the activation (may be empty for the layers of other stages).
        x: (rows[0], ...) input of layer 0; needed by the first stage.
        target: what the loss compares the output with; needed by the last stage.
        seed: in training torch's generator is set from it and the layer's number before each layer, so that dropout depends neither on
            the cuts nor on the schedule. None leaves the generator alone.
    """

    rows: Sequence[int]
    inputs: Sequence[tuple[Any, ...]]
    x: Tensor | None = None
    target: Any = None
    seed: int | None = None

    def layer_seed(self, layer: int) -> int:
        """Torch's seed for a layer of this chunk."""
        return address_seed(self.seed or 0, layer)


def apply_layers(model: Any, chunk: Chunk, layers: Iterable[int], x: Tensor) -> Tensor:
    """Apply some of a ``PipelineModule`` model's layers, one after another, to what enters the first; in training with the chunk's seeds."""
    for i in layers:
        if model.training and chunk.seed is not None:
            seed_generators(chunk.layer_seed(i), x.device)
        x = model.layer(i, x, *chunk.inputs[i])
    return x


def empty_chunk(num_layers: int) -> Chunk:
    """A chunk without rows: it has no gradient and no loss."""
    return Chunk(rows=(0,) * (num_layers + 1), inputs=((),) * num_layers)


def seed_generators(seed: int, device: torch.device) -> None:
    """Seed the generators that a step on ``device`` draws from: the CPU's and the device's own.

    They then draw what they draw after ``torch.manual_seed(seed)``. That function takes up to a millisecond, since for each kind of device that the process
    does not use it notes the request, with the stack of its caller.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        number = torch.cuda.current_device() if device.index is None else device.index
        torch.cuda.default_generators[number].manual_seed(seed)
    elif device.type != "cpu":
        torch.manual_seed(seed)


def address_seed(*address: int) -> int:
    """A 63-bit seed from the numbers of an address."""
    text = "/".join(map(str, address)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1
