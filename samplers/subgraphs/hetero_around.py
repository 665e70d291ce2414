"""The typed subgraph of the vertices that another sampler finds around the seeds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hoptrain.engine import Address, InputError
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.hetero_graph import HeteroGraph
from hoptrain.samplers.batch.hetero_minibatch import HeteroMiniBatch, nested_hops
from hoptrain.samplers.scratch.frontier import Frontier
from hoptrain.samplers.scratch.workspace import Workspace
from hoptrain.samplers.subgraphs.induced import Sources, edges_between
from hoptrain.samplers.typed import TypedSampler


class HeteroInducedSampler(TypedSampler):
    """All edges of every relation between the vertices that a sampler finds, as ``InducedSampler``; of each type the seeds stand first."""

    def __init__(self, sampler: TypedSampler | None, num_layers: int = 2) -> None:
        """State the sampler.

        Args:
            sampler: finds the vertices, each once: ``HeteroSampler`` or ``HeteroLaborSampler``. None takes the seeds alone, which may be of several types.
            num_layers: blocks of a batch. The last one has the edges into the seeds alone.

        Raises:
            InputError: no layer.
        """
        super().__init__(None if sampler is None else sampler.seed_type)
        self.sampler, self.num_layers = sampler, num_layers
        if num_layers < 1:
            raise InputError(f"num_layers is {num_layers}: a model has 1 or more; correct it")

    @property
    def num_hops(self) -> int:
        """One block a layer."""
        return self.num_layers

    def prepare(self, graph: HeteroGraph, seeds: Array) -> HeteroInducedSampler:
        """With the sampler prepared."""
        prepared: Any = None if self.sampler is None else self.sampler.prepare(graph, seeds)
        return self if prepared is self.sampler else HeteroInducedSampler(prepared, self.num_layers)

    def sample_on_cpu(
        self, graph: HeteroGraph, seeds: Array | Mapping[str, Array], address: Address, workspace: Workspace
    ) -> HeteroMiniBatch:
        """Sample one mini-batch; see ``Sampler.sample_on_cpu``."""
        given: Any = seeds
        asked = self.seeds_of(graph, given)
        found = {name: own for name, (own, _) in asked.by_type.items()}
        seed_counts = {name: len(found.get(name, ())) for name in graph.num_nodes}
        if self.sampler is not None:
            found = self.sampler.sample_on_cpu(graph, given, address, workspace).node_ids
        nodes: dict[str, Sources] = {}
        for name, number in graph.num_nodes.items():
            frontier = Frontier(workspace, workspace.table_of(name), number, id_dtype(number), f"nodes_found.{name}")
            frontier.enter_seeds(found.get(name, np.zeros(0, np.int64)))
            nodes[name] = Sources(frontier.nodes(1), frontier.num_nodes, number, frontier.table)
        outermost = {
            relation: edges_between(
                columns, nodes[relation[2]].buffer, nodes[relation[2]].number, nodes[relation[0]], workspace, f".{number}"
            )
            for number, (relation, columns) in enumerate(graph.relations.items())
        }
        counts = [seed_counts, *[{name: own.number for name, own in nodes.items()}] * self.num_layers]
        return HeteroMiniBatch(
            node_ids={name: own.buffer[: own.number] for name, own in nodes.items()},
            blocks=nested_hops(outermost, counts),
            seed_counts=seed_counts,
            seed_type=asked.kind,
            num_seeds=asked.number,
            nested=True,
        )
