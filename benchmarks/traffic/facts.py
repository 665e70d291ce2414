"""True sizes of a bulk, which are needed to count the bytes of its launches. On a GPU, the launches read these sizes from device memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hoptrain.engine import Graph
from hoptrain.engine.arrays import Array
from hoptrain.samplers import MiniBatch


@dataclass(frozen=True, kw_only=True, slots=True)
class Requests:
    """The requests of a hop: R nodes, over all batches, whose neighbours are sampled.

    Attributes:
        vertices: (R,) ids of the nodes.
        degrees: (R,) in-degrees of the nodes.
    """

    vertices: Array
    degrees: Array


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """The sizes of a bulk of K mini-batches.

    Attributes:
        sizes: arrays (K,) by the names of ``DeviceSampler.size_names``.
        hops: requests of each hop.
        num_edges: sampled edges of all mini-batches.
    """

    sizes: Mapping[str, Array]
    hops: Sequence[Requests]
    num_edges: int

    @property
    def most_nodes(self) -> int:
        """Largest number of nodes of a mini-batch."""
        return int(self.sizes[f"nodes{len(self.hops)}"].max())


def facts_of(graph: Graph, batches: Sequence[MiniBatch]) -> Facts:
    """Return the sizes of mini-batches that ``NeighborSampler`` sampled from a graph, on the CPU or a GPU."""
    indptr, number = np.asarray(graph.indptr), len(batches[0].blocks)
    sizes: dict[str, Any] = {"zeros": np.zeros(len(batches), np.int64)}
    for hop in range(number):
        blocks = [batch.blocks[number - 1 - hop] for batch in batches]
        sizes[f"nodes{hop}"] = np.array([block.num_dst for block in blocks])
        sizes[f"nodes{hop + 1}"] = np.array([block.num_src for block in blocks])
        sizes[f"edges{hop}"] = np.array([block.num_edges for block in blocks])
    hops = []
    for hop in range(number):
        low = sizes[f"nodes{hop - 1}"] if batches[0].nested and hop else sizes["zeros"]
        found = [_host(batch.node_ids)[first:last] for batch, first, last in zip(batches, low, sizes[f"nodes{hop}"], strict=True)]
        vertices = np.concatenate(found)
        hops.append(Requests(vertices=vertices, degrees=np.asarray(indptr[vertices + 1] - indptr[vertices], np.int64)))
    return Facts(sizes=sizes, hops=hops, num_edges=sum(batch.num_edges for batch in batches))


def _host(array: Any) -> Array:
    return np.asarray(array.cpu() if hasattr(array, "cpu") else array)
