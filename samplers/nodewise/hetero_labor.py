"""LABOR over typed edges: relation by relation, with one random number for each source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hoptrain.engine import Address
from hoptrain.engine.arrays import Array
from hoptrain.engine.hetero_graph import HeteroGraph
from hoptrain.samplers.batch.hetero_minibatch import HeteroMiniBatch
from hoptrain.samplers.batch.minibatch import Block
from hoptrain.samplers.nodewise.hetero_hops import Fanouts, HeteroFanoutSampler, Step, TypedHops
from hoptrain.samplers.nodewise.labor import LaborHop
from hoptrain.samplers.scratch.workspace import Workspace
from hoptrain.samplers.typed import MOST_HOPS


class HeteroLaborSampler(HeteroFanoutSampler):
    """For every hop and relation, in-edges of all vertices reached so far: about ``fanout`` each, with as few different sources as possible.

    The law is that of LABOR-0 (``LaborSampler``), relation by relation: an edge u -> v is kept if r_u < min(1, fanout / d), where d is v's degree by the
    relation, and weighs the inverse of that probability. All relations of a hop share the random number r_u of a vertex u, as DGL's do, so that
    they tend to keep the same sources; each relation's estimate is unbiased by itself. Sources of type number k (in the graph's order) have
    the random numbers of hop 16 k + h: for a single type and relation the blocks are those of ``LaborSampler`` to the bit.
    """

    def __init__(self, fanouts: Fanouts, seed_type: str | None = None, *, default: Sequence[int] | None = None) -> None:
        """State the hops.

        Args:
            fanouts: as of ``HeteroSampler``; -1 takes all neighbours, 0 leaves the relation out of a hop.
            seed_type: the type of vertices that seeds are of; None for several.
            default: the fanouts of the relations that ``fanouts`` does not name.

        Raises:
            InputError: as ``HeteroSampler``.
        """
        super().__init__(fanouts, seed_type, default, 1 << 31)

    def __repr__(self) -> str:
        return f"HeteroLaborSampler(fanouts={self._shown_fanouts()}, seed_type={self.seed_type!r})"

    def sample_on_cpu(
        self, graph: HeteroGraph, seeds: Array | Mapping[str, Array], address: Address, workspace: Workspace
    ) -> HeteroMiniBatch:
        """Sample one mini-batch; see ``Sampler.sample_on_cpu``."""
        fanouts, asked = self.fanouts_of(graph), self.seeds_of(graph, seeds)
        work, number_of = TypedHops.begin(graph, asked, workspace, nested=False), {name: k for k, name in enumerate(graph.num_nodes)}

        def draw(step: Step) -> Block:
            (source, _, destination), columns = step.relation, graph.relations[step.relation]
            fanout = fanouts[step.relation][step.hop]
            if fanout == 0:
                edges = work.room(step, 0)
                weights = np.zeros(0, np.float32)
                return Block(indptr=edges.indptr, indices=edges.indices, edge_ids=edges.edge_ids, num_src=0, weights=weights)
            frontiers, at = work.frontiers, address.at_hop(number_of[source] * MOST_HOPS + step.hop)
            wanted = fanout if fanout > 0 else columns.num_edges
            return LaborHop(columns, frontiers[destination], frontiers[source], step.last, at, wanted).sample(step.name)

        return work.batch(work.run(self.num_hops, draw), asked)
