"""LABOR over typed edges: relation by relation, with one random number for each source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from hoptrain.engine import Address
from hoptrain.engine.arrays import Array
from hoptrain.engine.hetero_graph import HeteroGraph, Relation, relation_name
from hoptrain.kernels.shared.draws import ALL, fanout_code
from hoptrain.samplers.batch.hetero_minibatch import HeteroMiniBatch
from hoptrain.samplers.batch.minibatch import Block
from hoptrain.samplers.nodewise.hetero_hops import Fanouts, HeteroFanoutSampler, Step, TypedHops, no_relation_has_weights
from hoptrain.samplers.nodewise.labor import LaborHop, check_shares, checked_rounds
from hoptrain.samplers.scratch.workspace import Workspace
from hoptrain.samplers.typed import MOST_HOPS


class OneLabor(NamedTuple):
    """What of a ``HeteroLaborSampler`` draws along one relation, as a ``LaborSampler`` would.

    Attributes:
        fanouts: one a hop.
        importance_rounds: i of LABOR-i.
        weighted: whether its edges weigh something.
        number: of the sources' type, which the random numbers' addresses have.
        num_sources: vertices of that type.
    """

    fanouts: tuple[int | float, ...]
    importance_rounds: int
    weighted: bool
    number: int
    num_sources: int

    @property
    def fanout_codes(self) -> tuple[int, ...]:
        """The fanouts as kernels take them."""
        return tuple(map(fanout_code, self.fanouts))


class HeteroLaborSampler(HeteroFanoutSampler):
    """For every hop and relation, in-edges of all vertices reached so far: about ``fanout`` each, with as few different sources as possible.

    The law is that of ``LaborSampler``, relation by relation: of LABOR-0 an edge u -> v is kept if r_u < min(1, fanout / d), where d is v's degree by
    the relation, and weighs the inverse of that probability; importances are found among a relation's own edges. All relations of a hop share the
    random number r_u of a vertex u, as DGL's do, so that they tend to keep the same sources; each relation's estimate is unbiased by itself.
    Sources of type number k (in the graph's order) have the random numbers of hop 16 k + h: for a single type and relation the blocks are those
    of ``LaborSampler`` to the bit.
    """

    def __init__(
        self,
        fanouts: Fanouts,
        seed_type: str | None = None,
        *,
        importance_rounds: int = 0,
        weighted: bool = False,
        default: Sequence[int | float] | None = None,
    ) -> None:
        """State the hops.

        Args:
            fanouts: as of ``HeteroSampler``; -1 takes all neighbours, 0 leaves the relation out of a hop.
            seed_type: the type of vertices that seeds are of; None for several.
            importance_rounds: i of LABOR-i.
            weighted: whether the edges of the relations that have weights weigh these.
            default: the fanouts of the relations that ``fanouts`` does not name.

        Raises:
            InputError: as ``HeteroSampler``; a number of rounds that is out of range.
        """
        super().__init__(fanouts, seed_type, default, 1 << 31)
        self.importance_rounds: int = checked_rounds(importance_rounds)
        self.weighted: bool = weighted
        check_shares((fanout for own in self.fanouts.values() for fanout in own), importance_rounds, weighted)

    def __repr__(self) -> str:
        further = f", importance_rounds={self.importance_rounds}" * bool(self.importance_rounds) + ", weighted=True" * self.weighted
        return f"HeteroLaborSampler(fanouts={self._shown_fanouts()}, seed_type={self.seed_type!r}{further})"

    def fanouts_of(self, graph: HeteroGraph) -> dict[Relation, tuple[int, ...]]:
        """See ``HeteroFanoutSampler.fanouts_of``.

        Raises:
            InputError: besides, edges are to have weights and none have.
        """
        if self.weighted and all(columns.weights is None for columns in graph.relations.values()):
            raise no_relation_has_weights()
        return super().fanouts_of(graph)

    def along(self, graph: HeteroGraph) -> dict[Relation, OneLabor]:
        """What draws along each of the graph's relations.

        Raises:
            InputError: as ``fanouts_of``.
        """
        self.fanouts_of(graph)
        numbers = {kind: number for number, kind in enumerate(graph.num_nodes)}
        return {
            relation: OneLabor(
                self.fanouts.get(relation_name(relation), self.fanouts.get("", ())),
                self.importance_rounds,
                self.weighted and columns.weights is not None,
                numbers[relation[0]],
                columns.num_src,
            )
            for relation, columns in graph.relations.items()
        }

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
            wanted, rounds = (fanout, self.importance_rounds) if fanout != ALL else (columns.num_edges, 0)
            own_weights = columns.weights if self.weighted else None
            hop = LaborHop(columns, frontiers[destination], frontiers[source], step.last, at, wanted, rounds, own_weights)
            return hop.sample(step.name)

        return work.batch(work.run(self.num_hops, partial(map, draw)), asked)
