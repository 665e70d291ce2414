"""DGL's subgraph samplers over hoptrain's samplers: ``ShaDowKHopSampler`` and ``ClusterGCNSampler``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hoptrain.dgl.blocks import move_to
from hoptrain.dgl.graphs import ConvertedGraph, as_ids, convert, is_hetero, on_host, require_homogeneous
from hoptrain.dgl.hetero import get_hetero_sampler, items_by_type
from hoptrain.dgl.outputs import as_subgraph, dgl
from hoptrain.dgl.sampler import Sampled, as_fanouts
from hoptrain.engine import InputError
from hoptrain.engine.errors import one_line
from hoptrain.engine.files.untrusted import read_npz
from hoptrain.samplers import HeteroSampler, Sampler
from hoptrain.samplers import NeighborSampler as Neighbor
from hoptrain.samplers.batch.copies import distinct
from hoptrain.samplers.subgraphs.around import InducedSampler
from hoptrain.samplers.wrappers.excluding import ExcludingSampler, items_of

ALL_EDGES = 2
"""Number of blocks of a batch. Only the outermost block is read. With two blocks it contains all edges between the sampled nodes."""


class ShaDowKHopSampler(Sampled, dgl.dataloading.ShaDowKHopSampler):
    """A drop-in replacement for ``dgl.dataloading.ShaDowKHopSampler``: one subgraph for all seeds of a batch."""

    fanouts: Any
    prob: str | None
    replace: bool
    prefetch_node_feats: Any
    prefetch_edge_feats: Any
    output_device: Any

    def features(self) -> Any:
        """Return the names of the nodes' features to gather; for heterogeneous graphs a dictionary by node type."""
        return self.prefetch_node_feats or []

    def of(self, g: Any) -> tuple[Sampler[Any, Any], Any]:
        """Return hoptrain's sampler, prepared for ``g``, and the converted graph."""
        if is_hetero(on_host(g)):
            options = {"replace": self.replace, "weighted": self.prob is not None}
            return get_hetero_sampler(g, self.fanouts, HeteroSampler, "in", self.prob, ALL_EDGES, **options)
        fanouts, replace, weighted = as_fanouts(self.fanouts), self.replace, self.prob is not None

        def make() -> Sampler:
            return ExcludingSampler(InducedSampler(Neighbor(fanouts, replace=replace, weighted=weighted), ALL_EDGES))

        made = convert(g, "in", self.prob)
        return made.get_or_make((ShaDowKHopSampler, *fanouts, replace, weighted), make), made

    def sample(self, g: Any, seed_nodes: Any, exclude_eids: Any = None) -> tuple[Any, Any, Any]:
        """Return the nodes of the subgraph, the seeds, and the subgraph without the edges ``exclude_eids``. In heterogeneous graphs ids are by type.

        Raises:
            InputError: a seed or an edge does not exist.
        """
        if is_hetero(on_host(g)):
            items, _ = items_by_type(g, self.of(g)[1], seed_nodes, exclude_eids)
            nodes, subgraph = sample_subgraph(self, g, items, self.prefetch_node_feats, self.prefetch_edge_feats)
            return nodes, seed_nodes, subgraph
        seeds, _ = distinct(as_ids(seed_nodes))
        excluded = None if exclude_eids is None else self.of(g)[1].csc_positions(as_ids(exclude_eids))
        nodes, subgraph = sample_subgraph(self, g, items_of(seeds, excluded), self.prefetch_node_feats, self.prefetch_edge_feats)
        return nodes, seed_nodes, subgraph


class ClusterGCNSampler(Sampled, dgl.dataloading.Sampler):
    """A drop-in replacement for ``dgl.dataloading.ClusterGCNSampler`` with the same arguments and results.

    DGL's METIS finds the clusters. The file at ``cache_path`` is in NumPy's ``.npz`` format, whatever its name. DGL's own file, a pickle, is not
    opened.

    Attributes:
        partition_offset: (k+1,) int64 offset of each cluster in ``partition_node_ids``.
        partition_node_ids: (V,) int64 node ids, sorted by cluster.
    """

    def __init__(
        self,
        g: Any,
        k: int,
        cache_path: str = "cluster_gcn.pkl",
        balance_ntypes: Any = None,
        balance_edges: bool = False,
        mode: str = "k-way",
        prefetch_ndata: Any = None,
        prefetch_edata: Any = None,
        output_device: Any = None,
    ) -> None:
        """Compute the clusters and write them to ``cache_path``, or read them if the file exists.

        Raises:
            InputError: the graph is heterogeneous, or the file does not hold ``k`` clusters of this graph.
        """
        require_homogeneous(g)
        if not os.path.exists(cache_path):
            parts = dgl.metis_partition_assignment(
                g.long(), k, balance_ntypes=balance_ntypes, balance_edges=balance_edges, mode=mode
            ).numpy()
            with open(cache_path, "wb") as file:
                np.savez(file, cluster_of=parts)
        cluster_of = _read(Path(cache_path), k, int(g.num_nodes()))
        self.partition_offset: Any = torch.from_numpy(np.concatenate([[0], np.cumsum(np.bincount(cluster_of, minlength=k))]))
        self.partition_node_ids: Any = torch.from_numpy(np.argsort(cluster_of, kind="stable"))
        self.prefetch_ndata: Any = prefetch_ndata or []
        self.prefetch_edata: Any = prefetch_edata or []
        self.output_device = output_device

    def features(self) -> list[str]:
        """Return the names of the node features to gather."""
        return list(self.prefetch_ndata)

    def of(self, g: Any) -> tuple[Sampler, ConvertedGraph]:
        """Return hoptrain's sampler, prepared for ``g``, and the converted graph."""
        made = convert(g)
        return made.get_or_make(ClusterGCNSampler, lambda: InducedSampler(None, ALL_EDGES)), made

    def sample(self, g: Any, partition_ids: Tensor) -> Any:
        """Return the subgraph of the clusters ``partition_ids`` (B,), with all edges within and between them."""
        begins = self.partition_offset.tolist()
        members = [self.partition_node_ids[begins[i] : begins[i + 1]] for i in as_ids(partition_ids).tolist()]
        return sample_subgraph(self, g, torch.cat(members).numpy(), self.prefetch_ndata, self.prefetch_edata)[1]


def sample_subgraph(sampler: Any, g: Any, items: Any, node_names: Any, edge_names: Any, edge_dir: str = "in") -> tuple[Any, Any]:
    """Return the nodes and the subgraph of a batch on the sampler's ``output_device``.

    Args:
        sampler: Sampler of ``hoptrain.dgl``.
        g: DGL graph that is sampled.
        items: Seeds of the batch.
        node_names: Names of node features that DGL fetches later.
        edge_names: Names of edge features that DGL fetches later.
        edge_dir: "out" if the edges were reversed for sampling, otherwise "in".
    """
    nodes, subgraph = as_subgraph(g, sampler.batch(g, items), "csc" if edge_dir == "in" else "csr")
    sampler.keep(sampler.gathered(g))
    dgl.dataloading.base.set_node_lazy_features(subgraph, node_names)
    dgl.dataloading.base.set_edge_lazy_features(subgraph, edge_names)
    for kind, own in sampler.rows.items():
        subgraph.nodes[kind].data.update(own)
    device = sampler.output_device
    return (nodes, subgraph) if device is None else (move_to(nodes, device), subgraph.to(device))


def _read(path: Path, k: int, num_nodes: int) -> Any:
    """Return the cluster (V,) of each node from a file."""
    remedy = "remove it, or set another cache_path"
    try:
        cluster_of = read_npz(path, ["cluster_of"])["cluster_of"]
    except (ValueError, OSError) as error:
        raise InputError(f"{path} holds no clusters that hoptrain wrote ({one_line(error)}): {remedy}") from None
    if cluster_of.shape != (num_nodes,) or cluster_of.max(initial=-1) >= k:
        raise InputError(f"{path} holds clusters of {len(cluster_of):,} nodes, for another graph or another k: {remedy}")
    return cluster_of
