"""PyG's subgraph loaders over hoptrain's samplers: ``ShaDowKHopSampler``, ``RandomNodeLoader``, ``ClusterData`` and ``ClusterLoader``."""

from __future__ import annotations

from math import ceil
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch_geometric.loader
from torch import Tensor
from torch.utils.data import DataLoader
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.data.hetero_data import to_homogeneous_edge_index
from torch_geometric.loader.cluster import Partition
from torch_geometric.loader.utils import filter_hetero_data

from hoptrain.engine import Graph, InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.hetero_graph import relation_name
from hoptrain.pyg.arguments import check_nodes
from hoptrain.pyg.features import edge_ids_in, feature_names, get_edge_ids, put, without
from hoptrain.pyg.feed import LoaderMixin, subgraph_of
from hoptrain.pyg.graphs import ConvertedGraph, convert, require_homogeneous
from hoptrain.pyg.hetero_graphs import ConvertedHeteroGraph, convert_hetero
from hoptrain.samplers import HeteroMiniBatch, Sampler, ShadowSampler
from hoptrain.samplers.batch.transfer import as_tensor
from hoptrain.samplers.loader.external_seeds import BatchSource
from hoptrain.samplers.subgraphs.around import HeteroInducedSampler, InducedSampler
from hoptrain.samplers.subgraphs.cluster import partition

_ALL_EDGES = 2
"""Number of blocks of a batch. Only the outermost block is read. With two blocks it contains all edges between the sampled nodes."""


class ShaDowKHopSampler(LoaderMixin, DataLoader[Any]):  # type: ignore[misc]  # torch annotates __iter__ with its own iterator class
    """A drop-in replacement for ``torch_geometric.loader.ShaDowKHopSampler`` with the same arguments and batches. It does not need torch-sparse."""

    def __init__(
        self, data: Data, depth: int, num_neighbors: int, node_idx: Tensor | None = None, replace: bool = False, **kwargs: Any
    ) -> None:
        """Convert the graph, once for each ``Data`` object. Workers start with the first epoch.

        Raises:
            InputError: ``replace`` is set, which hoptrain does not support, or another argument is invalid.
        """
        if replace:
            raise InputError("replace is True: hoptrain's ShaDow sampler draws without replacement; leave it out")
        self.data: Any = require_homogeneous(data)
        self.depth: int = depth
        self.num_neighbors: int = num_neighbors
        self.replace: bool = replace
        self._made = ShadowSampler(depth, num_neighbors, _ALL_EDGES)
        self._converted = convert(data)
        chosen = check_nodes(node_idx, data.num_nodes, "node_idx")
        nodes = torch.arange(data.num_nodes) if chosen is None else chosen
        self.node_idx: Any = nodes.nonzero().flatten() if nodes.dtype == torch.bool else nodes
        positions: Any = range(len(self.node_idx))
        super().__init__(positions, **self.torch_options(kwargs, self._made))

    @property
    def sampler_and_graph(self) -> tuple[Sampler, Graph]:
        """Prepared sampler, and the graph that it samples."""
        return self._made, self._converted.graph

    def items(self, index: list[int]) -> Array:
        """Return the roots (B,) of the batch."""
        roots: Array = self.node_idx[index].numpy()
        return roots

    def assembled(self, index: list[int], source: BatchSource, state: int) -> Batch:
        """Return PyG's batch: the subgraphs one after another, each with its root first."""
        batch, feed = source(self.items(index)), source.on_device
        device: Any = "cpu" if feed is None else feed.beside.torch_device
        others, roots = np.array(batch.subgraph_sizes), np.arange(batch.num_seeds)
        trees = torch.from_numpy(np.concatenate([roots, np.repeat(roots, others)])).to(device)
        order = trees.argsort(stable=True)
        new_id = torch.empty_like(order)
        new_id[order] = torch.arange(len(order), device=device)
        tensors = batch.to(device)
        block = tensors.blocks[0]
        edge_index = new_id[block.edge_index()]
        by_row = (edge_index[0] * len(order) + edge_index[1]).argsort(stable=True)
        edges = block.edge_ids.long() if self._converted.permutation is None else edge_ids_in(source)[""]
        ptr = torch.from_numpy(np.concatenate([[0], np.cumsum(others + 1)])).to(device)
        made = Batch(batch=trees[order], ptr=ptr)
        made.root_n_id = ptr[:-1].clone()
        made.edge_index = edge_index[:, by_row]
        self._put_attributes(made, tensors.node_ids.long()[order], order, edges[by_row], source)
        return made

    def _put_attributes(self, made: Batch, nodes: Tensor, order: Tensor, edges: Tensor, source: BatchSource) -> None:
        """Add the attributes of ``nodes``, whose gathered rows are still to be brought into ``order``, and of ``edges``."""
        feed, rows, whole = source.on_device, source.rows(), self.data
        if feed is not None:
            attributes = self.attributes(feed, feature_names(source.names))
            attributes.put(made, nodes, edges, source)
            whole = attributes.rest
            if "y" in made and self.data.is_node_attr("y"):
                made.y = made.y[made.root_n_id]
        for name in feature_names(rows):
            made[name] = as_tensor(rows[name])[order]
        for name, value in whole:
            if name not in ("edge_index", "adj_t", "num_nodes", "batch", "ptr", *rows):
                made[name] = self._filter(name, value, nodes, edges, made.root_n_id)

    def edge_ids(self) -> dict[str, Tensor]:
        """Return the PyG edge ids that workers look up, by their name in a batch."""
        return get_edge_ids(self._converted.permutation)

    def _filter(self, name: str, value: Any, nodes: Tensor, edges: Tensor, roots: Tensor) -> Any:
        """Return an attribute of the batch by PyG's rule: labels of the roots; rows of the nodes or edges; other values unchanged."""
        if not isinstance(value, Tensor) or not value.dim():
            return value
        if self.data.is_node_attr(name):  # if there are as many edges as nodes, PyG decides by the name of the attribute
            return value[nodes][roots] if name == "y" else value[nodes]
        return value[edges] if self.data.is_edge_attr(name) else value


class RandomNodeLoader(LoaderMixin, torch_geometric.loader.RandomNodeLoader):
    """A drop-in replacement for ``torch_geometric.loader.RandomNodeLoader`` with the same arguments and batches, also for heterogeneous graphs."""

    def __init__(self, data: Data | HeteroData, num_parts: int, **kwargs: Any) -> None:
        """Convert the graph, once for each data object. Workers start with the first epoch.

        Raises:
            InputError: ``num_parts`` is below 1, or ``batch_size`` contradicts it.
        """
        self._is_hetero, self._converted, self._made = isinstance(data, HeteroData), *_convert_and_induce(data)
        if num_parts < 1:
            raise InputError(f"num_parts is {num_parts}: the nodes are split into num_parts batches; give 1 or more")
        self.data, self.num_parts, self.num_nodes = data, num_parts, data.num_nodes
        self.edge_index: Any = None if self._is_hetero else data.edge_index
        if self._is_hetero:
            self.edge_index, self.node_dict, self.edge_dict = to_homogeneous_edge_index(data)
        options, size = self.torch_options(kwargs, self._made), ceil(self.num_nodes / num_parts)
        if options.get("batch_sampler") is None and options.setdefault("batch_size", size) != size:
            raise InputError(
                f"batch_size is {options['batch_size']}: must be {size}, which follows from num_parts {num_parts}; leave it out"
            )
        nodes: Any = range(self.num_nodes)
        # PyG's own __init__ passes a batch_size in addition to a batch_sampler, which torch does not accept.
        DataLoader.__init__(self, nodes, collate_fn=self.collate_fn, **options)

    @property
    def sampler_and_graph(self) -> tuple[Sampler[Any, Any], Any]:
        """Prepared sampler, and the graph that it samples."""
        return self._made, self._converted.graph

    def items(self, index: list[int]) -> Array:
        """Return the nodes (B,) of the batch."""
        return np.array(index)

    def assembled(self, index: list[int], source: BatchSource, state: int) -> Data | HeteroData:
        """Return ``data.subgraph(index)``. In heterogeneous graphs indices count the nodes of the first type first, and so on, as in PyG."""
        source(self.items(index))
        return (hetero_subgraph_of if self._is_hetero else subgraph_of)(self, source, self._converted)

    def edge_ids(self) -> dict[str, Tensor]:
        """Return the PyG edge ids that workers look up, by their name in a batch."""
        return get_edge_ids(self._converted.permutation)


def _convert_and_induce(data: Any) -> tuple[Any, Sampler[Any, Any]]:
    """Return the converted graph, and the sampler that takes all edges between given nodes."""
    if isinstance(data, HeteroData):
        return convert_hetero(data), HeteroInducedSampler(None, _ALL_EDGES)
    return convert(require_homogeneous(data)), InducedSampler(None, _ALL_EDGES)


def hetero_subgraph_of(loader: LoaderMixin, source: BatchSource, converted: ConvertedHeteroGraph) -> HeteroData:
    """Return the subgraph of a ``HeteroData``, as ``subgraph_of`` does for a ``Data``."""
    data, numbers = loader.data, edge_ids_in(source)
    tensors: HeteroMiniBatch = source.batch.to("cpu")
    rows, cols, edges = {}, {}, {}
    for relation, block in tensors.blocks[0].items():
        (row, col), own = block.edge_index(), block.edge_ids.long()
        if converted.permutation[relation] is not None:
            own, order = numbers[relation_name(relation)].sort()
            row, col = row[order], col[order]
        rows[relation], cols[relation], edges[relation] = row, col, own
    nodes = {kind: ids.long() for kind, ids in tensors.node_ids.items()}
    made = filter_hetero_data(without(data, feature_names(source.names)), nodes, rows, cols, edges)
    put(made, data, source.rows())
    return made


class ClusterData(torch_geometric.loader.ClusterData):
    """A drop-in replacement for PyG's ``ClusterData`` with METIS from pymetis (``pip install hoptrain[cluster]``), not pyg-lib or torch-sparse.

    A file in ``save_dir`` is read with ``weights_only=True``; files for which PyG falls back to unpickling raise ``InputError``.
    """

    def __init__(
        self,
        data: Data,
        num_parts: int,
        recursive: bool = False,
        save_dir: str | None = None,
        filename: str | None = None,
        log: bool = True,
        keep_inter_cluster_edges: bool = False,
        sparse_format: Literal["csr", "csc"] = "csr",
    ) -> None:
        """Compute the clusters, or read them from ``save_dir``.

        Raises:
            InputError: the graph is heterogeneous, or the file in ``save_dir`` does not hold clusters of this graph.
        """
        require_homogeneous(data)
        path = Path(save_dir or "") / f"part_{num_parts}{'_recursive' * recursive}" / (filename or "metis.pt")
        with torch.serialization.safe_globals([Partition]):
            if save_dir is not None and path.exists():
                _check_clusters(path, data)
            super().__init__(data, num_parts, recursive, save_dir, filename, log, keep_inter_cluster_edges, sparse_format)

    def _metis(self, edge_index: Tensor, num_nodes: int) -> Tensor:
        graph = Graph.from_edge_index(edge_index, num_nodes)
        return torch.from_numpy(partition(graph, self.num_parts).astype(np.int64)).to(edge_index.device)


def _check_clusters(path: Path, data: Data) -> None:
    """Raise InputError for a file that torch cannot read without unpickling, or that belongs to another graph."""
    remedy = "remove it, or set another save_dir"
    try:
        saved = torch.load(path, weights_only=True, mmap=True)
        sizes = len(saved.node_perm), len(saved.edge_perm)
    except Exception as error:  # torch has no exception class for unreadable files
        raise InputError(f"{path} holds no clusters ({type(error).__name__}): {remedy}") from None
    if sizes != (data.num_nodes, data.num_edges):
        raise InputError(f"{path} holds the clusters of another graph with {sizes[0]:,} nodes and {sizes[1]:,} edges: {remedy}")


class ClusterLoader(LoaderMixin, torch_geometric.loader.ClusterLoader):
    """A drop-in replacement for ``torch_geometric.loader.ClusterLoader`` with the same arguments and batches."""

    def __init__(self, cluster_data: torch_geometric.loader.ClusterData, **kwargs: Any) -> None:
        """Make a loader of ``cluster_data``. Workers start with the first epoch."""
        partition = cluster_data.partition
        self.data: Any = cluster_data.data
        self._made = InducedSampler(None, _ALL_EDGES)
        self._graph = Graph(partition.indptr.numpy(), partition.index.numpy())
        super().__init__(cluster_data, **self.torch_options(kwargs, self._made))

    @property
    def sampler_and_graph(self) -> tuple[Sampler, Graph]:
        """Prepared sampler, and the graph that it samples. If the clusters are stored as CSR, the columns of the graph are the rows of the CSR."""
        return self._made, self._graph

    def items(self, index: list[int]) -> Array:
        """Return the nodes (B,) of the clusters of the batch."""
        begins = self.cluster_data.partition.partptr.tolist()
        return np.concatenate([np.arange(begins[i], begins[i + 1]) for i in index])

    def assembled(self, index: list[int], source: BatchSource, state: int) -> Data:
        """Return the subgraph that the nodes of the clusters ``index`` induce."""
        source(self.items(index))
        made = subgraph_of(self, source, ConvertedGraph(self._graph, None))
        if self.cluster_data.partition.sparse_format == "csr":
            made.edge_index = made.edge_index.flip(0)
        return made
