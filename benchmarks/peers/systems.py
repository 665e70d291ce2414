"""What a sampling system is to the benchmark, and hoptrain as one of them; the others are in ``hoptrain.benchmarks.peers.samplers``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from hoptrain.engine import Graph
from hoptrain.engine.arrays import Array
from hoptrain.samplers import MiniBatch, NeighborSampler, Sampler, Workspace

FAMILY = "hoptrain"


@dataclass(frozen=True, kw_only=True, slots=True)
class System:
    """Something that samples.

    Attributes:
        family: whose it is: "hoptrain", "DGL" or "PyG".
        name: which variant; that which shares the family's name stands for it.
        mode: which vertices a hop expands, "all" found so far or the "new" ones.
        threads: threads it uses.
        sample: takes the seeds of some mini-batches and the number of the first; samples them and returns the number of edges.
    """

    family: str
    name: str
    mode: str
    threads: int
    sample: Callable[[Sequence[Array], int], int]

    @property
    def label(self) -> str:
        """Different for each system of a comparison."""
        return f"{self.name}, {self.mode}, {self.threads}"


Open: TypeAlias = Callable[[Sequence[int], bool, Sequence[int]], list[System]]
"""From fanouts (seeds outward), whether to draw with replacement, and thread counts to the systems."""


def open_hoptrain(graph: Graph, mode: str) -> Open:
    """Take hoptrain's sampler; with several threads once by whole mini-batches, once sharing each. ``graph`` lies in memory."""

    def systems(fanouts: Sequence[int], replace: bool, threads: Sequence[int]) -> list[System]:
        sampler = NeighborSampler(fanouts, replace=replace, expand=mode)
        found = []
        for count in threads:
            sample = partial(sample_whole, sampler, graph, Workspace(count), Workspace(count))
            found.append(System(family=FAMILY, name=FAMILY, mode=mode, threads=count, sample=sample))
            if count > 1:
                sample = partial(_sample_shared, sampler, graph, Workspace(count), Workspace(count))
                found.append(System(family=FAMILY, name=f"{FAMILY}, shared", mode=mode, threads=count, sample=sample))
        return found

    return systems


def sample_whole(sampler: Sampler, graph: Graph, workspace: Workspace, slots: Workspace, seeds: Sequence[Array], first: int) -> int:
    """Each thread samples and copies out the next mini-batch that nobody has, until all are taken. Returns the number of edges."""
    edges = [0] * workspace.threads
    tickets = iter(range(len(seeds)))
    parts = [(workspace.part(thread), slots.part(thread)) for thread in range(workspace.threads)]

    def sample_some(thread: int) -> None:
        own, slot = parts[thread]
        for i in tickets:
            batch = sampler.sample(graph, seeds[i], batch=first + i, workspace=own)
            edges[thread] += _copy_out([batch], slot)

    workspace.run([partial(sample_some, thread) for thread in range(workspace.threads)])
    return sum(edges)


def _sample_shared(
    sampler: NeighborSampler, graph: Graph, workspace: Workspace, slots: Workspace, seeds: Sequence[Array], first: int
) -> int:
    return sum(_copy_out([sampler.sample(graph, ids, batch=first + i, workspace=workspace)], slots) for i, ids in enumerate(seeds))


def open_overhead(graph: Graph, mode: str, hops: int) -> Callable[[Sequence[Array], int], int]:
    """Mini-batches of one seed and one neighbour a hop: nearly nothing but what Python does, holding the interpreter's lock. Returns how many."""
    sampler, workspace = NeighborSampler([1] * hops, expand=mode), Workspace()

    def sample(seeds: Sequence[Array], first: int) -> int:
        return len(sampler.sample_bulk(graph, [ids[:1] for ids in seeds], first_batch=first, workspace=workspace))

    return sample


def _copy_out(batches: Sequence[MiniBatch], slots: Workspace) -> int:
    """Copy every array into a buffer that is used again, by the threads of ``slots``. Returns the number of edges."""
    copies = [
        (slots.array(f"{i}.{name}", len(array), array.dtype), array)
        for i, batch in enumerate(batches)
        for name, array in batch.arrays().items()
    ]

    def copy_some(thread: int) -> None:
        for target, source in copies[thread :: slots.threads]:
            np.copyto(target, source)

    slots.run([partial(copy_some, thread) for thread in range(slots.threads)])
    return sum(batch.num_edges for batch in batches)
