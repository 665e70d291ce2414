"""What samplers of subgraphs share: from nodes to a mini-batch of the edges between them."""

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
"""Subgraphs that are drawn for a batch, until one has a seed."""


class Members(NamedTuple):
    """The nodes of a subgraph; views of a workspace, whose table has them with their places."""

    nodes: Array
    """(S,) distinct global ids, the seeds first."""
    num_seeds: int
    buffer: Array
    """(S+1,) the same memory as ``nodes``, with one entry more."""


class Sources(NamedTuple):
    """The nodes that edges may come from."""

    buffer: Array
    """(number + 1,) global ids, and room for one more."""
    number: int
    num_graph_nodes: int
    """Global ids are in [0, num_graph_nodes)."""
    table: RelabelTable
    """Which has them with their places."""


class Split(NamedTuple):
    """The nodes of a split, which carry the loss."""

    seeds: Array
    """(N,) global ids."""
    is_seed: Array
    """(V,) bool."""
    num_edges: int
    """E of the graph."""


_Self = TypeVar("_Self", bound="SubgraphSampler")


class SquareSampler(Sampler):
    """Every layer uses the same edges between the nodes of a batch: the blocks are the same square graph, the last one's destinations the seeds."""

    def __init__(self, num_layers: int) -> None:
        """Set the number of blocks.

        Raises:
            InputError: as ``checked_layers``.
        """
        self.num_layers = checked_layers(num_layers)

    @property
    def num_hops(self) -> int:
        """One block a layer."""
        return self.num_layers

    def batch_of(self, nodes: Array, block: Block, num_seeds: int, seed_weights: Array | None = None) -> MiniBatch:
        """The mini-batch of ``nodes`` (S,), global ids, and the block of all edges between them."""
        blocks = nested_blocks(block, [block.num_src] * self.num_layers, num_seeds)
        return MiniBatch(node_ids=nodes, blocks=blocks, num_seeds=num_seeds, seed_weights=seed_weights, nested=True)


class SubgraphSampler(SquareSampler):
    """A batch is one subgraph with all edges between its nodes.

    Its seeds are those of its nodes that belong to the split which the sampler was prepared for; they stand first. A batch has at least one:
    a subgraph without is drawn again.
    """

    by_seeds = False
    _split: Split | None = None

    def prepared_copy(self: _Self, graph: Graph, seeds: Array) -> _Self:
        """A copy that knows the split; what ``prepare`` begins with."""
        other = copy(self)
        is_seed = np.zeros(graph.num_nodes, np.bool_)
        is_seed[seeds] = True
        other._split = Split(seeds.astype(graph.indices.dtype), is_seed, graph.num_edges)
        return other

    @property
    def split(self) -> Split:
        """The split that it was prepared for.

        Raises:
            InputError: none.
        """
        if self._split is None:
            raise self.unprepared()
        return self._split

    def unprepared(self) -> InputError:
        """The error for a sampler that knows no split."""
        return InputError(
            f"{type(self).__name__} does not know the nodes to train on: take sampler.prepare(graph, seeds), as SampleLoader does"
        )

    def sample_on_cpu(self, graph: Graph, seeds: Array, address: Address, workspace: Workspace) -> MiniBatch:
        """Sample one mini-batch; see ``Sampler.sample_on_cpu``. ``seeds`` are items: what the class says that an epoch deals out."""
        self.check_graph(graph)
        members = self.members(graph, np.asarray(seeds), address.at_hop(0), workspace)
        block = induced(graph, members, workspace)
        weights, seed_weights = self.normalisation(members, block, workspace)
        return self.batch_of(members.nodes, replace(block, weights=weights), members.num_seeds, seed_weights)

    def check_graph(self, graph: Graph) -> None:
        """Refuse a graph other than that of the split."""
        if (len(self.split.is_seed), self.split.num_edges) != (graph.num_nodes, graph.num_edges):
            raise InputError(f"{graph} is not the graph that {type(self).__name__} was prepared for: call prepare(graph, seeds) for it")

    @abstractmethod
    def members(self, graph: Graph, items: Array, address: HopAddress, workspace: Workspace) -> Members:
        """The nodes of the subgraph at an address."""

    def normalisation(self, members: Members, block: Block, workspace: Workspace) -> tuple[Array | None, Array | None]:
        """The weights of the edges (M,) and of the seeds (B,), float32, or None."""
        return None, None


class SingleSubgraphSampler(SubgraphSampler):
    """The items that an epoch deals out are subgraphs, ``num_subgraphs`` of them; a batch is one: the loader's ``batch_size`` is 1."""

    single_item = True
    num_subgraphs: int | None

    def items(self, graph: Graph, seeds: Array) -> Array:
        """Numbers of subgraphs."""
        return np.arange(self.num_items)

    @property
    def num_items(self) -> int:
        """Subgraphs of an epoch; known once the split is."""
        _ = self.split  # raises where the sampler was not prepared
        return self.num_subgraphs or 0

    def check_item(self, items: Array) -> None:
        """Refuse what is not one of the epoch's subgraphs."""
        check_batch_size(self, len(check_items(items, self.num_items, "subgraph")))


def checked_layers(num_layers: int) -> int:
    """Return a number of blocks, once it is checked.

    Raises:
        InputError: the number is not from 1 to some thousands.
    """
    if not 0 < num_layers < MAX_HOP:
        raise InputError(f"num_layers is {num_layers}: a model has 1 to {MAX_HOP - 1} layers; give a number in this range")
    return num_layers


def check_items(items: Array, num_items: int, name: str) -> Array:
    """The items as an array, checked for kind and range."""
    if items.ndim != 1 or len(items) == 0 or not is_integer(items.dtype):
        raise InputError(f"{name}s are {items.dtype} of shape {items.shape}: give a one-dimensional integer array of at least one")
    low, high = int(items.min()), int(items.max())
    if low < 0 or high >= num_items:
        raise InputError(f"{name} {low if low < 0 else high} does not exist: they are 0 to {num_items - 1}; correct it")
    return items


def members_of(graph: Graph, drawn: Array, is_seed: Array, workspace: Workspace) -> Members:
    """The distinct nodes among ``drawn`` (K,), which is used up: seeds first, each kind in order of first appearance; they enter the table."""
    table, dtype = workspace.table, graph.indices.dtype
    table.start(graph.num_nodes, min(len(drawn), graph.num_nodes))
    found = workspace.array("found", len(drawn) + 1, dtype)
    num_found = relabel(drawn, 0, len(drawn), table.view(), found, 0)
    nodes = workspace.array("nodes", num_found + 1, dtype)  # relabelling writes one entry beyond the last node
    num_seeds = kernels.seeds_first(found, num_found, is_seed, workspace.array("others", num_found, dtype), nodes)
    table.start(graph.num_nodes, num_found)
    table.enter(nodes, num_found)
    return Members(nodes[:num_found], num_seeds, nodes)


def induced(graph: Graph, members: Members, workspace: Workspace) -> Block:
    """All edges between the members, as a block of S sources and S destinations without weights."""
    sources = Sources(members.buffer, len(members.nodes), graph.num_nodes, workspace.table)
    return edges_between(graph, sources.buffer, sources.number, sources, workspace)


def edges_between(graph: RelationColumns, nodes: Array, number: int, sources: Sources, workspace: Workspace, name: str = "") -> Block:
    """The edges into ``nodes[:number]`` (S,) from ``sources``, as a block without weights; its arrays end in ``name`` in the workspace."""
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
    """Room for a bitmap over a graph's nodes."""
    return workspace.array("bits", kernels.bitmap_words(num_graph_nodes), np.uint64)
