"""From the vectors of a pair's two nodes to a score: what is near where an edge is."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn
from torch_geometric.nn import MLP

from hoptrain.engine import InputError
from hoptrain.engine.errors import check_choice

DecoderName: TypeAlias = Literal["dot", "mlp", "hadamard", "distmult", "complex"]


class Decoder(nn.Module):
    """Scores of pairs by the vectors of their nodes, a source and a destination each."""

    def against(self, given: Tensor, vectors: Tensor, is_source: bool) -> Tensor:
        """Scores (N, V) of ``given`` (N, C), as sources or as destinations, with each of ``vectors`` (V, C)."""
        rows = given[:, None]
        scores: Tensor = self(rows, vectors) if is_source else self(vectors, rows)
        return scores

    def numbers_a_pair(self, width: int) -> int:
        """How many numbers ``against`` holds at a time for each pair, for vectors with ``width`` channels."""
        return 2 * width


class Bilinear(Decoder):
    """The inner product of ``query(source)`` and the destination's vector: here of the source's own vector."""

    def query(self, source: Tensor) -> Tensor:
        """What a destination's vector is multiplied by, (..., C), for a source's vector (..., C)."""
        return source

    def forward(self, source: Tensor, destination: Tensor) -> Tensor:
        """Scores (...) of pairs of vectors (..., C), which broadcast."""
        return (self.query(source) * destination).sum(-1)

    def against(self, given: Tensor, vectors: Tensor, is_source: bool) -> Tensor:
        """See ``Decoder``: one product of matrices."""
        return self.query(given) @ vectors.T if is_source else given @ self.query(vectors).T

    def numbers_a_pair(self, width: int) -> int:
        """See ``Decoder``."""
        return 1


class DistMult(Bilinear):
    """A learned weight for each channel (Yang et al. 2015, "Embedding entities and relations for learning and inference", with one relation)."""

    def __init__(self, width: int) -> None:
        """Weights around 1, so that training begins near the inner product."""
        super().__init__()
        self.weights = nn.Parameter(1 + torch.randn(width) / 10)

    def query(self, source: Tensor) -> Tensor:
        """See ``Bilinear``."""
        return source * self.weights


class ComplEx(DistMult):
    """DistMult of complex numbers, whose second half of the channels is imaginary: a pair and its reverse score differently.

    Trouillon et al. 2016, "Complex embeddings for simple link prediction": the real part of <source, relation, conjugate of destination>.
    """

    def query(self, source: Tensor) -> Tensor:
        """See ``Bilinear``."""
        (real, imaginary), (weight, turn) = source.chunk(2, -1), self.weights.chunk(2, -1)
        return torch.cat([real * weight - imaginary * turn, real * turn + imaginary * weight], -1)


class PairMLP(nn.Module):
    """A hidden layer of ``width`` ReLUs on both vectors, side by side, and on features of the edge where there are some."""

    def __init__(self, width: int, num_outputs: int, edge_channels: int = 0) -> None:
        super().__init__()
        self.mlp: nn.Module = MLP([2 * width + edge_channels, width, num_outputs], norm=None)

    def forward(self, source: Tensor, destination: Tensor, *features: Tensor) -> Tensor:
        """(..., num_outputs) for pairs of vectors (..., C), which broadcast, and (..., D) features."""
        rows = torch.broadcast_tensors(source, destination)  # type: ignore[no-untyped-call]
        outputs: Tensor = self.mlp(torch.cat([*rows, *features], -1))
        return outputs


class MLPDecoder(Decoder):
    """A ``PairMLP`` with one output."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.pair = PairMLP(width, 1)

    def forward(self, source: Tensor, destination: Tensor) -> Tensor:
        """Scores (...) of pairs of vectors (..., C), which broadcast."""
        scores: Tensor = self.pair(source, destination)[..., 0]
        return scores


class HadamardDecoder(Decoder):
    """A hidden layer of ``width`` ReLUs on the product of both vectors, channel by channel: which end is the source makes no difference.

    The ``LinkPredictor`` of OGB's examples (``examples/linkproppred/ddi/gnn.py``) with two layers.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mlp = MLP([width, width, 1], norm=None)

    def forward(self, source: Tensor, destination: Tensor) -> Tensor:
        """Scores (...) of pairs of vectors (..., C), which broadcast."""
        scores: Tensor = self.mlp(source * destination)[..., 0]
        return scores


def make_decoder(name: DecoderName, width: int) -> Decoder:
    """A decoder of vectors with ``width`` channels.

    Raises:
        InputError: an unknown name, or an odd width of complex numbers.
    """
    check_choice("decoder", name, get_args(DecoderName))
    if name == "complex" and width % 2:
        raise InputError(f"out_channels is {width} with decoder complex: half of them are imaginary; give an even number")
    kinds: dict[str, Any] = {
        "dot": lambda _: Bilinear(),
        "mlp": MLPDecoder,
        "hadamard": HadamardDecoder,
        "distmult": DistMult,
        "complex": ComplEx,
    }
    decoder: Decoder = kinds[name](width)
    return decoder
