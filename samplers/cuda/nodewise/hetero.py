"""CUDA driver of ``HeteroSampler``."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from hoptrain.engine import InputError
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.hetero_graph import HeteroGraph, Relation
from hoptrain.kernels.cuda.draw import DISTINCT, REPLACE
from hoptrain.kernels.cuda.scan import exclusive_scan
from hoptrain.kernels.shared.draws import fanout_code
from hoptrain.samplers.batch.minibatch import Block, HeteroMiniBatch
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.checks import seed_given_twice
from hoptrain.samplers.cuda.bulk import Bulk
from hoptrain.samplers.cuda.device_sampler import FEW_EDGES, DeviceSampler, Upload, longest
from hoptrain.samplers.cuda.draws import GraphDraws
from hoptrain.samplers.cuda.edges import BulkEdges
from hoptrain.samplers.cuda.frontier import DeviceFrontier
from hoptrain.samplers.hops import MOST_HOPS
from hoptrain.samplers.nodewise.neighbor import HeteroSampler

_NONE: Array = np.zeros(0, np.int64)


class _Sampled(NamedTuple):
    """A relation's edges in a hop, and the keys of their counts in ``sizes``."""

    edges: BulkEdges
    first: str
    """Key in ``sizes`` of the index of the first expanded node."""
    num_dst: str
    """Key in ``sizes`` of the end of the expanded nodes, which is also the number of destinations."""
    num_edges: str
    """Key in ``sizes`` of the number of edges."""


class CudaHetero(DeviceSampler[HeteroMiniBatch]):
    """The driver of ``HeteroSampler``.

    Attributes:
        columns: copy of each relation on the device.
        sampled: edges of each hop by relation. If each node is expanded once, the arrays of the last hop have the edges of all hops.
        schedules: schedules of the draws of a bulk, see ``learn_requests``.
        counts: names of the sizes with the number of nodes of each type, before the first hop and after each hop.
    """

    def __init__(self, graph: HeteroGraph, sampler: HeteroSampler, workspace: Workspace) -> None:
        """Copy the graph to the device, or to pinned host memory.

        Raises:
            InputError: CUDA cannot be used, the kernel or placement is unknown, an option has no CUDA kernels, or the fanouts do not fit the
                graph's relations.
        """
        if sampler.weighted:
            raise InputError('HeteroSampler with weighted=True and device="cuda": this option has no kernels for CUDA; use device="cpu"')
        super().__init__(workspace)
        self.host_graph, self.seeds_of = graph, partial(sampler.seeds_of, graph)
        self.fanouts = {relation: tuple(map(fanout_code, own)) for relation, own in sampler.fanouts_of(graph).items()}
        self.nested = sampler.expand == "new"
        self.mode, self.num_hops = REPLACE if sampler.replace else DISTINCT, sampler.num_hops
        self.columns = {relation: self.place_graph(own) for relation, own in graph.relations.items()}
        steps = [f"{hop}.{number}" for hop in range(self.num_hops) for number in range(len(self.columns))]
        self.hops = [number * MOST_HOPS + hop for hop in range(self.num_hops) for number in range(len(self.columns))]
        self.size_names = (
            "zeros", "start", "unplaced", "repeated",
            *(f"nodes.{name}" for name in graph.num_nodes), *(f"{kind}{step}" for step in steps for kind in ("edges", "nodes", "needed")),
        )  # fmt: skip

    def begin(self, seeds: list[Array]) -> None:
        """Check the seeds, and compute bounds of the sizes of a batch."""
        self.asked = [self.seeds_of(some) for some in seeds]
        self.seeds = [np.concatenate([ids for ids, _ in asked.by_type.values()] or [_NONE]) for asked in self.asked]
        if any(asked.kind is None for asked in self.asked):  # checked here, since the position in "repeated" does not tell the node type
            for ids in (ids for asked in self.asked for ids, _ in asked.by_type.values()):
                values, counts = np.unique(ids, return_counts=True)
                if len(values) < len(ids):
                    raise seed_given_twice(values[counts.argmax()])
        self.most_nodes, most = self._bounds({name: longest(self._seeds_of(name)) for name in self.host_graph.num_nodes})
        capacity = max(self.most_nodes.values())
        self.dtype = np.promote_types(self.dtype, id_dtype(4 * capacity + most + 2))
        self.given |= {f"nodes.{name}": list(map(len, self._seeds_of(name))) for name in self.host_graph.num_nodes}
        self.begin_tables(capacity + most + 2)

    def _bounds(self, most_seeds: dict[str, int]) -> tuple[dict[str, int], int]:
        """Return the maximum number of nodes of each type in a batch, and the maximum number of edges in an array."""
        graph, known = self.host_graph, dict(most_seeds)
        standing = dict.fromkeys(self.fanouts, 0)
        most = 0
        for hop in range(self.num_hops):
            before = dict(known)
            for relation, fanouts in self.fanouts.items():
                source, _, destination = relation
                edges = graph.relations[relation].num_edges if fanouts[hop] < 0 else before[destination] * fanouts[hop]
                standing[relation] = edges + (standing[relation] if self.nested else 0)
                known[source], most = min(graph.num_nodes[source], known[source] + edges), max(most, standing[relation])
        return known, most

    def _seeds_of(self, name: str) -> list[Array]:
        return [asked.by_type[name][0] if name in asked.by_type else _NONE for asked in self.asked]

    def uploads(self) -> dict[str, Upload]:
        """Return the seeds of each type as uploads."""
        return {f"seeds.{name}": Upload(self._seeds_of(name), id_dtype(number)) for name, number in self.host_graph.num_nodes.items()}

    def queue(self) -> None:
        """Queue all hops. Each expands, by every relation, all nodes of the destination type or those that the previous hop found."""
        self.frontiers = {
            name: DeviceFrontier(self, number, id_dtype(number), f".{name}", capacity=self.most_nodes[name])
            for name, number in self.host_graph.num_nodes.items()
        }
        for name, frontier in self.frontiers.items():
            most = longest(self._seeds_of(name))
            frontier.enter_seeds(self.brought[f"seeds.{name}"], most, self.sizes[f"nodes.{name}"])
        self.counts = [{name: f"nodes.{name}" for name in self.frontiers}]
        self.sampled: list[dict[Relation, _Sampled]] = []
        self.schedules: list[tuple[int, GraphDraws, int, str]] = []
        first = dict.fromkeys(self.frontiers, "zeros")
        # Upper bounds for a batch: nodes of each type that a hop expands, and edges of each relation so far in arrays that hops share.
        fresh, self._standing = {name: frontier.known for name, frontier in self.frontiers.items()}, dict.fromkeys(self.columns, 0)
        for hop in range(self.num_hops):
            before, known = self.counts[-1], {name: frontier.known for name, frontier in self.frontiers.items()}
            self.counts.append(dict(before))
            self._found = dict.fromkeys(self.frontiers, 0)
            expanded = fresh if self.nested else known
            self.sampled.append({
                relation: self._sample(hop, number, relation, (first[relation[2]], before[relation[2]]), expanded[relation[2]], known[relation[2]])
                for number, relation in enumerate(self.columns)
            })  # fmt: skip
            fresh = {name: min(self.host_graph.num_nodes[name], number) for name, number in self._found.items()}
            first = before if self.nested else first

    def _sample(self, hop: int, number: int, relation: Relation, spans: tuple[str, str], capacity: int, known: int) -> _Sampled:
        """Queue one relation of a hop.

        ``spans`` are the keys in ``sizes`` of the index of the first destination and of the end of the destinations. There are at most ``capacity``
        destinations, and at most ``known`` nodes of their type.
        """
        (source, _, destination), sizes, (first, num_dst) = relation, self.sizes, spans
        frontier, zeros, step, fanout = self.frontiers[source], sizes["zeros"], f"{hop}.{number}", self.fanouts[relation][hop]
        end, counts, shares = sizes[f"edges{step}"], self.counts[-1], self.nested and hop > 0
        low, base, before = sizes[first], sizes[f"edges{hop - 1}.{number}"] if shares else zeros, self._standing[relation] if shares else 0
        name = f".{number}" if self.nested else step
        draws = GraphDraws(self.columns[relation], self.launch, self.buffers, self.kernel, f".{destination}")
        requests = self.frontiers[destination].nodes, low, sizes[num_dst]
        place = hop * len(self.columns) + number
        draw = fanout, self.mode, self.addresses[place]
        indptr = self.matrix(f"indptr.{name}", known + 1, self.dtype, keep=self.nested)
        draws.count(requests, capacity, draw, indptr)
        if fanout < 0:
            guess, bounds = before + min(draws.num_edges, FEW_EDGES * capacity), (low, sizes[num_dst], base)
            buffer_size = self.scan_into_buffer(f"needed{step}", guess, indptr, capacity, bounds, end)
            most = min(buffer_size, draws.num_edges) if capacity else 0
        else:
            exclusive_scan(self.launch, indptr, capacity, low, sizes[num_dst], base, self.sums(capacity), end)
            most = capacity * fanout
            buffer_size = before + most
        edges = BulkEdges(
            indptr,
            self.matrix(f"edge_ids.{name}", buffer_size, id_dtype(draws.num_edges), keep=self.nested),
            self.matrix(f"indices.{name}", buffer_size, id_dtype(self.host_graph.num_nodes[source]), keep=self.nested),
        )
        if most:
            draws.expected = self.expected(place)
            schedule = draws.draw(requests, capacity, known, draw, (edges.indptr, edges.edge_ids, edges.indices))
            self.schedules.append((place, draws, fanout, schedule))
            after = f"nodes{step}"
            frontier.relabel(edges.indices, most, (base, end), sizes[counts[source]], sizes[after])
            counts[source] = after
        self._standing[relation] = buffer_size
        self._found[source] += most
        return _Sampled(edges, first, num_dst, f"edges{step}")

    def learn_sizes(self) -> None:
        """Learn from the first bulk the number of requests per seed in each hop and relation."""
        numbers = [int((self.host_size(own.num_dst) - self.host_size(own.first)).sum()) for hop in self.sampled for own in hop.values()]
        self.learn_requests(numbers, self.schedules)

    def batches(self) -> Bulk[HeteroMiniBatch]:
        """Return the mini-batches of the bulk."""
        nodes = {name: self.stream.result(frontier.nodes) for name, frontier in self.frontiers.items()}
        hops = [
            {relation: own._replace(edges=last[relation].edges.results(self.stream)) for relation, own in sampled.items()}
            for sampled in self.sampled
            for last in [self.sampled[-1] if self.nested else sampled]
        ]

        def block(b: int, own: _Sampled, num_src: str) -> Block:
            return own.edges.block(b, *(self.host_size(size)[b] for size in (own.num_dst, own.num_edges, num_src)))

        def batch(b: int) -> HeteroMiniBatch:
            return HeteroMiniBatch(
                node_ids={name: nodes[name][b, : self.host_size(size)[b]] for name, size in self.counts[-1].items()},
                blocks=tuple(
                    {relation: block(b, own, counts[relation[0]]) for relation, own in hop.items()}
                    for hop, counts in zip(reversed(hops), reversed(self.counts), strict=False)
                ),
                seed_counts={name: len(self._seeds_of(name)[b]) for name in nodes},
                seed_type=self.asked[b].kind,
                num_seeds=self.asked[b].number,
                nested=self.nested,
            )

        return Bulk(self.num_batches, batch)
