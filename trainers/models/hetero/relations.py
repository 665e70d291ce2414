"""Scoring functions of knowledge graph triples, computed from the vectors of head, relation and tail. Their names are those in their papers.

A scoring function combines head and relation to a query vector and compares it with tails, so one matrix product scores a query against all entities.
Heads are predicted as tails of inverse relations, which have their own vectors (Lacroix et al. 2018, "Canonical tensor decomposition for knowledge
base completion").
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
    """A scoring function of triples.

    Attributes:
        query: maps heads (..., C) and relations (..., D) to queries (..., C), which are compared with tails.
        match: maps queries (N, C) and tails (M, C) to logits (N, M); higher is better.
        match_own: maps queries (N, C) and tails (N, C) to logits (N,) of query i and tail i.
        width: function from the width C of entity vectors to the width D of relation vectors.
        begin: function that initialises the relation vectors (R, D) in place.
    """

    query: Callable[[Tensor, Tensor], Tensor]
    match: Callable[[Tensor, Tensor], Tensor]
    match_own: Callable[[Tensor, Tensor], Tensor]
    width: Callable[[int], int]
    begin: Callable[[Tensor], Tensor]


def complex_product(head: Tensor, relation: Tensor) -> Tensor:
    """Return the element-wise product of complex vectors; the second half of the channels holds the imaginary parts."""
    (real, imaginary), (weight, turn) = head.chunk(2, -1), relation.chunk(2, -1)
    return torch.cat([real * weight - imaginary * turn, real * turn + imaginary * weight], -1)


def rotate(head: Tensor, angles: Tensor) -> Tensor:
    """Rotate complex vectors (..., C), laid out as in ``complex_product``, by ``angles`` (..., C / 2)."""
    return complex_product(head, torch.cat([angles.cos(), angles.sin()], -1))


def _around_one(table: Tensor) -> Tensor:
    """Initialise relation vectors with values around 1, so that training begins near the inner product."""
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
    # Trouillon et al. 2016, "Complex embeddings for simple link prediction": the second half of the channels are imaginary parts
    "complex": TripleScore(complex_product, _products, _own_products, lambda channels: channels, _around_one),
    # Bordes et al. 2013, "Translating embeddings for modeling multi-relational data", with the Euclidean distance
    "transe": TripleScore(torch.add, _nearness, _own_nearness, lambda channels: channels, nn.init.xavier_uniform_),
    # Sun et al. 2019, "RotatE: knowledge graph embedding by relational rotation in complex space", with the Euclidean distance as in PyG
    "rotate": TripleScore(rotate, _nearness, _own_nearness, lambda channels: channels // 2, lambda t: nn.init.uniform_(t, 0, 2 * math.pi)),
}


def score_named(name: ScoreName, channels: int) -> TripleScore:
    """Return the scoring function with a name, for vectors of ``channels`` channels.

    Raises:
        InputError: the name is unknown, or the number of channels is odd and the function needs complex vectors.
    """
    check_choice("decoder", name, get_args(ScoreName))
    if name in ("complex", "rotate") and channels % 2:
        raise InputError(
            f"hidden_channels is {channels} with decoder {name}: half of the channels are imaginary parts; give an even number"
        )
    return SCORES[name]
