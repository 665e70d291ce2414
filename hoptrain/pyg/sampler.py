"""PyG's ``NeighborSampler`` over hoptrain's kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch_geometric.sampler
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.sampler import SamplerOutput
from torch_geometric.sampler.base import DataType, SubgraphType

from hoptrain.engine import Graph, InputError
from hoptrain.engine.arrays import Array
from hoptrain.pyg.arguments import checked_fanouts
from hoptrain.pyg.graphs import converted, homogeneous
from hoptrain.pyg.outputs import as_output
from hoptrain.samplers import MiniBatch, Sampler, TemporalSampler, Workspace
from hoptrain.samplers import NeighborSampler as HopSampler
from hoptrain.samplers.batch.copies import distinct, with_copies
from hoptrain.samplers.seeds.timed import TimedSeeds
from hoptrain.samplers.subgraphs.around import InducedSampler

STRATEGIES = {"uniform": "uniform", "last": "recent"}
"""PyG's word for a strategy -> hoptrain's."""


class NeighborSampler(torch_geometric.sampler.NeighborSampler):
    """For PyG's own loaders (``NodeLoader``, ``LinkLoader``, ``LightningNodeData``), and what those of ``hoptrain.pyg`` sample by.

    Arguments are those of PyG's ``NeighborSampler``, for ``Data`` objects. In PyG's own loaders a batch is drawn at an address that torch's
    generator gives, so that ``seed_everything`` repeats it.

    A seed that is asked for twice in a batch has the same neighbours both times; in PyG it is sampled twice.

    Attributes:
        graph: what is sampled.
        sampler: hoptrain's algorithm.
        source: (items) -> the mini-batch, in place of one that is sampled here and now.
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
        sample_direction: str = "forward",
    ) -> None:
        """Convert the graph, once for a ``Data`` object. ``share_memory`` has no meaning: workers share what they need.

        Raises:
            InputError: an option that hoptrain does not have, or that goes with no other.
        """
        _check(data, subgraph_type if directed else "induced", temporal_strategy, time_attr, weight_attr, disjoint, sample_direction)
        self.data_type = DataType.homogeneous
        self.sample_direction = sample_direction
        self.num_nodes = data.num_nodes
        is_timed = time_attr is not None
        self.node_time = data[time_attr] if is_timed and data.is_node_attr(time_attr) else None
        self.edge_time = data[time_attr] if is_timed and self.node_time is None else None
        self.num_neighbors = checked_fanouts(num_neighbors)
        self.replace = replace
        self.subgraph_type = SubgraphType(subgraph_type) if directed else SubgraphType.induced
        self.disjoint = disjoint
        self.temporal_strategy = temporal_strategy
        self.keep_orig_edges = False
        made = converted(
            data,
            backward=sample_direction == "backward",
            is_sorted=is_sorted,
            weight_attr=weight_attr,
            time_attr=time_attr,
            untimed=disjoint and not is_timed,
        )
        self.graph: Graph = made.graph
        self.perm = made.permutation
        self.source: Callable[[Array], MiniBatch] | None = None
        self._workspace = Workspace()
        self._made: tuple[list[int], Sampler] | None = None

    @property
    def sampler(self) -> Sampler:
        """By the options as they are now: PyG lets its users change ``num_neighbors``."""
        fanouts = [int(fanout) for fanout in self.num_neighbors.get_mapped_values()]
        if self._made is None or self._made[0] != fanouts:
            self._made = fanouts, self._make(fanouts)
        return self._made[1]

    def _make(self, fanouts: list[int]) -> Sampler:
        if self.disjoint:
            strategy: Any = STRATEGIES[self.temporal_strategy]
            return TimedSeeds(TemporalSampler(fanouts, strategy=strategy, replace=self.replace))
        hops = HopSampler(fanouts, replace=self.replace, weighted=self.graph.weights is not None, expand="new")
        return InducedSampler(hops, len(fanouts) + 1) if self.subgraph_type == SubgraphType.induced else hops

    def _sample(self, seed: Tensor, seed_time: Tensor | None = None, **_: Any) -> SamplerOutput:
        """PyG's own methods call it for the vertices of a batch, from nodes and from edges."""
        seeds, copies = (seed.numpy(), None) if self.disjoint else distinct(seed.numpy())
        items = np.concatenate([seeds, self._times(seed, seed_time).numpy()]) if self.disjoint else seeds
        batch = (self.source or self._sampled)(items)
        if copies is not None:
            batch = with_copies(batch, copies)
        out = as_output(batch, tells_trees=self.disjoint, tells_hops=self.subgraph_type != SubgraphType.induced)
        if self.sample_direction == "backward":
            out.row, out.col = out.col, out.row
        return out

    def _times(self, seed: Tensor, seed_time: Tensor | None) -> Tensor:
        if seed_time is not None:
            return seed_time
        if self.node_time is not None:
            return torch.as_tensor(self.node_time)[seed]
        if self.edge_time is not None:
            raise InputError("the seeds have no times, while edges have: give input_time (or edge_label_time), one for each seed")
        return torch.zeros_like(seed)

    def _sampled(self, items: Array) -> MiniBatch:
        """Here and now, at an address of torch's generator."""
        seed = int(torch.empty((), dtype=torch.int64).random_())
        return self.sampler.sample(self.graph, items, seed=seed, workspace=self._workspace)


def _check(data: Any, subgraph_type: Any, strategy: str, time_attr: Any, weight_attr: Any, disjoint: bool, direction: str) -> None:
    """Refuse what would change results if it were ignored."""
    homogeneous(data)
    if subgraph_type not in [each.value for each in SubgraphType] + list(SubgraphType):
        raise InputError(f"subgraph_type is {subgraph_type!r}: it is {', '.join(each.value for each in SubgraphType)}; choose one")
    if strategy == "last" and time_attr is None:
        raise InputError("temporal_strategy is 'last' without time_attr: nothing says which edge is the last; name the times")
    if strategy not in STRATEGIES:
        raise InputError(f"temporal_strategy is {strategy!r}: it is 'uniform' or 'last'; choose one")
    if direction not in ("forward", "backward"):
        raise InputError(f"sample_direction is {direction!r}: it is 'forward' or 'backward'; choose one")
    for name in (weight_attr, time_attr):
        if name is not None and name not in data:
            raise InputError(f"data has no attribute {name!r}: it has {', '.join(data.keys())}; name one of these")
    if weight_attr is not None and (time_attr is not None or disjoint):
        raise InputError(f"weight_attr {weight_attr!r} with time_attr or disjoint: edges are drawn by weight or by time; leave one out")
    if SubgraphType(subgraph_type) == SubgraphType.induced and (time_attr is not None or disjoint or direction == "backward"):
        raise InputError(
            "subgraph_type induced with disjoint, time_attr or sample_direction: trees have no edges but their own; choose one"
        )
