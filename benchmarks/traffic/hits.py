"""Hit rates of a ``gpu_cache``, counted on the CPU, which samples the same mini-batches as a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from hoptrain.benchmarks.common.harness import Record
from hoptrain.engine import Dataset, Schedule
from hoptrain.engine.arrays import Array
from hoptrain.engine.gpu_memory.hot_rows import hottest, num_cached
from hoptrain.samplers import NeighborSampler, Workspace


def hit_rates(data: Dataset, sampler: NeighborSampler, schedule: Schedule, shares: Sequence[float]) -> Iterator[Record]:
    """Yield the hit rates of a cache of the rows read most often in epoch 0, for each of ``shares``, the fraction of all rows that the cache holds.

    ``counted`` is the hit rate in epoch 0 itself, ``next`` that in epoch 1.

    Raises:
        InputError: a share is not in (0, 1], or so small that it keeps no row.
    """
    kept = [num_cached(share, data.graph.num_nodes, 1) for share in shares]
    first, following = (_count_reads(data, sampler, schedule, epoch) for epoch in (0, 1))
    for share, number in zip(shares, kept, strict=True):
        hot = hottest(first, number)
        rates = {name: float(counts[hot].sum() / counts.sum()) for name, counts in (("counted", first), ("next", following))}
        yield {"rows_kept": share, "batches": schedule.num_steps, **rates}


def _count_reads(data: Dataset, sampler: NeighborSampler, schedule: Schedule, epoch: int) -> Array:
    """Return how often each row is read in an epoch (V,)."""
    counts, workspace = np.zeros(data.graph.num_nodes, np.int64), Workspace()
    for step in range(schedule.num_steps):
        address = schedule.address(epoch, step)._asdict()
        counts[sampler.sample(data.graph, schedule.batch_items(epoch, step), **address, workspace=workspace).node_ids] += 1
    return counts
