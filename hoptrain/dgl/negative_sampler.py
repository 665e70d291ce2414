"""DGL's negative samplers, with random draws from torch's generator: ``from hoptrain.dgl import negative_sampler``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hoptrain.dgl.outputs import dgl

PerSourceUniform: Any = dgl.dataloading.negative_sampler.PerSourceUniform
Uniform: Any = PerSourceUniform

_ROUNDS = 4
"""Maximum number of rounds that draw missing negatives. After the last round, fewer negatives than requested may be returned."""


class GlobalUniform(dgl.dataloading.negative_sampler.GlobalUniform):
    """A drop-in replacement for DGL's ``GlobalUniform``: negatives drawn uniformly from all pairs that are not edges, for a whole batch together.

    Negatives are in the order in which they were drawn. Without ``replace`` they are distinct. In a dense graph there may be fewer than k per edge
    of the batch.
    """

    k: int
    exclude_self_loops: bool
    replace: bool

    def _generate(self, g: Any, eids: Tensor, canonical_etype: tuple[str, str, str]) -> tuple[Tensor, Tensor]:
        (source, _, destination), wanted = canonical_etype, len(eids) * self.k
        num_src, num_dst = int(g.num_nodes(source)), int(g.num_nodes(destination))
        no_loops = self.exclude_self_loops and source == destination
        density = min(g.num_edges(canonical_etype) / max(num_src * num_dst, 1), 0.9)
        pairs = torch.empty((2, 0), dtype=g.idtype)
        for _ in range(_ROUNDS):
            missing = wanted - pairs.shape[1]
            if missing <= 0:
                break
            # Draws that hit edges are rejected, so more pairs are drawn: by the expected number of rejections and three standard deviations.
            number = int((missing + 3 * missing**0.5) / (1 - density)) + 1
            drawn = torch.stack([torch.randint(most, (number,), dtype=g.idtype) for most in (num_src, num_dst)])
            is_edge = g.has_edges_between(*drawn, etype=canonical_etype)
            kept = ~is_edge & (drawn[0] != drawn[1]) if no_loops else ~is_edge
            pairs = torch.cat([pairs, drawn[:, kept]], dim=1)
            pairs = pairs if self.replace else pairs[:, _first(pairs, num_dst)]
        return pairs[0, :wanted].contiguous(), pairs[1, :wanted].contiguous()


def _first(pairs: Tensor, num_dst: int) -> Tensor:
    """Return the index of the first occurrence of each distinct pair, ascending."""
    keys, order = torch.sort(pairs[0].long() * num_dst + pairs[1], stable=True)
    is_first = torch.ones_like(keys, dtype=torch.bool)
    is_first[1:] = keys[1:] != keys[:-1]
    return order[is_first].sort().values
