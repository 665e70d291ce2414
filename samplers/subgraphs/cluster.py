"""Cluster-GCN's sampler (Chiang, Liu, Si, Li, Bengio, Hsieh 2019, "Cluster-GCN: an efficient algorithm for training deep and large GCNs")."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hoptrain.engine import Graph, InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.partition.columns import CoarseGraph
from hoptrain.engine.partition.methods import metis
from hoptrain.kernels.cpu.address import HopAddress
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.subgraphs.induced import Members, SubgraphSampler, check_items, find_members


class _Clusters(NamedTuple):
    nodes: Array
    """(V,) node ids, ordered by cluster."""
    begins: Array
    """(num_clusters+1,) int64 offsets of the clusters in ``nodes``."""


class ClusterSampler(SubgraphSampler):
    """A Cluster-GCN sampler: a batch is several clusters of nodes with all edges within and between them (the paper's stochastic multiple partitions).

    METIS partitions the graph, once for a run, into clusters of about equal size with few edges between them, ignoring directions and parallel
    edges. An epoch yields each cluster that has a node of the split once, and the loader's ``batch_size`` counts clusters. So every node of
    the split is a seed once in an epoch. Edges have no weights, which gives the paper's renormalised means over the edges of the batch. (They are
    not unbiased: edges between clusters are missing more often.)

    Examples:
        >>> from hoptrain import ClusterSampler, SampleLoader, load_dataset
        >>> loader = SampleLoader(load_dataset("digits-knn"), ClusterSampler(50), batch_size=5)  # 5 of 50 clusters a batch
        >>> len(loader)
        10
        >>> batch = next(iter(loader))
        >>> [block.num_src == len(batch.node_ids) for block in batch.blocks]  # one subgraph: every layer reads all of its nodes
        [True, True]
    """

    def __init__(self, num_clusters: int, num_layers: int = 2) -> None:
        """Check and keep the options.

        Args:
            num_clusters: number of clusters of the graph; a batch has about ``batch_size / num_clusters`` of its nodes.
            num_layers: number of layers of the model, and of blocks of a batch.

        Raises:
            InputError: a number is out of range.
        """
        super().__init__(num_layers)
        if num_clusters < 1:
            raise InputError(f"num_clusters is {num_clusters}: a graph has at least one cluster; give 1 or more")
        self.num_clusters = num_clusters
        self._clusters: _Clusters | None = None

    def prepare(self, graph: Graph, seeds: Array) -> ClusterSampler:
        """Return a copy for a split, with the clusters of the graph.

        Raises:
            InputError: there are more clusters than nodes, or pymetis is not installed.
        """
        if self.num_clusters > graph.num_nodes:
            raise InputError(f"num_clusters is {self.num_clusters}: {graph} has fewer nodes; give {graph.num_nodes} or less")
        other = self.prepared_copy(graph, seeds)
        cluster_of = partition(graph, self.num_clusters)
        begins = np.r_[0, np.cumsum(np.bincount(cluster_of, minlength=self.num_clusters))]
        other._clusters = _Clusters(np.argsort(cluster_of, kind="stable").astype(graph.indices.dtype), begins)
        return other

    def items(self, graph: Graph, seeds: Array) -> Array:
        """Return the indices of the clusters that have a node of the split."""
        clusters = self._known_clusters
        with_seed = self.split.is_seed[clusters.nodes]
        return np.unique(np.searchsorted(clusters.begins, np.flatnonzero(with_seed), side="right") - 1)

    def members(self, graph: Graph, items: Array, address: HopAddress, workspace: Workspace) -> Members:
        """Return the nodes of the clusters with indices ``items``. ``address`` is not used, since nothing is random."""
        drawn = workspace.array("drawn", self.count_vertices(items), graph.indices.dtype)
        self.list_nodes(items, drawn)
        members = find_members(graph, drawn, self.split.is_seed, workspace)
        if members.num_seeds == 0:
            raise no_seed_in(items)
        return members

    def count_vertices(self, items: Array) -> int:
        """Return the total number of nodes of the clusters with indices ``items``.

        Raises:
            InputError: a cluster does not exist.
        """
        begins = self._known_clusters.begins
        items = check_items(items, self.num_clusters, "cluster")
        return int((begins[items + 1] - begins[items]).sum())

    def list_nodes(self, items: Array, out: Array) -> None:
        """Write the nodes of the clusters with indices ``items`` to ``out``, which has ``count_vertices(items)`` entries."""
        clusters = self._known_clusters
        end = 0
        for begin, after in zip(clusters.begins[items].tolist(), clusters.begins[items + 1].tolist(), strict=True):
            out[end : end + after - begin] = clusters.nodes[begin:after]
            end += after - begin

    @property
    def cluster_of(self) -> Array:
        """(V,) int64, the index of each node's cluster.

        Raises:
            InputError: ``prepare``, which computes the clusters, was not called.
        """
        nodes, begins = self._known_clusters
        found = np.empty(len(nodes), np.int64)
        found[nodes] = np.repeat(np.arange(self.num_clusters), np.diff(begins))
        return found

    @property
    def _known_clusters(self) -> _Clusters:
        if self._clusters is None:
            raise self.unprepared()
        return self._clusters


def no_seed_in(items: Array) -> InputError:
    """Return the error for clusters without a node of the split."""
    return InputError(
        f"clusters {items.tolist()} contain none of the nodes to train on: choose among sampler.items(graph, seeds), the clusters that do"
    )


def partition(graph: Graph, num_clusters: int) -> Array:
    """Return the index (V,) int64 of each node's cluster, by METIS (Karypis & Kumar 1998). The result is the same on every call.

    Raises:
        InputError: pymetis is not installed.
    """
    dst = graph.destinations()
    is_pair = dst != graph.indices
    both = Graph.from_pairs(graph.indices[is_pair], dst[is_pair], graph.num_nodes)
    none = np.empty(0, np.int32)
    return metis(CoarseGraph(both.indptr, both.indices, none, none), num_clusters)
