"""PyG's ``HGTLoader`` over hoptrain's HGT sampler."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch_geometric.loader
from torch_geometric.data import HeteroData
from torch_geometric.loader import NodeLoader
from torch_geometric.sampler import BaseSampler, HeteroSamplerOutput, NodeSamplerInput

from hoptrain.engine import InputError
from hoptrain.engine.arrays import Array
from hoptrain.pyg.arguments import check_seeds
from hoptrain.pyg.hetero_graphs import convert_hetero
from hoptrain.pyg.hops import NodeLoaderMixin
from hoptrain.pyg.outputs import as_output
from hoptrain.samplers import HGTSampler
from hoptrain.samplers.batch.copies import Copies, distinct_by_type, with_copies
from hoptrain.samplers.loader.external_seeds import BatchSource

_LAYERS = 2
"""Number of blocks of a batch. Only the outermost block is read. With two blocks it contains all edges between the sampled nodes."""


class _Budgets(BaseSampler):
    """An HGT sampler that samples a given number of nodes per type and hop, and has the interface of PyG's samplers."""

    def __init__(self, data: HeteroData, num_samples: Any, is_sorted: bool) -> None:
        made = convert_hetero(data, is_sorted=is_sorted)
        self.graph, self.perm = made.graph, made.permutation
        self.sampler = HGTSampler(num_samples, num_layers=_LAYERS).prepare(self.graph, np.zeros(0, np.int64))
        self.source: BatchSource | None = None

    def graph_name(self, relation: Any) -> Any:
        """Return ``relation``: the converted graph has the same edge types."""
        return relation

    def items_of(self, inputs: NodeSamplerInput) -> Array:
        """Return the items (B,) of the seeds of a batch."""
        return self._items(inputs)[0]

    def _items(self, inputs: NodeSamplerInput) -> tuple[Array, dict[str, Copies]]:
        """Return the items of the distinct seeds, and the positions of repeated seeds."""
        seeds, copies = distinct_by_type({inputs.input_type: inputs.node.numpy()})
        return self.graph.numbered(seeds), copies

    def sample_from_nodes(self, inputs: NodeSamplerInput) -> HeteroSamplerOutput:
        """Return the sample around the seeds of a batch. The loader sets ``source`` before PyG's code calls this."""
        items, copies = self._items(inputs)
        source: Any = self.source
        batch = source(items)
        out: HeteroSamplerOutput = as_output(with_copies(batch, copies) if copies else batch, with_trees=False, with_hop_counts=False)
        out.metadata = (inputs.input_id, inputs.time)
        return out

    def sample_from_edges(self, inputs: Any, neg_sampling: Any = None) -> Any:
        """Raise InputError: as in PyG, HGT sampling does not start from links."""
        raise InputError("links as seeds of HGTLoader: HGT sampling starts from nodes; use LinkNeighborLoader")

    @property
    def edge_permutation(self) -> Any:
        """PyG edge id of each CSC position, by edge type."""
        return self.perm


class HGTLoader(NodeLoaderMixin, torch_geometric.loader.HGTLoader):
    """A drop-in replacement for ``torch_geometric.loader.HGTLoader`` with the same arguments and batches. It does not need torch-sparse.

    All in-edges of a sampled node add to the budgets; PyG looks at 50 of them at most.
    """

    hops_type = _Budgets

    def __init__(
        self,
        data: HeteroData,
        num_samples: Any,
        input_nodes: Any,
        is_sorted: bool = False,
        transform: Any = None,
        transform_sampler_output: Any = None,
        filter_per_worker: bool | None = None,
        **kwargs: Any,
    ) -> None:
        """Convert the graph, once for each ``HeteroData`` object. Workers start with the first epoch.

        Raises:
            InputError: ``data`` is not a ``HeteroData``, ``num_samples`` does not fit its node types, or hoptrain does not support an option.
        """
        if not isinstance(data, HeteroData):
            raise InputError(f"data is a {type(data).__name__}: this loader samples by node type; give a HeteroData, or use NeighborLoader")
        self._budgets = _Budgets(data, num_samples, is_sorted)
        nodes, _ = check_seeds(data, input_nodes)
        self.data: Any = data
        options = self.torch_options(kwargs, self._budgets.sampler, filter_per_worker=filter_per_worker)
        NodeLoader.__init__(
            self,
            data,
            self._budgets,
            nodes,
            transform=transform,
            transform_sampler_output=transform_sampler_output,
            filter_per_worker=False,
            **options,
        )

    @property
    def hops(self) -> _Budgets:
        """Sampler that PyG's code calls."""
        return self._budgets
