"""Chunks of sampled mini-batches: the seeds of a batch are divided into contiguous chunks, each of which is sampled separately."""

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
    """A schedule that divides each step of ``batches`` into ``chunks`` steps.

    All chunks of a batch have the batch's index, and so its random numbers: a node draws the same neighbours in all chunks and in the undivided batch.
    So the union of the chunks of a ``NeighborSampler`` that expands "all" nodes is the undivided batch, even if fanouts limit the neighbours.

    Attributes:
        batches: schedule of whole batches.
        chunks: number of chunks per batch.
        num_nodes: None divides the seeds of a batch into contiguous chunks of equal length. A number V divides by node id, V / chunks ids each. A
            chunk without seeds then has the first node of its range as a placeholder, which ``num_chunk_seeds`` does not count.
    """

    batches: Schedule
    chunks: int
    num_nodes: int | None = None

    @property
    def seed(self) -> int:
        """Seed of the training."""
        return self.batches.seed

    @property
    def rank(self) -> int:
        """Index of this model copy."""
        return self.batches.rank

    @property
    def world_size(self) -> int:
        """Number of model copies."""
        return self.batches.world_size

    @property
    def num_steps(self) -> int:
        """Number of chunks of an epoch, the same on every rank."""
        return self.batches.num_steps * self.chunks

    def batch_items(self, epoch: int, step: int) -> Array:
        """Return the seeds of a chunk."""
        seeds = self._own(epoch, step)
        return seeds if len(seeds) else self._range(step).start + np.zeros(1, np.int64)

    def num_chunk_seeds(self, epoch: int, step: int) -> int:
        """Return how many of the batch's seeds are in a chunk."""
        return len(self._own(epoch, step))

    def batch_number(self, step: int) -> int:
        """Return the index of the chunk's batch, which addresses the random numbers of the chunk."""
        return self.batches.batch_number(step // self.chunks)

    def num_step_items(self, step: int) -> int:
        """Return the number of seeds over all ranks in the step of the chunk's batch."""
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
    """Return the number of node ids per chunk if chunks are ranges of ids; the last chunk may have fewer."""
    return -(-num_nodes // chunks)


def cut_by_index(graph: Graph, chunks: int) -> Graph:
    """Return ``graph`` without the edges between different chunks, where chunks are ``chunks`` ranges of node ids.

    A pipeline that divides a batch by node id loses these edges (Dearing & Wang 2020). This function reproduces that for comparison.

    Raises:
        InputError: a range would be empty.
    """
    size = index_range(graph.num_nodes, chunks)
    if size * (chunks - 1) >= graph.num_nodes:
        raise InputError(f"{chunks} chunks of {graph.num_nodes} nodes: the last would be empty; use fewer chunks")
    return graph.with_edges(graph.destinations() // size == graph.indices // size)


@dataclass(frozen=True, eq=False, slots=True)
class ChunkedBatch:
    """A batch that is divided into one or more chunks, each of which is a mini-batch.

    Attributes:
        chunks: mini-batches of the chunks with seeds.
    """

    chunks: tuple[MiniBatch, ...]

    def to(self, device: Any) -> ChunkedBatch:
        """Return the batch as torch tensors on ``device`` (see ``MiniBatch.to``)."""
        return ChunkedBatch(tuple(chunk.to(device) for chunk in self.chunks))

    @property
    def num_seeds(self) -> int:
        """Number of seeds of all chunks."""
        return sum(chunk.num_seeds for chunk in self.chunks)

    @property
    def num_step_seeds(self) -> int:
        """Number of seeds of this step over all copies."""
        return self.chunks[0].num_step_seeds

    @property
    def num_edges(self) -> int:
        """Number of sampled edges of all chunks."""
        return sum(chunk.num_edges for chunk in self.chunks)

    @property
    def epoch(self) -> int:
        """Index of the batch's epoch."""
        return self.chunks[0].epoch

    @property
    def batch(self) -> int:
        """Index of the batch within the epoch, counted over all model copies."""
        return self.chunks[0].batch

    @property
    def sample_s(self) -> float:
        """Seconds of sampling."""
        return sum(chunk.sample_s for chunk in self.chunks)

    @property
    def gather_s(self) -> float:
        """Seconds of gathering features and labels."""
        return sum(chunk.gather_s for chunk in self.chunks)

    @property
    def made_at(self) -> float:
        """Time at which sampling of the first chunk began, in seconds of ``time.perf_counter``."""
        return self.chunks[0].made_at

    @property
    def pid(self) -> int:
        """Id of the process that sampled the first chunk."""
        return self.chunks[0].pid


_OF_THE_SCHEDULE = ("split", "batch_size", "seed", "shuffle", "rank", "world_size")


class ChunkLoader(EpochLoader[ChunkedBatch]):
    """A loader of ``ChunkedBatch`` objects. Its steps, also in ``state_dict``, count whole batches, so a run may resume with another number of chunks.

    Attributes:
        parts: loader of the chunks.
    """

    def __init__(self, data: Dataset, sampler: Sampler, *, chunks: int, chunking: Chunking = "seeds", **options: Any) -> None:
        """Set up the loader; it starts no processes yet.

        Args:
            data: graph, features and labels.
            sampler: sampling algorithm.
            chunks: number of chunks per batch.
            chunking: "seeds" divides the seeds. "by-index" divides the nodes by id and is lossy: it drops edges between chunks.
            options: further options of ``SampleLoader``.

        Raises:
            InputError: there are more chunks than seeds, the sampler does not sample from seeds, or bulks are sampled on a device.
        """
        workers = options.get("num_workers", 0)
        sampler.check_data(data)
        if not sampler.by_seeds:
            raise InputError(
                f"chunks with {type(sampler).__name__}: its batches have no seeds to divide into chunks; use a sampler of seeds, such as NeighborSampler"
            )
        if options.get("device", "cpu") != "cpu" and not workers:
            raise InputError("chunks with sampler_device cuda and num_workers 0: bulks on a device need whole batches; set num_workers 1")
        if workers:  # the current batch and the next one each occupy one queue slot per chunk
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
                f"{chunks} chunks of a batch of {fewest} seeds: every chunk needs a seed; use at most {fewest} chunks or larger batches"
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
        """Number of sampled chunks that were ready when the last chunk was taken; 0 without workers."""
        return self.parts.num_ready

    def close(self) -> None:
        """Stop the workers; the next iteration starts new ones."""
        self.parts.close()
