"""Chunks of sampled mini-batches: the seeds of a batch in runs, each sampled on its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal

import numpy as np

from hoptrain.engine import Dataset, Graph, InputError, Schedule
from hoptrain.engine.arrays import Array
from hoptrain.engine.queue.options import DEFAULTS
from hoptrain.engine.schedule import StepSchedule
from hoptrain.samplers import MiniBatch, SampleLoader, Sampler
from hoptrain.samplers.loader.epochs import EpochLoader
from hoptrain.samplers.loader.loader import plain_schedule

Chunking = Literal["seeds", "by-index"]


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class ChunkSchedule(StepSchedule):
    """A schedule that has each step of ``batches`` in ``chunks`` steps.

    All chunks of a batch have the batch's number, hence its random numbers: a node draws the same neighbours in all of them, and the same as in
    the batch in one piece. So the chunks of a ``NeighborSampler`` that expands "all" nodes are together that batch, also where it samples.

    Attributes:
        batches: the schedule of whole batches.
        chunks: chunks of a batch.
        num_nodes: None cuts the seeds of a batch into runs of equal length. A number V cuts by node id, into V / chunks ids each; a range
            without seeds then gives its first node, which ``num_chunk_seeds`` does not count.
    """

    batches: Schedule
    chunks: int
    num_nodes: int | None = None

    @property
    def seed(self) -> int:
        """The user's."""
        return self.batches.seed

    @property
    def rank(self) -> int:
        """Number of this copy."""
        return self.batches.rank

    @property
    def world_size(self) -> int:
        """Number of copies."""
        return self.batches.world_size

    @property
    def num_steps(self) -> int:
        """Chunks of an epoch, the same on every rank."""
        return self.batches.num_steps * self.chunks

    def batch_items(self, epoch: int, step: int) -> Array:
        """The seeds of a chunk."""
        seeds = self._own(epoch, step)
        return seeds if len(seeds) else self._range(step).start + np.zeros(1, np.int64)

    def num_chunk_seeds(self, epoch: int, step: int) -> int:
        """How many seeds of the batch a chunk has."""
        return len(self._own(epoch, step))

    def batch_number(self, step: int) -> int:
        """Return the number of the batch that the chunk is of: its random numbers are the chunk's."""
        return self.batches.batch_number(step // self.chunks)

    def num_step_items(self, step: int) -> int:
        """How many seeds all ranks together have at the step of the batch."""
        return self.batches.num_step_items(step // self.chunks)

    def _own(self, epoch: int, step: int) -> Array:
        batch = self.batches.batch_items(epoch, step // self.chunks)
        if self.num_nodes is None:
            return np.array_split(batch, self.chunks)[step % self.chunks]
        ids = self._range(step)
        return batch[(batch >= ids.start) & (batch < ids.stop)]

    def _range(self, step: int) -> range:
        size = index_range(self.num_nodes or 0, self.chunks)
        return range(step % self.chunks * size, (step % self.chunks + 1) * size)


def index_range(num_nodes: int, chunks: int) -> int:
    """Node ids of a chunk that is cut by index; the last may have fewer."""
    return -(-num_nodes // chunks)


def cut_by_index(graph: Graph, chunks: int) -> Graph:
    """``graph`` without the edges between nodes of different chunks, when nodes are cut into ``chunks`` ranges of ids.

    This is what a model loses whose batch is cut by node id (Dearing & Wang 2020): lossy, for comparison.

    Raises:
        InputError: a range would be empty.
    """
    size = index_range(graph.num_nodes, chunks)
    if size * (chunks - 1) >= graph.num_nodes:
        raise InputError(f"{chunks} chunks of {graph.num_nodes} nodes: the last would have none; use fewer chunks")
    return graph.with_edges(graph.destinations() // size == graph.indices // size)


@dataclass(frozen=True, eq=False, slots=True)
class ChunkedBatch:
    """The mini-batches of a batch's chunks; at least one.

    Attributes:
        chunks: those that have seeds.
    """

    chunks: tuple[MiniBatch, ...]

    def to(self, device: Any) -> ChunkedBatch:
        """As torch tensors on ``device``; as ``MiniBatch.to``."""
        return ChunkedBatch(tuple(chunk.to(device) for chunk in self.chunks))

    @property
    def num_seeds(self) -> int:
        """Seeds of all chunks."""
        return sum(chunk.num_seeds for chunk in self.chunks)

    @property
    def num_step_seeds(self) -> int:
        """Seeds of this step over all copies."""
        return self.chunks[0].num_step_seeds

    @property
    def num_edges(self) -> int:
        """Sampled edges of all chunks."""
        return sum(chunk.num_edges for chunk in self.chunks)

    @property
    def epoch(self) -> int:
        """The epoch it belongs to."""
        return self.chunks[0].epoch

    @property
    def batch(self) -> int:
        """Its number within the epoch, over all copies."""
        return self.chunks[0].batch

    @property
    def sample_s(self) -> float:
        """Seconds spent on sampling."""
        return sum(chunk.sample_s for chunk in self.chunks)

    @property
    def gather_s(self) -> float:
        """Seconds spent on gathering features and labels."""
        return sum(chunk.gather_s for chunk in self.chunks)

    @property
    def made_at(self) -> float:
        """When the first chunk's sampling began."""
        return self.chunks[0].made_at

    @property
    def pid(self) -> int:
        """Process that made the first chunk."""
        return self.chunks[0].pid


_OF_THE_SCHEDULE = ("split", "batch_size", "seed", "shuffle", "rank", "world_size")


class ChunkLoader(EpochLoader[ChunkedBatch]):
    """Gives ``ChunkedBatch``es. Steps, also in ``state_dict``, are those of whole batches: a run may go on with another number of chunks.

    Attributes:
        parts: the loader of the chunks.
    """

    def __init__(self, data: Dataset, sampler: Sampler, *, chunks: int, chunking: Chunking = "seeds", **options: Any) -> None:
        """Set up; nothing is started yet.

        Args:
            data: graph, features and labels.
            sampler: the algorithm.
            chunks: chunks of a batch.
            chunking: "seeds" cuts the seeds; "by-index" cuts the nodes by id and is lossy: edges between chunks are gone.
            options: as ``SampleLoader``.

        Raises:
            InputError: more chunks than seeds, a sampler whose batches are not asked for by seeds, or bulks on a device.
        """
        workers = options.get("num_workers", 0)
        sampler.check_data(data)
        if not sampler.by_seeds:
            raise InputError(
                f"chunks of {type(sampler).__name__}'s batches: they are not made from seeds, which could be cut; use another sampler"
            )
        if options.get("device", "cpu") != "cpu" and not workers:
            raise InputError("chunks with sampler_device cuda and num_workers 0: bulks on a device take whole batches; set num_workers 1")
        if workers:  # a batch holds a slot for each of its chunks, the one that follows needs as many
            worker_options = options.get("worker_options", DEFAULTS)
            options["worker_options"] = replace(worker_options, prefetch_factor=worker_options.prefetch_factor + 2 * -(-chunks // workers))
        is_lossy = chunking == "by-index"
        if is_lossy:
            data = replace(data, graph=cut_by_index(data.graph, chunks), validate=False)
        which = {name: options.pop(name) for name in _OF_THE_SCHEDULE if name in options}
        sampler, whole = plain_schedule(data, sampler, **which)
        fewest = min(whole.num_step_items(step) // whole.world_size for step in (0, whole.num_steps - 1))
        if chunks > fewest and not is_lossy:
            raise InputError(
                f"{chunks} chunks of a batch of {fewest} seeds: every chunk needs one; use at most {fewest} chunks or larger batches"
            )
        super().__init__(whole, workers)
        self._schedule = ChunkSchedule(batches=whole, chunks=chunks, num_nodes=data.graph.num_nodes if is_lossy else None)
        self.parts = SampleLoader(data, sampler, schedule=self._schedule, **options)

    def _run(self, epoch: int, steps: range) -> Iterator[ChunkedBatch]:
        count = self._schedule.chunks
        self.parts.load_state_dict({"epoch": epoch, "step": steps.start * count})
        parts = iter(self.parts)
        for step in steps:
            numbers = range(step * count, (step + 1) * count)
            chunks = zip(numbers, islice(parts, count), strict=True)
            yield ChunkedBatch(tuple(chunk for number, chunk in chunks if self._schedule.num_chunk_seeds(epoch, number)))

    @property
    def num_ready(self) -> int:
        """Chunks that lay ready behind the last one when it was taken; 0 without workers."""
        return self.parts.num_ready

    def close(self) -> None:
        """End the workers; the next iteration starts new ones."""
        self.parts.close()
