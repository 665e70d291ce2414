"""The subgraph of the vertices that another sampler finds around the seeds."""

from __future__ import annotations

from hoptrain.engine import Address, Graph, InputError
from hoptrain.engine.arrays import Array
from hoptrain.samplers.base import Sampler
from hoptrain.samplers.batch.minibatch import MiniBatch
from hoptrain.samplers.checks import check_seeds
from hoptrain.samplers.scratch.workspace import Workspace
from hoptrain.samplers.subgraphs.induced import Members, SquareSampler, induced


class InducedSampler(SquareSampler):
    """All edges between the vertices that a sampler finds (PyG's ``subgraph_type="induced"``); the seeds stand first."""

    def __init__(self, sampler: Sampler | None, num_layers: int | None = None) -> None:
        """State the sampler.

        Args:
            sampler: finds the vertices; one whose batches are asked for by their seeds, with each vertex once. None takes the seeds alone.
            num_layers: blocks of a batch, by default as many as the sampler's, or 2. The last one has the edges into the seeds alone.

        Raises:
            InputError: another sampler.
        """
        if sampler is not None and not (sampler.by_seeds and sampler.distinct_nodes):
            raise InputError(f"sampler is {sampler!r}: its vertices are not found from seeds, each once; use NeighborSampler")
        super().__init__(num_layers if num_layers is not None else 2 if sampler is None else sampler.num_hops)
        self.sampler = sampler

    def sample_on_cpu(self, graph: Graph, seeds: Array, address: Address, workspace: Workspace) -> MiniBatch:
        """Sample one mini-batch; see ``Sampler.sample_on_cpu``."""
        seeds = check_seeds(graph, seeds, distinct=True)
        found = seeds if self.sampler is None else self.sampler.sample_on_cpu(graph, seeds, address, workspace).node_ids
        buffer = workspace.array("nodes_found", len(found) + 1, graph.indices.dtype)
        nodes = buffer[:-1]
        nodes[:] = found
        workspace.table.start(graph.num_nodes, len(nodes))
        workspace.table.enter(buffer, len(nodes))
        return self.batch_of(nodes, induced(graph, Members(nodes, len(seeds), buffer), workspace), len(seeds))
