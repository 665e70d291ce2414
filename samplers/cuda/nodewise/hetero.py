"""Sampling of typed edges on a CUDA device: a bulk of mini-batches at once, to the bit those of ``HeteroSampler``."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hoptrain.engine import InputError
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.hetero_graph import HeteroGraph, Relation
from hoptrain.kernels.cuda.draw import DISTINCT, REPLACE
from hoptrain.kernels.cuda.scan import exclusive_scan
from hoptrain.samplers.batch.hetero_minibatch import HeteroMiniBatch
from hoptrain.samplers.batch.minibatch import Block
from hoptrain.samplers.checks import check_vertices
from hoptrain.samplers.cuda.bulk import Bulk
from hoptrain.samplers.cuda.device_sampler import FEW_EDGES, DeviceSampler, Upload, longest
from hoptrain.samplers.cuda.draws import GraphDraws
from hoptrain.samplers.cuda.edges import Edges
from hoptrain.samplers.cuda.frontier import DeviceFrontier
from hoptrain.samplers.nodewise.hetero import HeteroSampler
from hoptrain.samplers.scratch.workspace import Workspace
from hoptrain.samplers.typed import MOST_HOPS


class _Sampled(NamedTuple):
    """The edges of a relation in a hop, and what their sizes are called."""

    edges: Edges
    num_dst: str
    num_edges: str


class CudaHetero(DeviceSampler[HeteroMiniBatch]):
    """Samples one graph by one sampler.

    Attributes:
        columns: the device's copy of each relation.
        sampled: of each hop, by relation.
        schedules: of the draws of a bulk, see ``learn_requests``.
        counts: for each hop the sizes that tell the nodes after it, by type; the first entry is before all.
    """

    def __init__(self, graph: HeteroGraph, sampler: HeteroSampler, workspace: Workspace) -> None:
        """Copy the graph to where the device reads it.

        Raises:
            InputError: CUDA cannot be used, an unknown kernel or placement, an option that has no kernels, or fanouts that do not fit the
                graph's relations.
        """
        options = {"weighted=True": sampler.weighted, 'expand="new"': sampler.expand != "all", "seed_type=None": sampler.seed_type is None}
        for option, is_given in options.items():
            if is_given:
                raise InputError(f'HeteroSampler with {option} and device="cuda": it has no kernels for CUDA; use device="cpu"')
        super().__init__(workspace)
        self.host_graph, self.seed_type, self.fanouts = graph, str(sampler.seed_type), sampler.fanouts_of(graph)
        self.mode, self.num_hops = REPLACE if sampler.replace else DISTINCT, sampler.num_hops
        self.columns = {relation: self.place_graph(own) for relation, own in graph.relations.items()}
        steps = [f"{hop}.{number}" for hop in range(self.num_hops) for number in range(len(self.columns))]
        self.hops = [number * MOST_HOPS + hop for hop in range(self.num_hops) for number in range(len(self.columns))]
        self.size_names = (
            "zeros", "start", "unplaced", "repeated",
            *(f"nodes.{name}" for name in graph.num_nodes), *(f"{kind}{step}" for step in steps for kind in ("edges", "nodes", "needed")),
        )  # fmt: skip

    def begin(self, seeds: list[Array]) -> None:
        """Check the seeds."""
        self.seeds = [check_vertices(some, self.host_graph.num_nodes[self.seed_type]) for some in seeds]
        self.most_nodes, most = self._bounds(longest(self.seeds))
        room = max(self.most_nodes.values())
        self.dtype = np.promote_types(self.dtype, id_dtype(4 * room + most + 2))
        self.given[f"nodes.{self.seed_type}"] = [len(some) for some in self.seeds]
        self.begin_tables(room + most + 2)

    def _bounds(self, most_seeds: int) -> tuple[dict[str, int], int]:
        """The nodes of each type that a batch can have, and the edges of a step."""
        graph = self.host_graph
        known = {name: most_seeds if name == self.seed_type else 0 for name in graph.num_nodes}
        most = 0
        for hop in range(self.num_hops):
            before = dict(known)
            for (source, name, destination), fanouts in self.fanouts.items():
                num_edges = graph.relations[source, name, destination].num_edges
                edges = num_edges if fanouts[hop] < 0 else before[destination] * fanouts[hop]
                known[source], most = min(graph.num_nodes[source], known[source] + edges), max(most, edges)
        return known, most

    def _seeds_of(self, name: str) -> list[Array]:
        return self.seeds if name == self.seed_type else [np.zeros(0, np.int64)] * self.num_batches

    def uploads(self) -> dict[str, Upload]:
        """The seeds of each type."""
        return {f"seeds.{name}": Upload(self._seeds_of(name), id_dtype(number)) for name, number in self.host_graph.num_nodes.items()}

    def queue(self) -> None:
        """Hop after hop; each expands the nodes of a relation's destination type that there were before it."""
        self.frontiers = {
            name: DeviceFrontier(self, number, id_dtype(number), f".{name}", room=self.most_nodes[name])
            for name, number in self.host_graph.num_nodes.items()
        }
        for name, frontier in self.frontiers.items():
            most = longest(self._seeds_of(name))
            frontier.enter_seeds(self.brought[f"seeds.{name}"], most, self.sizes[f"nodes.{name}"])
        self.counts = [{name: f"nodes.{name}" for name in self.frontiers}]
        self.sampled: list[dict[Relation, _Sampled]] = []
        self.schedules: list[tuple[int, GraphDraws, int, str]] = []
        for hop in range(self.num_hops):
            before, known = self.counts[-1], {name: frontier.known for name, frontier in self.frontiers.items()}
            self.counts.append(dict(before))
            self.sampled.append({
                relation: self._sample(hop, number, relation, before[relation[2]], known[relation[2]])
                for number, relation in enumerate(self.columns)
            })  # fmt: skip

    def _sample(self, hop: int, number: int, relation: Relation, num_dst: str, capacity: int) -> _Sampled:
        """One relation; a size says how many destinations there are, ``capacity`` at most."""
        (source, _, destination), sizes = relation, self.sizes
        frontier, zeros, step, fanout = self.frontiers[source], sizes["zeros"], f"{hop}.{number}", self.fanouts[relation][hop]
        end, counts = sizes[f"edges{step}"], self.counts[-1]
        draws = GraphDraws(self.columns[relation], self.launch, self.buffers, self.kernel, f".{destination}")
        requests = self.frontiers[destination].nodes, zeros, sizes[num_dst]
        place = hop * len(self.columns) + number
        draw = fanout, self.mode, self.addresses[place]
        indptr = self.matrix(f"indptr.{step}", capacity + 1, self.dtype)
        draws.count(requests, capacity, draw, indptr)
        if fanout < 0:
            guess, bounds = min(draws.num_edges, FEW_EDGES * capacity), (zeros, sizes[num_dst], zeros)
            most = self.scan_into_room(f"needed{step}", guess, indptr, capacity, bounds, end)
        else:
            exclusive_scan(self.launch, indptr, capacity, zeros, sizes[num_dst], zeros, self.sums(capacity), end)
            most = capacity * fanout
        edges = Edges(
            indptr,
            self.matrix(f"edge_ids.{step}", most, id_dtype(draws.num_edges)),
            self.matrix(f"indices.{step}", most, id_dtype(self.host_graph.num_nodes[source])),
        )
        if most:
            draws.expected = self.expected(place)
            schedule = draws.draw(requests, capacity, capacity, draw, (edges.indptr, edges.edge_ids, edges.indices))
            self.schedules.append((place, draws, fanout, schedule))
            after = f"nodes{step}"
            frontier.relabel(edges.indices, most, (zeros, end), sizes[counts[source]], sizes[after])
            counts[source] = after
        return _Sampled(edges, num_dst, f"edges{step}")

    def learn_sizes(self) -> None:
        """The first bulk tells how many requests a seed leads to, for each relation."""
        numbers = [int(self.host_size(own.num_dst).sum()) for hop in self.sampled for own in hop.values()]
        self.learn_requests(numbers, self.schedules)

    def batches(self) -> Bulk[HeteroMiniBatch]:
        """The mini-batches."""
        nodes = {name: self.stream.result(frontier.nodes) for name, frontier in self.frontiers.items()}
        hops = [
            {relation: own._replace(edges=own.edges.results(self.stream)) for relation, own in sampled.items()} for sampled in self.sampled
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
                seed_counts={name: len(self.seeds[b]) if name == self.seed_type else 0 for name in nodes},
                seed_type=self.seed_type,
                num_seeds=len(self.seeds[b]),
            )

        return Bulk(self.num_batches, batch)
