"""DGL's samplers of subgraphs around given nodes, over hoptrain's: ShaDow's, and those of clusters."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hoptrain.dgl.blocks import moved
from hoptrain.dgl.graphs import Converted, as_ids, converted, homogeneous, is_hetero, on_host
from hoptrain.dgl.hetero import hetero_sampler, hetero_subgraph_of, items_by_type
from hoptrain.dgl.outputs import dgl, subgraph_of
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
"""Blocks of a batch: of two the outermost has all edges, and it alone is read."""


class ShaDowKHopSampler(Sampled, dgl.dataloading.ShaDowKHopSampler):
    """DGL's, by name, arguments and results; see ``dgl.dataloading.ShaDowKHopSampler``: one subgraph for all seeds of a batch."""

    fanouts: Any
    prob: str | None
    replace: bool
    prefetch_node_feats: Any
    prefetch_edge_feats: Any
    output_device: Any

    def features(self) -> Any:
        """Names of the features of input nodes that are to be fetched; of heterogeneous graphs by type."""
        return self.prefetch_node_feats or []

    def of(self, g: Any) -> tuple[Sampler[Any, Any], Any]:
        """The sampler and the graph of hoptrain's."""
        if is_hetero(on_host(g)):
            options = {"replace": self.replace, "weighted": self.prob is not None}
            return hetero_sampler(g, self.fanouts, HeteroSampler, "in", self.prob, ALL_EDGES, **options)
        fanouts, replace, weighted = as_fanouts(self.fanouts), self.replace, self.prob is not None

        def make() -> Sampler:
            return ExcludingSampler(InducedSampler(Neighbor(fanouts, replace=replace, weighted=weighted), ALL_EDGES))

        made = converted(g, "in", self.prob)
        return made.kept((ShaDowKHopSampler, *fanouts, replace, weighted), make), made

    def sample(self, g: Any, seed_nodes: Any, exclude_eids: Any = None) -> tuple[Any, Any, Any]:
        """The nodes of the subgraph, the seeds, and the subgraph; no edge of ``exclude_eids`` is in it. Of heterogeneous graphs all are by type.

        Raises:
            InputError: a seed or an edge that does not exist.
        """
        if is_hetero(on_host(g)):
            items, _ = items_by_type(g, self.of(g)[1], seed_nodes, exclude_eids)
            nodes, subgraph = finished(self, g, items, self.prefetch_node_feats, self.prefetch_edge_feats)
            return nodes, seed_nodes, subgraph
        seeds, _ = distinct(as_ids(seed_nodes))
        excluded = None if exclude_eids is None else self.of(g)[1].csc_positions(as_ids(exclude_eids))
        nodes, subgraph = finished(self, g, items_of(seeds, excluded), self.prefetch_node_feats, self.prefetch_edge_feats)
        return nodes, seed_nodes, subgraph


class ClusterGCNSampler(Sampled, dgl.dataloading.Sampler):
    """DGL's, by name, arguments and results; see ``dgl.dataloading.ClusterGCNSampler``.

    Clusters are those of DGL's METIS. The file at ``cache_path`` is one of NumPy's (``.npz``), whatever its name; DGL's own, a pickle, is not opened.

    Attributes:
        partition_offset: (k+1,) int64, where each cluster begins.
        partition_node_ids: (V,) int64 nodes, those of a cluster beside each other.
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
        """Find the clusters, or read them.

        Raises:
            InputError: a file of something else, or of another graph or number of clusters.
        """
        homogeneous(g)
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
        """Names of the features that are to be fetched."""
        return list(self.prefetch_ndata)

    def of(self, g: Any) -> tuple[Sampler, Converted]:
        """The sampler and the graph of hoptrain's."""
        made = converted(g)
        return made.kept(ClusterGCNSampler, lambda: InducedSampler(None, ALL_EDGES)), made

    def sample(self, g: Any, partition_ids: Tensor) -> Any:
        """The subgraph of the clusters ``partition_ids`` (B,), with all edges within and between them."""
        begins = self.partition_offset.tolist()
        members = [self.partition_node_ids[begins[i] : begins[i + 1]] for i in as_ids(partition_ids).tolist()]
        return finished(self, g, torch.cat(members).numpy(), self.prefetch_ndata, self.prefetch_edata)[1]


def finished(sampler: Any, g: Any, items: Any, node_names: Any, edge_names: Any, edge_dir: str = "in") -> tuple[Any, Any]:
    """The nodes and the subgraph for some items, with the features of these names to be fetched, on the sampler's ``output_device``."""
    batch = sampler.batch(g, items)
    nodes, subgraph = hetero_subgraph_of(g, batch) if is_hetero(g) else subgraph_of(g, batch, "csc" if edge_dir == "in" else "csr")
    sampler.keep(sampler.gathered(g))
    dgl.dataloading.base.set_node_lazy_features(subgraph, node_names)
    dgl.dataloading.base.set_edge_lazy_features(subgraph, edge_names)
    for kind, own in sampler.rows.items():
        subgraph.nodes[kind].data.update(own)
    device = sampler.output_device
    return (nodes, subgraph) if device is None else (moved(nodes, device), subgraph.to(device))


def _read(path: Path, k: int, num_nodes: int) -> Any:
    """(V,) the cluster of each node, from a file."""
    remedy = "remove it, or state another cache_path"
    try:
        cluster_of = read_npz(path, ["cluster_of"])["cluster_of"]
    except (ValueError, OSError) as error:
        raise InputError(f"{path} holds no clusters that hoptrain wrote ({one_line(error)}): {remedy}") from None
    if cluster_of.shape != (num_nodes,) or cluster_of.max(initial=-1) >= k:
        raise InputError(f"{path} holds the clusters of {len(cluster_of):,} nodes, of a graph or a k other than these: {remedy}")
    return cluster_of
