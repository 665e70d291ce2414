"""Chunks of sampled mini-batches: the seeds of a batch in runs, each sampled on its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal

import numpy as np
from torch import Tensor

from hoptrain.engine import Dataset, Graph, InputError, Schedule
from hoptrain.engine.arrays import Array
from hoptrain.engine.queue.options import QueueOptions
from hoptrain.samplers import MiniBatch, SampleLoader, Sampler
from hoptrain.trainers.models.features import to_input
from hoptrain.trainers.pipeline.chunk import Chunk, address_seed

Chunking = Literal["seeds", "by-index"]


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class ChunkSchedule(Schedule):
    """Every step of ``batches`` in ``chunks`` steps.

    All chunks of a batch have the batch's number, hence its random numbers: a vertex draws the same neighbours in all of them, and the same as in
    the batch in one piece. So the chunks of a ``NeighborSampler`` that expands "all" vertices are together that batch, also where it samples.

    Attributes:
        batches: the schedule of whole batches.
        chunks: chunks of a batch.
        num_nodes: None cuts the seeds of a batch into runs of equal length. A number V cuts by vertex id, into V / chunks ids each; a range
            without seeds then gives its first vertex, which ``num_chunk_seeds`` does not count.
    """

    batches: Schedule
    chunks: int
    num_nodes: int | None = None

    @property
    def num_steps(self) -> int:
        """Chunks of an epoch, the same on every rank."""
        return self.batches.num_steps * self.chunks

    def batch_seeds(self, epoch: int, step: int) -> Array:
        """The seeds of a chunk."""
        seeds = self._own(epoch, step)
        return seeds if len(seeds) else self._range(step).start + np.zeros(1, np.int64)

    def num_chunk_seeds(self, epoch: int, step: int) -> int:
        """How many seeds of the batch a chunk has."""
        return len(self._own(epoch, step))

    def batch_number(self, step: int) -> int:
        """The number of the batch that the chunk is of."""
        return self.batches.batch_number(step // self.chunks)

    def num_step_seeds(self, step: int) -> int:
        """How many seeds all ranks together have at the step of the batch."""
        return self.batches.num_step_seeds(step // self.chunks)

    def _own(self, epoch: int, step: int) -> Array:
        batch = self.batches.batch_seeds(epoch, step // self.chunks)
        if self.num_nodes is None:
            return np.array_split(batch, self.chunks)[step % self.chunks]
        ids = self._range(step)
        return batch[(batch >= ids.start) & (batch < ids.stop)]

    def _range(self, step: int) -> range:
        size = index_range(self.num_nodes or 0, self.chunks)
        return range(step % self.chunks * size, (step % self.chunks + 1) * size)


def index_range(num_nodes: int, chunks: int) -> int:
    """Vertex ids of a chunk that is cut by index; the last may have fewer."""
    return -(-num_nodes // chunks)


def cut_by_index(graph: Graph, chunks: int) -> Graph:
    """``graph`` without the edges between vertices of different chunks, when vertices are cut into ``chunks`` ranges of ids.

    This is what a model loses whose batch is cut by vertex id (Dearing & Wang 2020): lossy, for comparison.

    Raises:
        InputError: a range would be empty.
    """
    size = index_range(graph.num_nodes, chunks)
    if size * (chunks - 1) >= graph.num_nodes:
        raise InputError(f"{chunks} chunks of {graph.num_nodes} vertices: the last would have none; use fewer chunks")
    kept = np.repeat(np.arange(graph.num_nodes) // size, np.diff(graph.indptr)) == graph.indices // size
    before = np.concatenate([[0], np.cumsum(kept)])
    weights, times = (None if array is None else array[kept] for array in (graph.weights, graph.times))
    return Graph(before[graph.indptr], graph.indices[kept], weights=weights, times=times)


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


def chunk_of(batch: MiniBatch, number: int, degrees: Tensor, *, normalize: bool) -> Chunk:
    """What a pipeline moves for a chunk: its blocks and, where they were gathered, features and labels.

    The target is (labels, weights of the seeds or None, seeds of the step over all copies).

    Args:
        batch: the chunk's mini-batch, as tensors.
        number: of the chunk within the batch.
        degrees: (V,) in-degrees in the whole graph, float.
        normalize: divide each vertex's features by their sum.
    """
    degrees = degrees[batch.node_ids.long()]
    return Chunk(
        rows=[*(block.num_src for block in batch.blocks), batch.num_seeds],
        inputs=[(block, degrees[: block.num_src]) for block in batch.blocks],
        x=None if batch.x is None else to_input(batch.x, normalize),
        target=(batch.y, batch.seed_weights, batch.num_step_seeds),
        seed=address_seed(batch.seed, batch.epoch, batch.batch, number),
    )


class ChunkLoader(SampleLoader):
    """Gives ``ChunkedBatch``es. Steps, also in ``state_dict``, are those of whole batches: a run may go on with another number of chunks."""

    def __init__(self, data: Dataset, sampler: Sampler, *, chunks: int, chunking: Chunking = "seeds", **options: Any) -> None:
        """Set up; nothing is started yet.

        Args:
            data: graph, features and labels.
            sampler: the algorithm.
            chunks: chunks of a batch.
            chunking: "seeds" cuts the seeds; "by-index" cuts the vertices by id and is lossy: edges between chunks are gone.
            options: as ``SampleLoader``.

        Raises:
            InputError: more chunks than seeds, a sampler whose batches are not asked for by seeds, or bulks on a device.
        """
        if not sampler.deals_seeds:
            raise InputError(
                f"chunks of {type(sampler).__name__}'s batches: they are not made from seeds, which could be cut; use another sampler"
            )
        if options.get("device", "cpu") == "cuda" and not options.get("num_workers", 0):
            raise InputError("chunks with sampler_device cuda and num_workers 0: bulks on a device take whole batches; set num_workers 1")
        if options.get("num_workers", 0):  # a batch holds a slot for each of its chunks, the one that follows needs as many
            queue = options.get("queue") or QueueOptions()
            options["queue"] = replace(queue, prefetch=queue.prefetch + 2 * -(-chunks // options["num_workers"]))
        is_lossy = chunking == "by-index"
        if is_lossy:
            data = replace(data, graph=cut_by_index(data.graph, chunks), validate=False)
        super().__init__(data, sampler, **options)
        whole = self._task.schedule
        self._chunks = ChunkSchedule(
            seeds=whole.seeds,
            batch_size=whole.batch_size,
            rank=whole.rank,
            world_size=whole.world_size,
            shuffle=whole.shuffle,
            seed=whole.seed,
            batches=whole,
            chunks=chunks,
            num_nodes=data.graph.num_nodes if is_lossy else None,
        )
        fewest = min(whole.num_step_seeds(step) // whole.world_size for step in (0, whole.num_steps - 1))
        if chunks > fewest and not is_lossy:
            raise InputError(
                f"{chunks} chunks of a batch of {fewest} seeds: every chunk needs one; use at most {fewest} chunks or larger batches"
            )
        self._task = replace(self._task, schedule=self._chunks)

    def __len__(self) -> int:
        """Steps of an epoch, the same on every rank."""
        return self._chunks.batches.num_steps

    def _run(self, epoch: int, steps: range) -> Iterator[ChunkedBatch]:  # type: ignore[override]  # chunks take the place of batches
        count = self._chunks.chunks
        chunks = super()._run(epoch, range(steps.start * count, steps.stop * count))
        for step in steps:
            numbers = range(step * count, (step + 1) * count)
            yield ChunkedBatch(
                tuple(
                    chunk
                    for number, chunk in zip(numbers, islice(chunks, count), strict=True)
                    if self._chunks.num_chunk_seeds(epoch, number)
                )
            )
