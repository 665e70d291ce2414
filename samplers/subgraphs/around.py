"""Samplers of all edges between the nodes that another sampler finds around the seeds, for homogeneous and for heterogeneous graphs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hoptrain.engine import Address, Graph, InputError
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.columns import RelationColumns
from hoptrain.engine.hetero_graph import HeteroGraph, Relation
from hoptrain.samplers.base import Sampler
from hoptrain.samplers.batch.minibatch import ONLY, Block, HeteroMiniBatch, MiniBatch, nested_hops
from hoptrain.samplers.buffers.frontier import Frontier
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.checks import check_seeds
from hoptrain.samplers.hetero import BaseHeteroSampler
from hoptrain.samplers.subgraphs.induced import Sources, SquareSampler, check_layers, edges_between


class InducedSampler(SquareSampler):
    """A sampler of all edges between the nodes that another sampler finds (PyG's ``subgraph_type="induced"``). The seeds come first."""

    def __init__(self, sampler: Sampler | None, num_layers: int | None = None) -> None:
        """Wrap a sampler.

        Args:
            sampler: sampler that finds the nodes; its items must be seeds, and its nodes distinct. None takes only the seeds.
            num_layers: number of blocks of a batch, by default the sampler's, or 2 without one. The last block has only the edges into the seeds.

        Raises:
            InputError: the sampler chooses its seeds itself or repeats nodes, or there is no layer.
        """
        if sampler is not None and not (sampler.by_seeds and sampler.distinct_nodes):
            raise InputError(f"sampler is {sampler!r}: it must take seeds and return each node once; use NeighborSampler")
        super().__init__(_layers(sampler, num_layers))
        self.sampler = sampler

    def sample_on_cpu(self, graph: Graph, seeds: Array, address: Address, workspace: Workspace) -> MiniBatch:
        """Sample one mini-batch; see ``Sampler.sample_on_cpu``."""
        seeds = check_seeds(graph, seeds)
        found = seeds if self.sampler is None else self.sampler.sample_on_cpu(graph, seeds, address, workspace).node_ids
        nodes, blocks = _all_between({"": graph.num_nodes}, {ONLY: graph}, {"": found}, workspace)
        return self.batch_of(nodes[""], blocks[ONLY], len(seeds))


class HeteroInducedSampler(BaseHeteroSampler):
    """An ``InducedSampler`` of heterogeneous graphs. It takes all edges of every relation between the nodes; the seeds of each type come first."""

    def __init__(self, sampler: BaseHeteroSampler | None, num_layers: int | None = None) -> None:
        """Wrap a sampler.

        Args:
            sampler: sampler that finds the nodes, each once: ``HeteroSampler`` or ``HeteroLaborSampler``. None takes only the seeds, of any types.
            num_layers: number of blocks of a batch, by default the sampler's, or 2 without one. The last block has only the edges into the seeds.

        Raises:
            InputError: there is no layer.
        """
        super().__init__(None if sampler is None else sampler.seed_type)
        self.sampler, self.num_layers = sampler, check_layers(_layers(sampler, num_layers))

    @property
    def num_hops(self) -> int:
        """Number of blocks, one for each layer."""
        return self.num_layers

    def prepare(self, graph: HeteroGraph, seeds: Array) -> HeteroInducedSampler:
        """Return this sampler with the wrapped sampler prepared."""
        prepared: Any = None if self.sampler is None else self.sampler.prepare(graph, seeds)
        return self if prepared is self.sampler else HeteroInducedSampler(prepared, self.num_layers)

    def sample_on_cpu(
        self, graph: HeteroGraph, seeds: Array | Mapping[str, Array], address: Address, workspace: Workspace
    ) -> HeteroMiniBatch:
        """Sample one mini-batch; see ``Sampler.sample_on_cpu``."""
        given: Any = seeds
        asked = self.seeds_of(graph, given)
        found = {kind: ids for kind, (ids, _) in asked.by_type.items()}
        counts = {kind: len(found.get(kind, ())) for kind in graph.num_nodes}
        if self.sampler is not None:
            found = self.sampler.sample_on_cpu(graph, given, address, workspace).node_ids
        nodes, blocks = _all_between(graph.num_nodes, graph.relations, found, workspace)
        numbers = [counts, *[{kind: len(ids) for kind, ids in nodes.items()}] * self.num_layers]
        hops = nested_hops(blocks, numbers)
        return HeteroMiniBatch(node_ids=nodes, blocks=hops, seed_counts=counts, seed_type=asked.kind, num_seeds=asked.number, nested=True)


def _layers(sampler: Sampler[Any, Any] | None, num_layers: int | None) -> int:
    """Return ``num_layers``, or its default if it is None."""
    return num_layers if num_layers is not None else 2 if sampler is None else sampler.num_hops


def _all_between(
    num_nodes: Mapping[str, int],
    relations: Mapping[Relation, RelationColumns],
    found: Mapping[str, Array],
    workspace: Workspace,
) -> tuple[dict[str, Array], dict[Relation, Block]]:
    """Return the nodes of each type, in the order of ``found``, and all edges between them by relation, in arrays of the workspace."""
    nodes: dict[str, Sources] = {}
    for kind, number in num_nodes.items():
        frontier = Frontier(workspace, workspace.table_of(kind), number, id_dtype(number), f"nodes_found.{kind}")
        frontier.enter_seeds(found.get(kind, np.zeros(0, np.int64)))
        nodes[kind] = Sources(frontier.nodes(1), frontier.num_nodes, number, frontier.table)
    blocks = {}
    for place, (relation, columns) in enumerate(relations.items()):
        sources, into = nodes[relation[0]], nodes[relation[2]]
        blocks[relation] = edges_between(columns, into.buffer, into.number, sources, workspace, f".{place}")
    return {kind: own.buffer[: own.number] for kind, own in nodes.items()}, blocks
