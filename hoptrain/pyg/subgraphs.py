"""PyG's loaders of subgraphs, fed by hoptrain: ShaDow's, of random vertices, of clusters."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch_geometric.loader
from torch import Tensor
from torch.utils.data import DataLoader
from torch_geometric.data import Batch, Data

from hoptrain.engine import Graph, InputError
from hoptrain.pyg.arguments import checked_nodes, honoured
from hoptrain.pyg.feed import Fed, subgraph_of
from hoptrain.pyg.graphs import Converted, converted, homogeneous
from hoptrain.samplers import Sampler, ShadowSampler
from hoptrain.samplers.feed.given_feed import Source
from hoptrain.samplers.subgraphs.around import InducedSampler
from hoptrain.samplers.subgraphs.cluster import partition

_ALL_EDGES = 2
"""Blocks of a batch: of two the outermost has all edges, and it alone is read."""


class ShaDowKHopSampler(Fed, DataLoader[Any]):  # type: ignore[misc]  # torch names the class of its iterator
    """PyG's, by name, arguments and batches; see ``torch_geometric.loader.ShaDowKHopSampler``. It needs no torch-sparse."""

    def __init__(
        self, data: Data, depth: int, num_neighbors: int, node_idx: Tensor | None = None, replace: bool = False, **kwargs: Any
    ) -> None:
        """Convert the graph, once for a ``Data`` object; nothing is started yet.

        Raises:
            InputError: an option that hoptrain does not have: ``replace``.
        """
        if replace:
            raise InputError("replace is True: hoptrain's ShaDow takes distinct neighbours; leave it out")
        self.data = homogeneous(data)
        self.depth, self.num_neighbors, self.replace = depth, num_neighbors, replace
        self._made = ShadowSampler(depth, num_neighbors, _ALL_EDGES)
        self._converted = converted(data)
        chosen = checked_nodes(node_idx, data.num_nodes, "node_idx")
        nodes = torch.arange(data.num_nodes) if chosen is None else chosen
        self.node_idx = nodes.nonzero().flatten() if nodes.dtype == torch.bool else nodes
        positions: Any = range(len(self.node_idx))
        super().__init__(positions, **honoured(kwargs))

    @property
    def sampler_and_graph(self) -> tuple[Sampler, Graph]:
        """What is sampled by what."""
        return self._made, self._converted.graph

    def assembled(self, index: list[int], source: Source, state: int) -> Batch:
        """With the subgraphs one after another, as PyG has them; in each of them the root stands first."""
        batch = source(self.node_idx[index].numpy())
        others, roots = np.array(batch.subgraph_sizes), np.arange(batch.num_seeds)
        trees = np.concatenate([roots, np.repeat(roots, others)])
        order = torch.from_numpy(np.argsort(trees, kind="stable"))
        place = torch.empty_like(order)
        place[order] = torch.arange(len(order))
        tensors, numbers = batch.to("cpu"), self._converted.permutation
        edge_index = place[tensors.blocks[0].edge_index()]
        by_row = (edge_index[0] * len(order) + edge_index[1]).argsort()
        nodes, edges = tensors.node_ids.long()[order], tensors.blocks[0].edge_ids.long()[by_row]
        edges = edges if numbers is None else numbers[edges]
        ptr = torch.from_numpy(np.concatenate([[0], np.cumsum(others + 1)]))
        made = Batch(batch=torch.from_numpy(trees)[order], ptr=ptr)
        made.root_n_id = ptr[:-1].clone()
        made.edge_index = edge_index[:, by_row]
        for name, value in self.data:
            if name in ("edge_index", "adj_t", "num_nodes", "batch", "ptr"):
                continue
            made[name] = (
                tensors.x[order] if name == "x" and tensors.x is not None else self._filtered(name, value, nodes, edges, made.root_n_id)
            )
        return made

    def _filtered(self, name: str, value: Any, nodes: Tensor, edges: Tensor, roots: Tensor) -> Any:
        """PyG's rule: labels are the roots', what has a row for each vertex or each edge is filtered, the rest stays."""
        length = len(value) if isinstance(value, Tensor) and value.dim() else None
        if length == self.data.num_nodes:
            return value[nodes][roots] if name == "y" else value[nodes]
        return value[edges] if length == self.data.num_edges else value


class RandomNodeLoader(Fed, torch_geometric.loader.RandomNodeLoader):
    """PyG's, by name, arguments and batches, for a homogeneous ``Data``; see ``torch_geometric.loader.RandomNodeLoader``."""

    def __init__(self, data: Data, num_parts: int, **kwargs: Any) -> None:
        """Convert the graph, once for a ``Data`` object; nothing is started yet.

        Raises:
            InputError: no part.
        """
        self._converted, self._made = converted(homogeneous(data)), InducedSampler(None, _ALL_EDGES)
        if num_parts < 1:
            raise InputError(f"num_parts is {num_parts}: the vertices are dealt out in 1 or more parts; correct it")
        super().__init__(data, num_parts, **honoured(kwargs))

    @property
    def sampler_and_graph(self) -> tuple[Sampler, Graph]:
        """What is sampled by what."""
        return self._made, self._converted.graph

    def assembled(self, index: list[int], source: Source, state: int) -> Data:
        """As ``data.subgraph(index)``."""
        return subgraph_of(self.data, source(np.array(index)), self._converted)


class ClusterData(torch_geometric.loader.ClusterData):
    """PyG's, with METIS from pymetis (``pip install hoptrain[cluster]``) in place of pyg-lib's or torch-sparse's."""

    def _metis(self, edge_index: Tensor, num_nodes: int) -> Tensor:
        graph = Graph.from_edge_index(edge_index, num_nodes)
        return torch.from_numpy(partition(graph, self.num_parts).astype(np.int64)).to(edge_index.device)


class ClusterLoader(Fed, torch_geometric.loader.ClusterLoader):
    """PyG's, by name, arguments and batches; see ``torch_geometric.loader.ClusterLoader``."""

    def __init__(self, cluster_data: torch_geometric.loader.ClusterData, **kwargs: Any) -> None:
        """Take the clusters; nothing is started yet."""
        partition = cluster_data.partition
        self.data, self._made = cluster_data.data, InducedSampler(None, _ALL_EDGES)
        self._graph = Graph(partition.indptr.numpy(), partition.index.numpy())
        super().__init__(cluster_data, **honoured(kwargs))

    @property
    def sampler_and_graph(self) -> tuple[Sampler, Graph]:
        """What is sampled by what. Columns of the graph are rows where the clusters are kept by rows."""
        return self._made, self._graph

    def assembled(self, index: list[int], source: Source, state: int) -> Data:
        """The clusters, and the edges between all of their vertices."""
        begins = self.cluster_data.partition.partptr.tolist()
        batch = source(np.concatenate([np.arange(begins[i], begins[i + 1]) for i in index]))
        made = subgraph_of(self.data, batch, Converted(self._graph, None))
        if self.cluster_data.partition.sparse_format == "csr":
            made.edge_index = made.edge_index.flip(0)
        return made
