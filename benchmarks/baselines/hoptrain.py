"""hoptrain as one of the compared systems: its samplers, whose arrays are copied to buffers as its loader copies them into a queue slot, and its loader."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from hoptrain.benchmarks.baselines.loaders import Case, Epoch
from hoptrain.benchmarks.baselines.systems import AlgorithmSystems, NeighborSystems, System
from hoptrain.benchmarks.cases.samplers import Workload
from hoptrain.benchmarks.common.harness import HOPTRAIN
from hoptrain.benchmarks.common.options import SEED
from hoptrain.engine import Address, Dataset, Graph
from hoptrain.engine.arrays import Array
from hoptrain.engine.features.quantized import codes_of
from hoptrain.samplers import MiniBatch, NeighborSampler, SampleLoader, Sampler, Workspace
from hoptrain.samplers.programs.cpu import walk
from hoptrain.samplers.programs.program import SamplingProgram


def open_neighbor(mode: str, graph: Graph) -> NeighborSystems:
    """Return hoptrain's neighbour samplers for ``graph``, which is in memory.

    With several threads it returns two systems: in one, each thread samples whole mini-batches; in the other, all threads share each mini-batch.
    """

    def systems(fanouts: Sequence[int], replace: bool, threads: Sequence[int]) -> Iterator[System]:
        sampler = NeighborSampler(fanouts, replace=replace, expand=mode)
        for count in threads:
            sample = partial(_sample_whole, sampler, graph, Workspace(count), Workspace(count))
            yield System(family=HOPTRAIN, name=HOPTRAIN, mode=mode, threads=count, sample=sample)
            if count > 1:
                sample = partial(_sample_shared, sampler, graph, Workspace(count), Workspace(count))
                yield System(family=HOPTRAIN, name=f"{HOPTRAIN}, shared", mode=mode, threads=count, sample=sample)

    return systems


def open_algorithms(graph: Graph) -> AlgorithmSystems:
    """Return hoptrain's samplers for ``graph``, which is in memory, for each number of threads. Each thread samples whole mini-batches."""

    def systems(name: str, workload: Workload, threads: Sequence[int]) -> Iterator[System]:
        sampler = workload.sampler
        for count in threads:
            sample = partial(
                _walk if isinstance(sampler, SamplingProgram) else _sample_whole, sampler, graph, Workspace(count), Workspace(count)
            )
            yield System(family=HOPTRAIN, name=HOPTRAIN, threads=count, sample=sample)

    return systems


def open_loader(mode: str, data: Dataset, *, as_codes: bool = False) -> Callable[[Case, int], Epoch]:
    """Return a function that opens hoptrain's loader with its default settings, except for the mode of expansion.

    Workers share the data set's files. Without workers the data set is in memory, as for baselines. With ``as_codes``, quantised features are not decoded,
    as for a GPU, which decodes them itself.
    """
    in_memory = cache(data.in_memory)

    def make(case: Case, workers: int) -> Epoch:
        sampler = NeighborSampler(case.fanouts, expand=mode)
        loader = SampleLoader(
            data if workers else in_memory(), sampler, split=case.seeds, batch_size=case.batch_size, num_workers=workers, seed=SEED
        )

        def epoch() -> Iterator[tuple[int, Array]]:
            for batch in loader:
                yield batch.num_edges, codes_of(batch.x) if as_codes else batch.to("cpu").x.numpy()
                del batch  # releases the queue slot

        return epoch

    return make


def open_overhead(graph: Graph, mode: str, hops: int) -> Callable[[Sequence[Array], int], int]:
    """Return a function that samples mini-batches of one seed and one neighbour per hop, and returns the number of mini-batches.

    It spends almost all of its time in Python code that holds the GIL.
    """
    sampler, workspace = NeighborSampler([1] * hops, expand=mode), Workspace()

    def sample(seeds: Sequence[Array], first: int) -> int:
        return len(sampler.sample_bulk(graph, [ids[:1] for ids in seeds], first_batch=first, workspace=workspace))

    return sample


def _sample_whole(sampler: Sampler, graph: Graph, workspace: Workspace, slots: Workspace, seeds: Sequence[Array], first: int) -> int:
    """Sample whole mini-batches in each thread, copy them to buffers, and return the number of edges."""
    edges = [0] * workspace.threads
    tickets = iter(range(len(seeds)))
    parts = [(workspace.part(thread), slots.part(thread)) for thread in range(workspace.threads)]

    def sample_some(thread: int) -> None:
        own, slot = parts[thread]
        for i in tickets:
            batch = sampler.sample(graph, seeds[i], batch=first + i, workspace=own)
            edges[thread] += copy_out([batch], slot)

    workspace.run([partial(sample_some, thread) for thread in range(workspace.threads)])
    return sum(edges)


def _sample_shared(
    sampler: NeighborSampler, graph: Graph, workspace: Workspace, slots: Workspace, seeds: Sequence[Array], first: int
) -> int:
    return sum(copy_out([sampler.sample(graph, ids, batch=first + i, workspace=workspace)], slots) for i, ids in enumerate(seeds))


def _walk(program: Any, graph: Graph, workspace: Workspace, slots: Workspace, seeds: Sequence[Array], first: int) -> int:
    """Sample walks in global ids, as the baselines return them, with all threads sharing each mini-batch. Returns the number of steps."""
    steps = 0
    for i, roots in enumerate(seeds):
        walks = walk(program, graph, roots, Address(SEED, 0, first + i), workspace)
        out = slots.array("walks", walks.size, walks.dtype)
        np.copyto(out, walks.reshape(-1))
        steps += walks.size - len(walks)
    return steps


def copy_out(batches: Sequence[MiniBatch], slots: Workspace) -> int:
    """Copy every array into a reused buffer with the threads of ``slots``, and return the number of edges."""
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
