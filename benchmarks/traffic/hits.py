"""Share of row reads that would hit a ``gpu_cache``, counted on the CPU, whose mini-batches equal a GPU's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from hoptrain.benchmarks.common.harness import Record
from hoptrain.engine import Dataset, Schedule
from hoptrain.engine.arrays import Array
from hoptrain.engine.gpu_memory.hot_rows import hottest, num_cached
from hoptrain.samplers import NeighborSampler, Workspace


def hit_rates(data: Dataset, sampler: NeighborSampler, schedule: Schedule, shares: Sequence[float]) -> Iterator[Record]:
    """For each share of the rows that is kept, those read most in epoch 0: what share of the reads of epoch 0 hits them, and of epoch 1's.

    Raises:
        InputError: a share that is not above 0 and at most 1, or of no row.
    """
    kept = [num_cached(share, data.graph.num_nodes, 1) for share in shares]
    first, following = (_count_reads(data, sampler, schedule, epoch) for epoch in (0, 1))
    for share, number in zip(shares, kept, strict=True):
        hot = hottest(first, number)
        rates = {name: float(counts[hot].sum() / counts.sum()) for name, counts in (("counted", first), ("next", following))}
        yield {"rows_kept": share, "batches": schedule.num_steps, **rates}


def _count_reads(data: Dataset, sampler: NeighborSampler, schedule: Schedule, epoch: int) -> Array:
    """(V,) how often each row is read in an epoch."""
    counts, workspace = np.zeros(data.graph.num_nodes, np.int64), Workspace()
    for step in range(schedule.num_steps):
        address = schedule.address(epoch, step)._asdict()
        counts[sampler.sample(data.graph, schedule.batch_items(epoch, step), **address, workspace=workspace).node_ids] += 1
    return counts
