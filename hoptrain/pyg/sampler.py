"""PyG's ``NeighborSampler`` over hoptrain's samplers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch_geometric.sampler
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import HeteroSamplerOutput, NodeSamplerInput, SamplerOutput
from torch_geometric.sampler.base import DataType, NumNeighbors, SubgraphType
from torch_geometric.sampler.utils import reverse_edge_type

from hoptrain.engine import InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.gpu_memory.device_stream import to_host
from hoptrain.engine.hetero_graph import Relation
from hoptrain.pyg.arguments import STRATEGIES, check_fanouts, check_sampling
from hoptrain.pyg.graphs import convert
from hoptrain.pyg.hetero_graphs import convert_hetero
from hoptrain.pyg.outputs import as_output
from hoptrain.samplers import HeteroSampler, HeteroTemporalSampler, Sampler, TemporalSampler, Workspace
from hoptrain.samplers import NeighborSampler as HopSampler
from hoptrain.samplers.batch.copies import Copies, distinct, distinct_by_type, with_copies
from hoptrain.samplers.subgraphs.around import HeteroInducedSampler, InducedSampler
from hoptrain.samplers.wrappers.timed import TimedSeeds


class NeighborSampler(torch_geometric.sampler.NeighborSampler):
    """A drop-in replacement for PyG's ``NeighborSampler``, for the loaders of ``hoptrain.pyg`` and of PyG (``NodeLoader``, ``LightningNodeData``).

    It takes the arguments of PyG's class, for ``Data`` and ``HeteroData`` objects. In PyG's own loaders the random seed of a batch comes from torch's
    generator, so ``seed_everything`` makes runs repeatable.

    If a seed occurs twice in a batch, both occurrences have the same neighbours; PyG samples each occurrence separately.

    Attributes:
        graph: Converted graph that is sampled, a ``Graph`` or a ``HeteroGraph``.
        sampler: Sampler of hoptrain for the current ``num_neighbors``.
        source: Function from seeds to a mini-batch, set by a loader. If set, it is called instead of sampling in this process.
    """

    def __init__(
        self,
        data: Data | HeteroData,
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
        device: Any = None,
    ) -> None:
        """Convert the graph, once for each ``data`` object. ``share_memory`` has no effect: workers always share the graph.

        Raises:
            InputError: hoptrain does not support an argument, two arguments exclude each other, or ``device`` is given, which is the loader's.
        """
        if device is not None:
            raise InputError(
                f"device is {str(device)!r}: the loader decides where its sampler samples; give device to it, as in "
                "NeighborLoader(data, num_neighbors, neighbor_sampler=sampler, device=...)"
            )
        self.data_type: DataType = DataType.heterogeneous if isinstance(data, HeteroData) else DataType.homogeneous
        kind = subgraph_type if directed else "induced"
        check_sampling(data, kind, temporal_strategy, time_attr, weight_attr, disjoint, sample_direction)
        self.sample_direction = sample_direction
        self.num_neighbors = check_fanouts(num_neighbors, is_hetero=self.is_hetero)
        self.replace = replace
        self.subgraph_type: SubgraphType = SubgraphType(kind)
        self.disjoint = disjoint
        self.temporal_strategy = temporal_strategy
        self.keep_orig_edges = False
        self._set_counts_and_times(data, time_attr)
        options: dict[str, Any] = {"backward": sample_direction == "backward", "is_sorted": is_sorted}
        options |= {"weight_attr": weight_attr, "time_attr": time_attr, "untimed": disjoint and time_attr is None}
        made: Any = convert_hetero(data, **options) if self.is_hetero else convert(data, **options)
        self.graph: Any = made.graph
        self.perm: Any = made.permutation
        self._is_weighted = weight_attr is not None
        self.source: Callable[[Array], Any] | None = None
        self._workspace = Workspace()
        self._made: tuple[Any, Sampler[Any, Any]] | None = None

    def _set_counts_and_times(self, data: Any, time_attr: str | None) -> None:
        """Set the number of nodes and the times, which PyG's code reads to draw negatives."""
        if not self.is_hetero:
            self.num_nodes: Any = data.num_nodes
            of_nodes = time_attr is not None and data.is_node_attr(time_attr)
            self.node_time = data[time_attr] if of_nodes else None
            self.edge_time = None if of_nodes or time_attr is None else data[time_attr]
            return
        self.node_types: list[str] = data.node_types
        self.edge_types: list[Relation] = data.edge_types
        self.num_nodes = {kind: data[kind].num_nodes for kind in self.node_types}
        times = [
            {store._key: store[time_attr] for store in stores if time_attr in store} for stores in (data.node_stores, data.edge_stores)
        ]
        self.node_time, self.edge_time = (found or None for found in times)

    @property
    def num_neighbors(self) -> NumNeighbors:
        """Fanouts. They may be changed at any time, as in PyG."""
        return self._fanouts

    @num_neighbors.setter
    def num_neighbors(self, given: Any) -> None:
        self._fanouts = given if isinstance(given, NumNeighbors) else NumNeighbors(given)

    @property
    def sampler(self) -> Sampler[Any, Any]:
        """Sampler for the current ``num_neighbors``, which PyG lets users change."""
        fanouts = self.num_neighbors.get_values(self.edge_types if self.is_hetero else None)
        if self._made is None or self._made[0] != fanouts:
            self._made = fanouts, self._make_hetero(fanouts) if self.is_hetero else self._make(list(map(int, fanouts)))
        return self._made[1]

    def _make(self, fanouts: list[int]) -> Sampler:
        if self.disjoint:
            strategy: Any = STRATEGIES[self.temporal_strategy]
            return TimedSeeds(TemporalSampler(fanouts, strategy=strategy, replace=self.replace))
        hops = HopSampler(fanouts, replace=self.replace, weighted=self._is_weighted, expand="new")
        return InducedSampler(hops, len(fanouts) + 1) if self.subgraph_type == SubgraphType.induced else hops

    def _make_hetero(self, fanouts: dict[Relation, list[int]]) -> Sampler[Any, Any]:
        own: Any = {self.graph_name(relation): numbers for relation, numbers in fanouts.items()}
        if self.disjoint:
            strategy: Any = STRATEGIES[self.temporal_strategy]
            return TimedSeeds(HeteroTemporalSampler(own, strategy=strategy, replace=self.replace))
        hops = HeteroSampler(own, replace=self.replace, weighted=self._is_weighted, expand="new")
        return HeteroInducedSampler(hops, hops.num_hops + 1) if self.subgraph_type == SubgraphType.induced else hops

    def graph_name(self, relation: Relation) -> Relation:
        """Return the edge type of the converted graph for a PyG edge type, or the reverse. Backward sampling reverses edge types."""
        return reverse_edge_type(relation) if self.sample_direction == "backward" else relation

    def _sample(self, seed: Any, seed_time: Any = None, **_: Any) -> Any:
        """Sample around the seeds of a batch, by type in a heterogeneous graph. PyG's ``sample_from_nodes`` and ``sample_from_edges`` call this."""
        return self._sample_hetero(seed, seed_time) if self.is_hetero else self._sample_homogeneous(seed, seed_time)

    def items_of(self, inputs: NodeSamplerInput) -> Array:
        """Return the items (B,) that PyG's code requests to sample around these nodes: the seeds, and the seeds' times if each seed has its own tree."""
        kind: Any = inputs.input_type
        if not self.is_hetero:
            return self._homogeneous_items(inputs.node, inputs.time)[0]
        return self._hetero_items({kind: inputs.node}, None if inputs.time is None else {kind: inputs.time})[0]

    def _homogeneous_items(self, seed: Tensor, seed_time: Tensor | None) -> tuple[Array, dict[str, Copies]]:
        """Return distinct seeds, and the positions of repeated seeds, if any. If each seed has its own tree, return all seeds followed by times, and ``{}``."""
        if self.disjoint:
            return np.concatenate([seed.numpy(), self._times_of(None, seed, seed_time).numpy()]), {}
        seeds, copies = distinct(seed.numpy())
        return seeds, {} if copies is None else {"": copies}

    def _hetero_items(self, seed: dict[str, Tensor], seed_time: dict[str, Tensor] | None) -> tuple[Array, dict[str, Copies]]:
        """Return the items of seeds of several types, and the positions of repeated seeds by type."""
        given = {kind: ids.numpy() for kind, ids in seed.items()}
        if not self.disjoint:
            seeds, copies = distinct_by_type(given)
            return self.graph.numbered(seeds), copies
        times = [self._times_of(kind, ids, (seed_time or {}).get(kind)).numpy() for kind, ids in seed.items()]
        return np.concatenate([self.graph.numbered(given), *times]), {}

    def _sample_homogeneous(self, seed: Tensor, seed_time: Tensor | None) -> SamplerOutput:
        items, copies = self._homogeneous_items(seed, seed_time)
        batch = (self.source or self._sample_now)(items)
        if copies:
            batch = with_copies(batch.map(to_host), copies)
        out: SamplerOutput = as_output(batch, with_trees=self.disjoint, with_hop_counts=self.subgraph_type != SubgraphType.induced)
        if self.sample_direction == "backward":
            out.row, out.col = out.col, out.row
        return out

    def _sample_hetero(self, seed: dict[str, Tensor], seed_time: dict[str, Tensor] | None) -> HeteroSamplerOutput:
        items, copies = self._hetero_items(seed, seed_time)
        batch = (self.source or self._sample_now)(items)
        if copies:
            batch = with_copies(batch.map(to_host), copies)
        out: HeteroSamplerOutput = as_output(batch, with_trees=self.disjoint, with_hop_counts=self.subgraph_type != SubgraphType.induced)
        if self.sample_direction == "backward":
            for name in ("row", "col", "edge", "num_sampled_edges"):
                by_relation = getattr(out, name)
                if by_relation is not None:
                    setattr(out, name, {self.graph_name(relation): own for relation, own in by_relation.items()})
            out.row, out.col = out.col, out.row
        return out

    def _times_of(self, kind: str | None, seed: Tensor, given: Tensor | None) -> Tensor:
        """Return a time for each seed of the node type ``kind``; ``kind`` is None for a homogeneous graph."""
        own = self.node_time if kind is None else (self.node_time or {}).get(kind)
        if given is not None:
            return given
        if own is not None:
            return torch.as_tensor(own)[seed]
        if self.node_time is not None or self.edge_time is not None:
            raise InputError(
                "input_time is missing: edges have times, so seeds need them; give input_time (or edge_label_time), one for each seed"
            )
        return torch.zeros_like(seed)

    def _sample_now(self, items: Array) -> Any:
        """Sample a batch in this process, with a random seed from torch's generator."""
        seed = int(torch.empty((), dtype=torch.int64).random_())
        return self.sampler.sample(self.graph, items, seed=seed, workspace=self._workspace)
