"""PyG's ``BidirectionalNeighborSampler`` over hoptrain's kernels."""

from __future__ import annotations

from typing import Any

import torch
import torch_geometric.sampler
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.sampler import SamplerOutput
from torch_geometric.sampler.base import DataType, NumNeighbors, SubgraphType

from hoptrain.engine import InputError
from hoptrain.pyg.graphs import homogeneous
from hoptrain.pyg.sampler import NeighborSampler


class BidirectionalNeighborSampler(torch_geometric.sampler.BidirectionalNeighborSampler):
    """PyG's, by name and arguments, for PyG's own loaders (``NodeLoader``): each hop goes along the edges and against them.

    PyG's code asks both ways for one hop after another and merges what it gets. Edges have the user's numbers both ways; in PyG those found against
    the edges count in another order.
    """

    def __init__(
        self,
        data: Data,
        num_neighbors: Any,
        subgraph_type: SubgraphType | str = "directional",
        replace: bool = False,
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: str | None = None,
        weight_attr: str | None = None,
        is_sorted: bool = False,
        share_memory: bool = False,
        directed: bool = True,
    ) -> None:
        """Convert the graph both ways, once for a ``Data`` object. ``share_memory`` has no meaning.

        Raises:
            InputError: a heterogeneous graph, times, trees of several hops or another ``subgraph_type``, at which PyG's fails, too; as ``NeighborSampler``.
        """
        if disjoint and NumNeighbors(num_neighbors).num_hops > 1:
            raise InputError(f"disjoint with num_neighbors {num_neighbors}: PyG's code cannot join several hops of trees; take one hop")
        if time_attr is not None or SubgraphType(subgraph_type) != SubgraphType.directional or not directed:
            raise InputError(
                f"time_attr is {time_attr!r} and subgraph_type {subgraph_type!r}: edges are taken both ways as they are drawn; leave these out"
            )
        options: dict[str, Any] = {"replace": replace, "disjoint": disjoint, "weight_attr": weight_attr, "is_sorted": is_sorted}
        options |= {"temporal_strategy": temporal_strategy}
        forward, backward = (
            _Numbered(homogeneous(data), num_neighbors, sample_direction=direction, **options) for direction in ("forward", "backward")
        )
        self.forward_sampler: _Numbered = forward
        self.backward_sampler: _Numbered = backward
        self.num_neighbors = forward.num_neighbors
        self.num_nodes: Any = forward.num_nodes
        self.data_type: DataType = forward.data_type
        self.subgraph_type: SubgraphType = SubgraphType.directional
        self.node_time: None = None

    @property
    def num_neighbors(self) -> NumNeighbors:
        """As PyG, which tells of several hops by a print."""
        return self._num_neighbors

    @num_neighbors.setter
    def num_neighbors(self, given: Any) -> None:
        self._num_neighbors = given if isinstance(given, NumNeighbors) else NumNeighbors(given)


class _Numbered(NeighborSampler):
    """One way, with edges by the user's numbers: those of two ways can be merged."""

    def _sample(self, seed: Tensor, seed_time: Any = None, **_: Any) -> SamplerOutput:
        if len(seed) == 0:  # PyG's code asks for a hop from nowhere, too
            none = torch.zeros(0, dtype=torch.int64)
            return SamplerOutput(none, none, none, none, none if self.disjoint else None, [0, 0], [0])
        out = super()._sample(seed, seed_time)
        out.edge = out.edge if self.perm is None else self.perm[out.edge]
        return out

    @property
    def edge_permutation(self) -> None:
        """None: edges have their numbers already."""
        return
