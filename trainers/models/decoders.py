"""Link decoders: modules that compute the logit of a pair of nodes from the vectors of the two nodes."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn
from torch_geometric.nn import MLP

from hoptrain.engine import InputError
from hoptrain.engine.errors import check_choice

DecoderName: TypeAlias = Literal["dot", "mlp", "hadamard", "distmult", "complex"]


class Decoder(nn.Module):
    """A base module that computes logits of pairs from the vectors of a source and a destination."""

    def against(self, given: Tensor, vectors: Tensor, is_source: bool) -> Tensor:
        """Compute logits (N, V) of each of ``given`` (N, C) paired with each of ``vectors`` (V, C). ``is_source``: ``given`` are the sources."""
        rows = given[:, None]
        scores: Tensor = self(rows, vectors) if is_source else self(vectors, rows)
        return scores

    def numbers_a_pair(self, width: int) -> int:
        """Return how many values ``against`` stores for each pair at the same time, for vectors of ``width`` channels."""
        return 2 * width


class Bilinear(Decoder):
    """A decoder with the inner product of ``query(source)`` and the destination's vector; here, query is the identity."""

    def query(self, source: Tensor) -> Tensor:
        """Map source vectors (..., C) to the vectors (..., C) that are multiplied with those of destinations."""
        return source

    def forward(self, source: Tensor, destination: Tensor) -> Tensor:
        """Compute logits (...) of pairs of vectors (..., C), which broadcast."""
        return (self.query(source) * destination).sum(-1)

    def against(self, given: Tensor, vectors: Tensor, is_source: bool) -> Tensor:
        """Compute logits (N, V) by one matrix product."""
        return self.query(given) @ vectors.T if is_source else given @ self.query(vectors).T

    def numbers_a_pair(self, width: int) -> int:
        """Return 1: the matrix product stores only the logits."""
        return 1


class DistMult(Bilinear):
    """A decoder with a learned weight per channel (Yang et al. 2015, "Embedding entities and relations for learning and inference", one relation)."""

    def __init__(self, width: int) -> None:
        """Draw weights around 1, so that training begins near the inner product."""
        super().__init__()
        self.weights = nn.Parameter(1 + torch.randn(width) / 10)

    def query(self, source: Tensor) -> Tensor:
        """Return the source's vector times the channel weights."""
        return source * self.weights


class ComplEx(DistMult):
    """A DistMult decoder with complex numbers, whose imaginary parts are the second half of the channels. A pair and its reverse get different logits.

    Trouillon et al. 2016, "Complex embeddings for simple link prediction": the real part of <source, relation, conjugate of destination>.
    """

    def query(self, source: Tensor) -> Tensor:
        """Return the complex product of the source's vector and the weights."""
        (real, imaginary), (weight, turn) = source.chunk(2, -1), self.weights.chunk(2, -1)
        return torch.cat([real * weight - imaginary * turn, real * turn + imaginary * weight], -1)


class PairMLP(nn.Module):
    """An MLP on the concatenated vectors of a pair (and edge features, if any), with one hidden layer of ``width`` channels and ReLU."""

    def __init__(self, width: int, num_outputs: int, edge_channels: int = 0) -> None:
        super().__init__()
        self.mlp: nn.Module = MLP([2 * width + edge_channels, width, num_outputs], norm=None)

    def forward(self, source: Tensor, destination: Tensor, *features: Tensor) -> Tensor:
        """Compute outputs (..., num_outputs) from pairs of vectors (..., C), which broadcast, and features (..., D)."""
        rows = torch.broadcast_tensors(source, destination)  # type: ignore[no-untyped-call]
        outputs: Tensor = self.mlp(torch.cat([*rows, *features], -1))
        return outputs


class MLPDecoder(Decoder):
    """A decoder with a ``PairMLP`` of one output."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.pair = PairMLP(width, 1)

    def forward(self, source: Tensor, destination: Tensor) -> Tensor:
        """Compute logits (...) of pairs of vectors (..., C), which broadcast."""
        scores: Tensor = self.pair(source, destination)[..., 0]
        return scores


class HadamardDecoder(Decoder):
    """A symmetric decoder: an MLP on the element-wise product of both vectors, with one hidden layer of ``width`` channels and ReLU.

    It equals the ``LinkPredictor`` of OGB's examples (``examples/linkproppred/ddi/gnn.py``) with two layers.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mlp = MLP([width, width, 1], norm=None)

    def forward(self, source: Tensor, destination: Tensor) -> Tensor:
        """Compute logits (...) of pairs of vectors (..., C), which broadcast."""
        scores: Tensor = self.mlp(source * destination)[..., 0]
        return scores


def make_decoder(name: DecoderName, width: int) -> Decoder:
    """Build a decoder of vectors with ``width`` channels.

    Raises:
        InputError: the name is unknown, or ``complex`` is given with an odd width.
    """
    check_choice("decoder", name, get_args(DecoderName))
    if name == "complex" and width % 2:
        raise InputError(f"out_channels is {width} with decoder complex: half of the channels are imaginary parts; give an even number")
    kinds: dict[str, Any] = {
        "dot": lambda _: Bilinear(),
        "mlp": MLPDecoder,
        "hadamard": HadamardDecoder,
        "distmult": DistMult,
        "complex": ComplEx,
    }
    decoder: Decoder = kinds[name](width)
    return decoder
