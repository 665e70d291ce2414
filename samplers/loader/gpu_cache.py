"""The GPU feature cache. It holds the feature rows that are read most often in an epoch, which is sampled in advance to count reads."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import prod
from typing import TypeAlias

import numpy as np

from hoptrain.engine import InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.gpu_memory.device_store import DeviceRows, as_words, free_memory, to_device
from hoptrain.engine.gpu_memory.device_stream import to_host
from hoptrain.engine.gpu_memory.hot_rows import hottest, num_cached
from hoptrain.engine.gpu_memory.peers import peer_group, shared_out
from hoptrain.engine.schedule import StepSchedule
from hoptrain.kernels.cuda.gather import count_ids
from hoptrain.kernels.cuda.launch import Launch
from hoptrain.kernels.cuda.thresholds import THRESHOLDS
from hoptrain.samplers.loader.task import SampleTask

_log = logging.getLogger(__name__)

ScheduledBulk: TypeAlias = tuple[StepSchedule, range]
"""A bulk: a schedule, and the range of its steps whose batches are sampled together."""

MOST_COUNTED = 1024
"""Maximum number of batches that are sampled to count row accesses. For a longer epoch, this many batches are selected at equal distances."""


@dataclass(eq=False, slots=True)
class HitRates:
    """The fraction of row reads that hit the cache in device memory.

    Attributes:
        expected: fraction in the batches that were sampled in advance.
        rows: (C,) rows in the cache of this GPU, or of all GPUs that share a cache.
        had: fraction by epoch in the batches of this rank, without epochs that were not finished.
    """

    expected: float
    rows: Array
    had: dict[int, float] = field(default_factory=dict)


def keep_hot_rows(
    rows: DeviceRows, size: float | str, task: SampleTask, bulk: int, epoch: int, counted: Iterable[ScheduledBulk] | None = None
) -> HitRates:
    """Cache those of ``rows`` in device memory that are read most often in ``epoch``; return the expected hit rate.

    Every rank counts the batches of all ranks, so all choose the same rows without communication, also if they distribute the rows over their GPUs.

    Args:
        rows: the features.
        size: size of this GPU's cache, see ``num_cached``.
        task: task that makes a batch.
        bulk: number of batches that are sampled at once.
        epoch: epoch whose row reads are counted.
        counted: bulks to count in, if the schedule does not know those of an epoch; each is requested after the previous one has been counted.

    Raises:
        InputError: the cache does not fit in the GPU's memory.
    """
    store = task.stores["x"]
    row_bytes = prod(store.shape[1:]) * store.itemsize
    own = num_cached(size, len(store), row_bytes)
    need = own * row_bytes + len(store) * 4
    task.sampler.driver(task.graph, task.workspace)  # copies the graph to the GPU first, since the cache gets the memory that is left
    _check_fits(size, need)
    counts, number, of = count_rows(task, len(store), bulk, epoch, counted)
    _check_fits(size, need)  # checked again, after sampling has allocated its memory
    meeting, parts, hot = task.workspace.meeting, None, hottest(counts, own)
    group = [0] if meeting is None else peer_group(meeting)
    if meeting is not None:
        larger = hottest(counts, min(own * len(group), len(store)))
        parts = shared_out(as_words(store), larger, meeting, group)
        hot = hot if parts is None else larger
    rows.keep_hot(hot, parts)
    rates = HitRates(float(counts[hot].sum() / max(1, counts.sum())), hot)
    where = f", distributed over {len(parts)} GPUs" if parts else ""
    _log.info(
        "gpu_cache: %s of %s rows in device memory%s, %.1f %% of the reads are expected to hit them (counted in %d of %d batches of epoch %d)",
        f"{len(hot):,}", f"{len(store):,}", where, 100 * rates.expected, number, of, epoch,
    )  # fmt: skip
    return rates


def _check_fits(size: float | str, need: int) -> None:
    free = free_memory()
    if need > free:
        raise InputError(
            f"gpu_cache is {size}: it needs {need / 2**30:.2f} GiB with its index, and the GPU has {free / 2**30:.2f} GiB free; give less"
        )


def count_rows(
    task: SampleTask, num_rows: int, bulk: int, epoch: int, counted: Iterable[ScheduledBulk] | None = None
) -> tuple[Array, int, int]:
    """Return the number of reads of each feature row (V,) int32, the number of counted batches of all ranks, and the number of all batches."""
    workspace = task.workspace
    counts = to_device(np.zeros(num_rows, np.int32), "device", workspace.stream)
    launch = Launch(stream=workspace.stream.numba, thresholds=workspace.on_device.thresholds or THRESHOLDS, num_batches=1)
    number = 0
    for schedule, steps in _counted(task, bulk) if counted is None else counted:
        seeds = [schedule.batch_items(epoch, step) for step in steps]
        address = {"seed": schedule.seed, "epoch": epoch, "first_batch": schedule.batch_number(steps[0])}
        for batch in task.sampler.start_bulk(task.graph, seeds, **address, workspace=workspace)():
            ids = batch.row_ids()["x"]
            launch.flat(count_ids, len(ids), workspace.stream.lend(ids), counts)
            number += 1
    workspace.stream.synchronize()
    return to_host(counts), number, task.schedule.num_steps * task.schedule.world_size if counted is None else number


def _counted(task: SampleTask, bulk: int) -> Iterator[ScheduledBulk]:
    """Return the bulks of all ranks, or an evenly spaced selection of ``MOST_COUNTED`` batches."""
    ranks, steps = task.schedule.world_size, range(task.schedule.num_steps)
    bulks = [(rank, steps[i : i + bulk]) for rank in range(ranks) for i in range(0, len(steps), bulk)]
    stride = -(-len(bulks) // max(1, MOST_COUNTED // bulk))
    return ((task.schedule.for_rank(rank), some) for rank, some in bulks[::stride])
