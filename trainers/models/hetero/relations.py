"""Scores of triples by the vectors of their ends and of their relation, after the papers that named them.

A model turns a head and a relation into what the tail should be like, and compares that with tails: so that one product of matrices scores a
query against all entities. Heads are looked for as the tails of inverse relations, which have vectors of their own (Lacroix et al. 2018, "Canonical
tensor decomposition for knowledge base completion").
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias, get_args

import torch
from torch import Tensor, nn

from hoptrain.engine import InputError
from hoptrain.engine.errors import check_choice

ScoreName: TypeAlias = Literal["distmult", "complex", "transe", "rotate"]


class TripleScore(NamedTuple):
    """A model of triples.

    Attributes:
        query: (heads (..., C), relations (..., D)) -> what tails are compared with, (..., C).
        match: (queries (N, C), tails (M, C)) -> how well each fits, (N, M); the more the better.
        match_own: (queries (N, C), tails (N, C)) -> how well query i and tail i fit, (N,).
        width: C -> D, numbers of a relation.
        begin: fills the table of the relations, (R, D), before the training.
    """

    query: Callable[[Tensor, Tensor], Tensor]
    match: Callable[[Tensor, Tensor], Tensor]
    match_own: Callable[[Tensor, Tensor], Tensor]
    width: Callable[[int], int]
    begin: Callable[[Tensor], Tensor]


def complex_product(head: Tensor, relation: Tensor) -> Tensor:
    """The product of complex numbers whose second half of the channels is imaginary."""
    (real, imaginary), (weight, turn) = head.chunk(2, -1), relation.chunk(2, -1)
    return torch.cat([real * weight - imaginary * turn, real * turn + imaginary * weight], -1)


def rotated(head: Tensor, angles: Tensor) -> Tensor:
    """Complex numbers (..., C), as of ``complex_product``, turned by ``angles`` (..., C / 2)."""
    return complex_product(head, torch.cat([angles.cos(), angles.sin()], -1))


def _around_one(table: Tensor) -> Tensor:
    """So that a training begins near the inner product."""
    begun: Tensor = nn.init.normal_(table, mean=1, std=0.1)
    return begun


def _products(queries: Tensor, tails: Tensor) -> Tensor:
    return queries @ tails.T


def _own_products(queries: Tensor, tails: Tensor) -> Tensor:
    return (queries * tails).sum(-1)


def _nearness(queries: Tensor, tails: Tensor) -> Tensor:
    distances: Tensor = torch.cdist(queries, tails)
    return -distances


def _own_nearness(queries: Tensor, tails: Tensor) -> Tensor:
    distances: Tensor = torch.linalg.vector_norm(queries - tails, dim=-1)
    return -distances


SCORES: dict[ScoreName, TripleScore] = {
    # Yang et al. 2015, "Embedding entities and relations for learning and inference in knowledge bases"
    "distmult": TripleScore(torch.mul, _products, _own_products, lambda channels: channels, _around_one),
    # Trouillon et al. 2016, "Complex embeddings for simple link prediction": channels of the second half are imaginary
    "complex": TripleScore(complex_product, _products, _own_products, lambda channels: channels, _around_one),
    # Bordes et al. 2013, "Translating embeddings for modeling multi-relational data", by the Euclidean distance
    "transe": TripleScore(torch.add, _nearness, _own_nearness, lambda channels: channels, nn.init.xavier_uniform_),
    # Sun et al. 2019, "RotatE: knowledge graph embedding by relational rotation in complex space", as PyG's by the Euclidean distance
    "rotate": TripleScore(rotated, _nearness, _own_nearness, lambda channels: channels // 2, lambda t: nn.init.uniform_(t, 0, 2 * math.pi)),
}


def score_named(name: ScoreName, channels: int) -> TripleScore:
    """The model of triples for vectors with ``channels``.

    Raises:
        InputError: an unknown name, or an odd number of channels for complex numbers.
    """
    check_choice("decoder", name, get_args(ScoreName))
    if name in ("complex", "rotate") and channels % 2:
        raise InputError(f"hidden_channels is {channels} with decoder {name}: half of them are imaginary; give an even number")
    return SCORES[name]
