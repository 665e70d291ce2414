"""Neighbour sampling over typed edges: a fanout for each relation (as in R-GCN's samplers of DGL and PyG)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hoptrain.engine import InputError
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.hetero_graph import HeteroGraph, Relation, RelationColumns, relation_name
from hoptrain.kernels.cpu.nodewise import neighbor as kernels
from hoptrain.kernels.cpu.relabel import relabel
from hoptrain.kernels.shared.philox import MAX_DRAWS, MAX_HOP
from hoptrain.samplers.base import Sampler, check_address, check_vertices, run_bulk, seed_given_twice, workspace_for
from hoptrain.samplers.batch.hetero_minibatch import HeteroMiniBatch
from hoptrain.samplers.batch.minibatch import Block
from hoptrain.samplers.scratch.alias import NO_TABLES
from hoptrain.samplers.scratch.hop import scratch_for
from hoptrain.samplers.scratch.workspace import Workspace

MOST_HOPS = 16
MOST_RELATIONS = MAX_HOP // MOST_HOPS
"""A relation's hops have a range of their own among the hops of a random number's address."""

_EXACT_COUNT = 1 << 22
"""Where a hop could have more edges than this, they are counted first, so that no memory is asked for that low degrees leave unused."""


class HeteroSampler:
    """For every hop and relation, up to ``fanout`` in-neighbours of every vertex of the relation's destination type reached so far.

    The law is ``NeighborSampler``'s, relation by relation: without replacement (the default) a vertex gives min(degree, fanout) distinct edges
    of the relation, every subset equally likely; with replacement ``fanout`` edges if it has any. The draws of different relations are
    independent. Of relation number k (in the graph's order) hop h draws what ``NeighborSampler`` would draw in hop 16 k + h: for a single
    type and relation the two samplers give the same blocks to the bit.

    Like any sampler it is a pure function of (graph, seeds, seed, epoch, batch) and keeps no state. On the CPU a batch is sampled by one
    thread, batches of a bulk by those of the workspace; on CUDA a bulk is sampled at once.
    """

    def __init__(self, fanouts: Sequence[int] | Mapping[str, Sequence[int]], seed_type: str, replace: bool = False) -> None:
        """State the hops.

        Args:
            fanouts: edges per vertex, one number a hop, from the seeds outward, for all relations; or such a list for each relation, by
                "source:name:destination". -1 takes all neighbours, 0 leaves the relation out of a hop.
            seed_type: the type of vertices that seeds are of.
            replace: draw with replacement.

        Raises:
            InputError: no hop or more than 16, lists of different lengths, a fanout that is less than -1.
        """
        self.fanouts = {name: tuple(map(int, own)) for name, own in (fanouts if isinstance(fanouts, Mapping) else {"": fanouts}).items()}
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

    def sample(
        self,
        graph: HeteroGraph,
        seeds: Array,
        *,
        seed: int = 0,
        epoch: int = 0,
        batch: int = 0,
        device: str | None = None,
        workspace: Workspace | None = None,
    ) -> HeteroMiniBatch:
        """Sample one mini-batch (structure only: no features, no labels).

        Args:
            graph: the graph.
            seeds: (B,) distinct vertex ids of ``seed_type``.
            seed: the user's seed, in [0, 2**64).
            epoch: in [0, 2**20).
            batch: the batch's number within the epoch, in [0, 2**32).
            device: "cpu" or "cuda", short for a new workspace there: the graph is copied to the device for this call alone.
            workspace: scratch memory, threads or device; the mini-batch's arrays are then views of it, good until the next call with the same
                one.

        Raises:
            InputError: a seed outside the graph, or twice; an address out of range; fanouts that do not fit the graph's relations; a device
                that cannot be used.
        """
        workspace = workspace_for(device, workspace)
        if workspace.device == "cuda":
            return self.sample_bulk(graph, [seeds], seed=seed, epoch=epoch, first_batch=batch, workspace=workspace)[0]
        check_address(seed, epoch, batch)
        fanouts = self.fanouts_of(graph)
        seeds = check_vertices(seeds, graph.num_nodes[self.seed_type])
        work = _Batch(graph, workspace)
        work.enter_seeds(self.seed_type, seeds)
        blocks: list[dict[Relation, Block]] = []
        for hop in range(self.num_hops):
            work.begin_hop(hop)
            for number, relation in enumerate(graph.relations):
                rule = kernels.Rule(fanouts[relation][hop], self.replace, False)
                address = kernels.Address(np.uint64(seed), np.uint64(epoch), np.uint64(batch), np.uint64(number * MOST_HOPS + hop))
                work.sample(number, relation, rule, address)
            blocks.append(work.end_hop())
        return HeteroMiniBatch(
            node_ids={name: work.nodes(name) for name in graph.num_nodes},
            blocks=tuple(reversed(blocks)),
            seed_type=self.seed_type,
            num_seeds=len(seeds),
            seed=seed,
            epoch=epoch,
            batch=batch,
        )

    def sample_bulk(
        self,
        graph: HeteroGraph,
        seeds: Sequence[Array],
        *,
        seed: int = 0,
        epoch: int = 0,
        first_batch: int = 0,
        device: str | None = None,
        workspace: Workspace | None = None,
    ) -> list[HeteroMiniBatch]:
        """Sample several batches, numbered from ``first_batch``; each is to the bit the one that ``sample`` gives."""
        workspace = workspace_for(device, workspace)
        if workspace.device == "cuda" and not seeds:
            return []
        if workspace.device == "cuda":
            workspace.stream.wait_for_torch()
            address = {"seed": seed, "epoch": epoch, "first_batch": first_batch}
            return Sampler.start_bulk(self, graph, seeds, workspace=workspace, **address)()  # type: ignore[arg-type, return-value]

        def sample_one(i: int, part: Workspace) -> HeteroMiniBatch:
            return self.sample(graph, seeds[i], seed=seed, epoch=epoch, batch=first_batch + i, workspace=part)

        return run_bulk(workspace, len(seeds), sample_one)

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


@dataclass(eq=False, slots=True)
class _Batch:
    """A mini-batch in the making."""

    graph: HeteroGraph
    workspace: Workspace
    counts: dict[str, int] = field(init=False)
    """Nodes of each type so far."""
    before: dict[str, int] = field(init=False)
    """The same before the hop: its destinations."""
    hop: int = 0
    parts: dict[Relation, tuple[kernels.Edges, int]] = field(default_factory=dict)
    """The hop's edges."""

    def nodes(self, name: str, room: int = 0) -> Array:
        """The nodes of a type so far, with room for ``room`` more."""
        count = self.counts[name]
        return self.workspace.array(f"nodes.{name}", count + room, id_dtype(self.graph.num_nodes[name]), keep=count)

    def enter_seeds(self, seed_type: str, seeds: Array) -> None:
        self.counts = dict.fromkeys(self.graph.num_nodes, 0)
        for name, number in self.graph.num_nodes.items():
            self.workspace.table_of(name).start(number, len(seeds) if name == seed_type else 1)
        nodes = self.nodes(seed_type, len(seeds))
        nodes[:] = seeds
        again = self.workspace.table_of(seed_type).enter(nodes, len(seeds))
        if again >= 0:
            raise seed_given_twice(nodes[again])
        self.counts[seed_type] = len(seeds)

    def begin_hop(self, hop: int) -> None:
        self.hop, self.before, self.parts = hop, dict(self.counts), {}

    def sample(self, number: int, relation: Relation, rule: kernels.Rule, address: kernels.Address) -> None:
        """Expand the nodes of the relation's destination type that there were before the hop."""
        source, _, destination = relation
        columns, num_dst = self.graph.relations[relation], self.before[destination]
        most = self._most_edges(columns, destination, rule)
        name = f".{self.hop}.{number}"
        edges = kernels.Edges(
            indptr=self.workspace.array(f"indptr{name}", num_dst + 1, id_dtype(most + 1)),
            positions=self.workspace.array(f"edge_ids{name}", most, id_dtype(columns.num_edges)),
            indices=self.workspace.array(f"indices{name}", most, columns.indices.dtype),
        )
        edges.indptr[: 1 if most else None] = 0
        total = 0
        if most:
            scratch = scratch_for(self.workspace, rule)
            total = kernels.draw_hop(_columns(columns), self.nodes(destination), 0, num_dst, rule, address, scratch, edges, 0)
            self._relabel(source, edges.indices, total)
        self.parts[relation] = edges, total

    def _relabel(self, source: str, indices: Array, total: int) -> None:
        count, table = self.counts[source], self.workspace.table_of(source)
        room = min(total, self.graph.num_nodes[source] - count)
        table.reserve(self.nodes(source), count, count + room)
        nodes = self.nodes(source, room + 1)  # relabelling writes one entry beyond the last new node
        self.counts[source] = relabel(indices, 0, total, table.view(), nodes, count)

    def end_hop(self) -> dict[Relation, Block]:
        """The hop's blocks; the sources of each are all nodes of its source type so far."""
        return {
            relation: Block(
                indptr=edges.indptr, indices=edges.indices[:total], edge_ids=edges.positions[:total], num_src=self.counts[relation[0]]
            )
            for relation, (edges, total) in self.parts.items()
        }

    def _most_edges(self, columns: RelationColumns, destination: str, rule: kernels.Rule) -> int:
        num_dst = self.before[destination]
        most = num_dst * rule.fanout
        if rule.fanout < 0 or most > _EXACT_COUNT:
            most = kernels.count_edges(_columns(columns), self.nodes(destination), 0, num_dst, rule)
        return most


def _columns(columns: RelationColumns) -> kernels.Columns:
    return kernels.Columns(columns.indptr, columns.indices, *NO_TABLES)
