"""Cluster-GCN's sampler (Chiang, Liu, Si, Li, Bengio, Hsieh 2019, "Cluster-GCN: an efficient algorithm for training deep and large GCNs")."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hoptrain.engine import Graph, InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.partition.columns import Columns
from hoptrain.engine.partition.methods import metis
from hoptrain.kernels.cpu.address import HopAddress
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.subgraphs.induced import Members, SubgraphSampler, check_items, members_of


class _Clusters(NamedTuple):
    nodes: Array
    """(V,) nodes, those of a cluster beside each other."""
    begins: Array
    """(num_clusters+1,) int64, where each cluster begins."""


class ClusterSampler(SubgraphSampler):
    """A batch joins some clusters of nodes, with all edges within and between them (the paper's stochastic multiple partitions).

    METIS parts the graph, once for a run, into clusters of about equal size with few edges between them; for this an edge has no direction and
    counts once. The items that an epoch deals out, each once, are the clusters that hold a node of the split: the loader's ``batch_size``
    counts clusters. So every node of the split is a seed once in an epoch. No weights: a destination's edges stand for as many each, which
    gives the paper's renormalised means over the edges that are there. (They are no unbiased estimate: edges to other clusters are missing
    more often.)

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
        """State the number of clusters.

        Args:
            num_clusters: clusters of the graph; a batch has about ``batch_size / num_clusters`` of its nodes.
            num_layers: layers of the model: blocks of a batch.

        Raises:
            InputError: a number out of range.
        """
        super().__init__(num_layers)
        if num_clusters < 1:
            raise InputError(f"num_clusters is {num_clusters}: a graph has at least one; correct it")
        self.num_clusters = num_clusters
        self._clusters: _Clusters | None = None

    def prepare(self, graph: Graph, seeds: Array) -> ClusterSampler:
        """With the clusters; see ``Sampler.prepare``.

        Raises:
            InputError: more clusters than nodes, or pymetis is not installed.
        """
        if self.num_clusters > graph.num_nodes:
            raise InputError(f"num_clusters is {self.num_clusters}: {graph} has fewer nodes; ask for fewer")
        other = self.prepared_copy(graph, seeds)
        cluster_of = partition(graph, self.num_clusters)
        begins = np.r_[0, np.cumsum(np.bincount(cluster_of, minlength=self.num_clusters))]
        other._clusters = _Clusters(np.argsort(cluster_of, kind="stable").astype(graph.indices.dtype), begins)
        return other

    def items(self, graph: Graph, seeds: Array) -> Array:
        """The clusters that hold a node of the split."""
        clusters = self._known_clusters
        with_seed = self.split.is_seed[clusters.nodes]
        return np.unique(np.searchsorted(clusters.begins, np.flatnonzero(with_seed), side="right") - 1)

    def members(self, graph: Graph, items: Array, address: HopAddress, workspace: Workspace) -> Members:
        """The nodes of the clusters; nothing is random."""
        drawn = workspace.array("drawn", self.count_vertices(items), graph.indices.dtype)
        self.list_nodes(items, drawn)
        members = members_of(graph, drawn, self.split.is_seed, workspace)
        if members.num_seeds == 0:
            raise no_seed_in(items)
        return members

    def count_vertices(self, items: Array) -> int:
        """How many nodes some clusters have together.

        Raises:
            InputError: a cluster that does not exist.
        """
        begins = self._known_clusters.begins
        items = check_items(items, self.num_clusters, "cluster")
        return int((begins[items + 1] - begins[items]).sum())

    def list_nodes(self, items: Array, out: Array) -> None:
        """Write the nodes of the clusters, as many as ``count_vertices`` says."""
        clusters = self._known_clusters
        end = 0
        for begin, after in zip(clusters.begins[items].tolist(), clusters.begins[items + 1].tolist(), strict=True):
            out[end : end + after - begin] = clusters.nodes[begin:after]
            end += after - begin

    @property
    def cluster_of(self) -> Array:
        """(V,) int64, the cluster of each node.

        Raises:
            InputError: none yet; ``prepare`` finds them.
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
    """The error for clusters without a node of the split."""
    return InputError(f"clusters {items.tolist()} hold none of the nodes to train on: take clusters among sampler.items(graph, seeds)")


def partition(graph: Graph, num_clusters: int) -> Array:
    """(V,) int64, the cluster of each node, by METIS (Karypis & Kumar 1998). The same on every call.

    Raises:
        InputError: pymetis is not installed.
    """
    dst = graph.destinations()
    is_pair = dst != graph.indices
    both = Graph.from_pairs(graph.indices[is_pair], dst[is_pair], graph.num_nodes)
    none = np.empty(0, np.int32)
    return metis(Columns(both.indptr, both.indices, none, none), num_clusters)
