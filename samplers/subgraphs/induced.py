"""Base classes and functions of subgraph samplers, which return a mini-batch of some nodes and all edges between them."""

from __future__ import annotations

from abc import abstractmethod
from copy import copy
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np

from hoptrain.engine import Address, Graph, InputError
from hoptrain.engine.arrays import Array, id_dtype, is_integer
from hoptrain.engine.columns import RelationColumns
from hoptrain.kernels.cpu.address import HopAddress
from hoptrain.kernels.cpu.columns import total_degree
from hoptrain.kernels.cpu.relabel import relabel
from hoptrain.kernels.cpu.subgraphs import induced as kernels
from hoptrain.kernels.shared.philox import MAX_HOP
from hoptrain.samplers.base import Sampler, check_batch_size
from hoptrain.samplers.batch.minibatch import Block, MiniBatch, nested_blocks
from hoptrain.samplers.buffers.workspace import RelabelTable, Workspace

MAX_ATTEMPTS = 100
"""Maximum number of subgraphs that are drawn for a batch until one contains a seed."""


class Members(NamedTuple):
    """The nodes of a subgraph in workspace arrays. The workspace's relabelling table maps them to local ids."""

    nodes: Array
    """(S,) distinct global ids, the seeds first."""
    num_seeds: int
    buffer: Array
    """(S+1,) array whose first S entries are ``nodes``; kernels may overwrite the last entry."""


class Sources(NamedTuple):
    """The nodes that edges may come from, with their relabelling table."""

    buffer: Array
    """(number + 1,) array whose first ``number`` entries are the global ids; kernels may overwrite the last entry."""
    number: int
    num_graph_nodes: int
    """Number of nodes of the graph: global ids are in [0, num_graph_nodes)."""
    table: RelabelTable
    """Table that maps the nodes to local ids."""


class Split(NamedTuple):
    """The nodes of a split, which are the possible seeds."""

    seeds: Array
    """(N,) global ids of the nodes of the split."""
    is_seed: Array
    """(V,) bool, True for the nodes of the split."""
    num_edges: int
    """Number of edges of the graph to which the split belongs."""


_Self = TypeVar("_Self", bound="SubgraphSampler")


class SquareSampler(Sampler):
    """A sampler whose blocks are all the same graph on the nodes of a batch, except that the destinations of the last one are the seeds."""

    def __init__(self, num_layers: int) -> None:
        """Check and keep the number of blocks.

        Raises:
            InputError: ``num_layers`` is out of range.
        """
        self.num_layers = check_layers(num_layers)

    @property
    def num_hops(self) -> int:
        """Number of blocks, one for each layer."""
        return self.num_layers

    def batch_of(self, nodes: Array, block: Block, num_seeds: int, seed_weights: Array | None = None) -> MiniBatch:
        """Return the mini-batch of the nodes with global ids ``nodes`` (S,), and ``block``, which has all edges between them."""
        blocks = nested_blocks(block, [block.num_src] * self.num_layers, num_seeds)
        return MiniBatch(node_ids=nodes, blocks=blocks, num_seeds=num_seeds, seed_weights=seed_weights, nested=True)


class SubgraphSampler(SquareSampler):
    """A sampler of subgraphs: a batch is some nodes and all edges between them.

    Its seeds are its nodes in the split for which the sampler was prepared; they come first. A batch has at least one seed: a subgraph without
    a seed is drawn again.
    """

    by_seeds = False
    _split: Split | None = None

    def prepared_copy(self: _Self, graph: Graph, seeds: Array) -> _Self:
        """Return a copy with the split set, as the first step of ``prepare``."""
        other = copy(self)
        is_seed = np.zeros(graph.num_nodes, np.bool_)
        is_seed[seeds] = True
        other._split = Split(seeds.astype(graph.indices.dtype), is_seed, graph.num_edges)
        return other

    @property
    def split(self) -> Split:
        """Split for which the sampler was prepared.

        Raises:
            InputError: ``prepare`` was not called.
        """
        if self._split is None:
            raise self.unprepared()
        return self._split

    def unprepared(self) -> InputError:
        """Return the error for a sampler whose ``prepare`` was not called."""
        return InputError(
            f"{type(self).__name__} does not know the nodes to train on: use sampler.prepare(graph, seeds), as SampleLoader does"
        )

    def sample_on_cpu(self, graph: Graph, seeds: Array, address: Address, workspace: Workspace) -> MiniBatch:
        """Sample one mini-batch; see ``Sampler.sample_on_cpu``. ``seeds`` are items as ``items`` returns them."""
        self.check_graph(graph)
        members = self.members(graph, np.asarray(seeds), address.at_hop(0), workspace)
        block = induced(graph, members, workspace)
        weights, seed_weights = self.normalisation(members, block, workspace)
        return self.batch_of(members.nodes, replace(block, weights=weights), members.num_seeds, seed_weights)

    def check_graph(self, graph: Graph) -> None:
        """Raise ``InputError`` for a graph other than the one for which the sampler was prepared."""
        if (len(self.split.is_seed), self.split.num_edges) != (graph.num_nodes, graph.num_edges):
            raise InputError(f"{graph} is not the graph that {type(self).__name__} was prepared for: call prepare(graph, seeds) for it")

    @abstractmethod
    def members(self, graph: Graph, items: Array, address: HopAddress, workspace: Workspace) -> Members:
        """Return the nodes of the subgraph that the batch's ``items`` induce. ``address`` is the address of the batch's random numbers."""

    def normalisation(self, members: Members, block: Block, workspace: Workspace) -> tuple[Array | None, Array | None]:
        """Return the weights of the edges (M,) and of the seeds (B,), float32, or None for no weights."""
        return None, None


class SingleSubgraphSampler(SubgraphSampler):
    """A sampler whose batches are single subgraphs: an epoch yields ``num_subgraphs`` of them, and the loader's ``batch_size`` is 1."""

    single_item = True
    num_subgraphs: int | None

    def items(self, graph: Graph, seeds: Array) -> Array:
        """Return the indices of an epoch's subgraphs, 0 to ``num_items`` - 1."""
        return np.arange(self.num_items)

    @property
    def num_items(self) -> int:
        """Number of subgraphs of an epoch, known after ``prepare``."""
        _ = self.split  # raises if the sampler was not prepared
        return self.num_subgraphs or 0

    def check_item(self, items: Array) -> None:
        """Raise ``InputError`` unless ``items`` is the index of a single subgraph of the epoch."""
        check_batch_size(self, len(check_items(items, self.num_items, "subgraph")))


def check_layers(num_layers: int) -> int:
    """Return the number of blocks, checked to be in range.

    Raises:
        InputError: ``num_layers`` is below 1, or exceeds the number of hops that a random address can hold.
    """
    if not 0 < num_layers < MAX_HOP:
        raise InputError(f"num_layers is {num_layers}: a model has 1 to {MAX_HOP - 1} layers; give a number in this range")
    return num_layers


def check_items(items: Array, num_items: int, name: str) -> Array:
    """Return the items of a batch, checked for dtype and range; ``name`` is the word for an item in messages."""
    if items.ndim != 1 or len(items) == 0 or not is_integer(items.dtype):
        raise InputError(f"{name}s are {items.dtype} of shape {items.shape}: give a one-dimensional integer array of at least one")
    low, high = int(items.min()), int(items.max())
    if low < 0 or high >= num_items:
        raise InputError(f"{name} {low if low < 0 else high} does not exist: the {name}s are 0 to {num_items - 1}; leave it out")
    return items


def find_members(graph: Graph, drawn: Array, is_seed: Array, workspace: Workspace) -> Members:
    """Return the distinct nodes among ``drawn`` (K,), the seeds first, and enter them in the workspace's table.

    Seeds, and then the other nodes, are in order of first appearance. ``drawn`` is overwritten.
    """
    table, dtype = workspace.table, graph.indices.dtype
    table.start(graph.num_nodes, min(len(drawn), graph.num_nodes))
    found = workspace.array("found", len(drawn) + 1, dtype)
    num_found = relabel(drawn, 0, len(drawn), table.view(), found, 0)
    nodes = workspace.array("nodes", num_found + 1, dtype)  # one element more, since relabelling writes one element past the last node
    num_seeds = kernels.seeds_first(found, num_found, is_seed, workspace.array("others", num_found, dtype), nodes)
    table.start(graph.num_nodes, num_found)
    table.enter(nodes, num_found)
    return Members(nodes[:num_found], num_seeds, nodes)


def induced(graph: Graph, members: Members, workspace: Workspace) -> Block:
    """Return all edges between the members, as a block of S sources and S destinations without weights."""
    sources = Sources(members.buffer, len(members.nodes), graph.num_nodes, workspace.table)
    return edges_between(graph, sources.buffer, sources.number, sources, workspace)


def edges_between(graph: RelationColumns, nodes: Array, number: int, sources: Sources, workspace: Workspace, name: str = "") -> Block:
    """Return all edges from ``sources`` into ``nodes[:number]`` as a block without weights; its workspace arrays have names that end in ``name``."""
    most = total_degree(graph.indptr, nodes, number) + 1
    edges = (
        workspace.array(f"indptr{name}", number + 1, id_dtype(most)),
        workspace.array(f"indices{name}", most, graph.indices.dtype),
        workspace.array(f"edge_ids{name}", most, id_dtype(graph.num_edges)),
    )
    among = sources.buffer, sources.number, bitmap(sources.num_graph_nodes, workspace), sources.table.view()
    num_edges = kernels.induce(graph.indptr, graph.indices, nodes, number, *among, *edges)
    return Block(indptr=edges[0], indices=edges[1][:num_edges], edge_ids=edges[2][:num_edges], num_src=sources.number)


def bitmap(num_graph_nodes: int, workspace: Workspace) -> Array:
    """Return an array of the workspace for a bitmap of a graph's nodes."""
    return workspace.array("bits", kernels.bitmap_words(num_graph_nodes), np.uint64)
