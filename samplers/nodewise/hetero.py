"""Neighbour sampling over typed edges: a fanout for each relation (as in R-GCN's samplers of DGL and PyG)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hoptrain.engine import Address, Dataset, HeteroDataset, InputError
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.hetero_graph import HeteroGraph, Relation, relation_name
from hoptrain.kernels.cpu.address import HopAddress
from hoptrain.kernels.cpu.nodewise import neighbor as kernels
from hoptrain.kernels.shared.philox import MAX_DRAWS, MAX_HOP
from hoptrain.samplers.base import Sampler
from hoptrain.samplers.batch.hetero_minibatch import HeteroMiniBatch
from hoptrain.samplers.batch.minibatch import Block
from hoptrain.samplers.checks import check_vertices
from hoptrain.samplers.scratch.alias import NO_TABLES
from hoptrain.samplers.scratch.frontier import Frontier
from hoptrain.samplers.scratch.hop import most_edges, scratch_for
from hoptrain.samplers.scratch.workspace import Workspace

MOST_HOPS = 16
MOST_RELATIONS = MAX_HOP // MOST_HOPS
"""A relation's hops have a range of their own among the hops of a random number's address."""


class HeteroSampler(Sampler[HeteroGraph, HeteroMiniBatch]):
    """For every hop and relation, up to ``fanout`` in-neighbours of every vertex of the relation's destination type reached so far.

    The law is ``NeighborSampler``'s, relation by relation: without replacement (the default) a vertex gives min(degree, fanout) distinct edges
    of the relation, every subset equally likely; with replacement ``fanout`` edges if it has any. The draws of different relations are
    independent. Of relation number k (in the graph's order) hop h draws what ``NeighborSampler`` would draw in hop 16 k + h: for a single
    type and relation the two samplers give the same blocks to the bit.

    Like any sampler it is a pure function of (graph, seeds, seed, epoch, batch) and keeps no state. On the CPU a batch is sampled by one
    thread, batches of a bulk by those of the workspace; on CUDA a bulk is sampled at once.
    """

    def __init__(self, fanouts: Sequence[int] | Mapping[str | Relation, Sequence[int]], seed_type: str, replace: bool = False) -> None:
        """State the hops.

        Args:
            fanouts: edges per vertex, one number a hop, from the seeds outward, for all relations; or such a list for each relation, by
                "source:name:destination" or the tuple of the three. -1 takes all neighbours, 0 leaves the relation out of a hop.
            seed_type: the type of vertices that seeds are of.
            replace: draw with replacement.

        Raises:
            InputError: no hop or more than 16, lists of different lengths, a fanout that is less than -1.
        """
        given = fanouts.items() if isinstance(fanouts, Mapping) else [("", fanouts)]
        self.fanouts = {name if isinstance(name, str) else ":".join(name): tuple(map(int, own)) for name, own in given}
        self.seed_type = seed_type
        self.replace = replace
        self._is_common = not isinstance(fanouts, Mapping)
        lengths = {len(own) for own in self.fanouts.values()}
        if len(lengths) != 1 or not 0 < max(lengths) <= MOST_HOPS:
            raise InputError(f"fanouts are {fanouts}: give 1 to {MOST_HOPS} numbers, one for each hop, equally many for all relations")
        bad = [fanout for own in self.fanouts.values() for fanout in own if not -1 <= fanout < MAX_DRAWS]
        if bad:
            raise InputError(f"fanout {bad[0]} in {fanouts}: a hop takes 0 to {MAX_DRAWS - 1} edges a vertex, or -1 for all; correct it")

    def __repr__(self) -> str:
        fanouts = list(self.fanouts[""]) if self._is_common else {name: list(own) for name, own in self.fanouts.items()}
        return f"HeteroSampler(fanouts={fanouts}, seed_type={self.seed_type!r}, replace={self.replace})"

    @property
    def num_hops(self) -> int:
        """Number of dictionaries of blocks in a mini-batch: the number of layers of the model."""
        return len(next(iter(self.fanouts.values())))

    def check_data(self, data: Dataset | HeteroDataset) -> None:
        """Refuse a plain data set, or one whose seeds are of another type."""
        if not isinstance(data, HeteroDataset):
            raise InputError(f"HeteroSampler on {data.name}, which is no HeteroDataset: make one of a HeteroGraph, or take NeighborSampler")
        if data.seed_type != self.seed_type:
            raise InputError(f"seed_type is {self.seed_type!r}, that of {data.name} {data.seed_type!r}: give the sampler the data's")

    def prepare(self, graph: HeteroGraph, seeds: Array) -> HeteroSampler:
        """As it is.

        Raises:
            InputError: fanouts that do not fit the graph's relations.
        """
        self.fanouts_of(graph)
        return self

    def sample_on_cpu(self, graph: HeteroGraph, seeds: Array, address: Address, workspace: Workspace) -> HeteroMiniBatch:
        """Sample one mini-batch; see ``Sampler.sample_on_cpu``.

        Raises:
            InputError: besides, fanouts that do not fit the graph's relations.
        """
        fanouts = self.fanouts_of(graph)
        seeds = check_vertices(seeds, graph.num_nodes[self.seed_type])
        work = _Batch(graph, workspace, _frontiers(graph, self.seed_type, seeds, workspace))
        blocks: list[dict[Relation, Block]] = []
        for hop in range(self.num_hops):
            work.begin_hop(hop)
            for number, relation in enumerate(graph.relations):
                rule = kernels.Rule(fanouts[relation][hop], self.replace, False)
                work.sample(number, relation, rule, address.at_hop(number * MOST_HOPS + hop))
            blocks.append(work.end_hop())
        return HeteroMiniBatch(
            node_ids={name: frontier.nodes() for name, frontier in work.frontiers.items()},
            blocks=tuple(reversed(blocks)),
            seed_type=self.seed_type,
            num_seeds=len(seeds),
        )

    def fanouts_of(self, graph: HeteroGraph) -> dict[Relation, tuple[int, ...]]:
        """The fanouts of each of the graph's relations.

        Raises:
            InputError: they do not fit the graph's relations, or ``seed_type`` none of its types.
        """
        names = {relation: relation_name(relation) for relation in graph.relations}
        if self.seed_type not in graph.num_nodes:
            raise InputError(f"seed_type is {self.seed_type!r}: the graph has {', '.join(graph.num_nodes)}; choose one of them")
        if len(names) > MOST_RELATIONS:
            raise InputError(f"the graph has {len(names)} relations: HeteroSampler takes at most {MOST_RELATIONS}; join some")
        if self._is_common:
            return dict.fromkeys(names, self.fanouts[""])
        if set(names.values()) != set(self.fanouts):
            raise InputError(
                f"fanouts name {', '.join(self.fanouts)}, the graph's relations are {', '.join(names.values())}: name each once"
            )
        return {relation: self.fanouts[name] for relation, name in names.items()}


def _frontiers(graph: HeteroGraph, seed_type: str, seeds: Array, workspace: Workspace) -> dict[str, Frontier]:
    """The nodes of each type: the seeds, and none of the others."""
    frontiers = {
        name: Frontier(workspace, workspace.table_of(name), number, id_dtype(number), f"nodes.{name}")
        for name, number in graph.num_nodes.items()
    }
    for name, frontier in frontiers.items():
        frontier.enter_seeds(seeds if name == seed_type else seeds[:0])
    return frontiers


@dataclass(eq=False, slots=True)
class _Batch:
    """A mini-batch in the making."""

    graph: HeteroGraph
    workspace: Workspace
    frontiers: dict[str, Frontier]
    before: dict[str, int] = field(init=False)
    """Nodes of each type before the hop: its destinations."""
    hop: int = 0
    parts: dict[Relation, tuple[kernels.Edges, int]] = field(default_factory=dict)
    """The hop's edges."""

    def begin_hop(self, hop: int) -> None:
        self.hop, self.parts = hop, {}
        self.before = {name: frontier.num_nodes for name, frontier in self.frontiers.items()}

    def sample(self, number: int, relation: Relation, rule: kernels.Rule, address: HopAddress) -> None:
        """Expand the nodes of the relation's destination type that there were before the hop."""
        source, _, destination = relation
        of_relation, num_dst = self.graph.relations[relation], self.before[destination]
        columns, nodes = kernels.Columns(of_relation.indptr, of_relation.indices, *NO_TABLES), self.frontiers[destination].nodes()
        most = most_edges(num_dst, rule.fanout, lambda: kernels.count_edges(columns, nodes, 0, num_dst, rule))
        name = f".{self.hop}.{number}"
        edges = kernels.Edges(
            indptr=self.workspace.array(f"indptr{name}", num_dst + 1, id_dtype(most + 1)),
            edge_ids=self.workspace.array(f"edge_ids{name}", most, id_dtype(of_relation.num_edges)),
            indices=self.workspace.array(f"indices{name}", most, columns.indices.dtype),
        )
        edges.indptr[: 1 if most else None] = 0
        total = 0
        if most:
            total = kernels.draw_hop(columns, nodes, 0, num_dst, rule, address, scratch_for(self.workspace, rule), edges, 0)
            self.frontiers[source].relabel(edges.indices[:total])
        self.parts[relation] = edges, total

    def end_hop(self) -> dict[Relation, Block]:
        """The hop's blocks; the sources of each are all nodes of its source type so far."""
        return {
            relation: Block(
                indptr=edges.indptr,
                indices=edges.indices[:total],
                edge_ids=edges.edge_ids[:total],
                num_src=self.frontiers[relation[0]].num_nodes,
            )
            for relation, (edges, total) in self.parts.items()
        }
