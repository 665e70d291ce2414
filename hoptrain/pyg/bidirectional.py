"""PyG's ``BidirectionalNeighborSampler`` over hoptrain's samplers."""

from __future__ import annotations

from typing import Any

import torch
import torch_geometric.sampler
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.sampler import SamplerOutput
from torch_geometric.sampler.base import DataType, NumNeighbors, SubgraphType

from hoptrain.engine import InputError
from hoptrain.pyg.graphs import require_homogeneous
from hoptrain.pyg.sampler import NeighborSampler


class BidirectionalNeighborSampler(torch_geometric.sampler.BidirectionalNeighborSampler):
    """A drop-in replacement for PyG's ``BidirectionalNeighborSampler``: each hop follows edges in both directions. Use it with ``NodeLoader``.

    PyG's code samples hop by hop in each direction and merges the results. Edge ids are PyG's edge ids in both directions; in PyG the ids of edges
    that were found backward refer to another order.
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
        """Convert the graph in both directions, once for each ``Data`` object. ``share_memory`` has no effect.

        Raises:
            InputError: the graph is heterogeneous, times are given, trees have several hops, or ``subgraph_type`` is not "directional", all of
                which PyG's code does not support either; or ``NeighborSampler`` rejects an argument.
        """
        if disjoint and NumNeighbors(num_neighbors).num_hops > 1:
            raise InputError(f"disjoint with num_neighbors {num_neighbors}: PyG's code cannot merge trees of several hops; give one hop")
        if time_attr is not None or SubgraphType(subgraph_type) != SubgraphType.directional or not directed:
            raise InputError(
                f"time_attr is {time_attr!r} and subgraph_type {subgraph_type!r}: edges are sampled in both directions without times and as "
                "'directional'; leave these out"
            )
        options: dict[str, Any] = {"replace": replace, "disjoint": disjoint, "weight_attr": weight_attr, "is_sorted": is_sorted}
        options |= {"temporal_strategy": temporal_strategy}
        forward, backward = (
            _OneDirection(require_homogeneous(data), num_neighbors, sample_direction=direction, **options)
            for direction in ("forward", "backward")
        )
        self.forward_sampler: _OneDirection = forward
        self.backward_sampler: _OneDirection = backward
        self.num_neighbors = forward.num_neighbors
        self.num_nodes: Any = forward.num_nodes
        self.data_type: DataType = forward.data_type
        self.subgraph_type: SubgraphType = SubgraphType.directional
        self.node_time: None = None

    @property
    def num_neighbors(self) -> NumNeighbors:
        """Fanouts. PyG's own property also prints a warning for several hops."""
        return self._num_neighbors

    @num_neighbors.setter
    def num_neighbors(self, given: Any) -> None:
        self._num_neighbors = given if isinstance(given, NumNeighbors) else NumNeighbors(given)


class _OneDirection(NeighborSampler):
    """A sampler of one direction that returns PyG edge ids, so that the results of both directions can be merged."""

    def _sample(self, seed: Tensor, seed_time: Any = None, **_: Any) -> SamplerOutput:
        if len(seed) == 0:  # PyG also calls this for a hop whose previous hop found no new nodes
            none = torch.zeros(0, dtype=torch.int64)
            return SamplerOutput(none, none, none, none, none if self.disjoint else None, [0, 0], [0])
        out = super()._sample(seed, seed_time)
        out.edge = out.edge if self.perm is None else self.perm[out.edge]
        return out

    @property
    def edge_permutation(self) -> None:
        """None, since sampled edges already have PyG's ids."""
        return
