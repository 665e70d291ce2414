"""Division of the memory of a host feature cache, and its default size: the free memory minus the estimated needs of the run.

With partitioned features, a part of the memory is for messages with rows of other machines. It limits for how many steps (a window) rows are requested
together.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

import numpy as np

from hoptrain.engine import InputError, WorkerOptions
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.machine import available_memory, parse_size
from hoptrain.engine.partition.rows import PartitionedFeatures
from hoptrain.engine.queue.shared_memory import mapped_file
from hoptrain.engine.storage.budget import Budget
from hoptrain.engine.storage.file_rows import FileRows, StoredRows
from hoptrain.engine.storage.shared_rows import CachedTable, bytes_for
from hoptrain.samplers.batch.minibatch import named
from hoptrain.samplers.buffers.workspace import DIRECT_TABLE_BYTES, Workspace
from hoptrain.samplers.hops import columns_of
from hoptrain.samplers.loader.task import SampleTask

_log = logging.getLogger(__name__)

_PROCESS_BYTES = 128 << 20
"""Estimated bytes of private memory of a worker process, of which Python, NumPy and Numba's code take 80 MiB."""
_SPARE_BYTES, _SPARE_SHARE = 256 << 20, 8
"""Memory reserved for the training, whose needs are unknown: 1 / ``_SPARE_SHARE`` of the free memory, but at least ``_SPARE_BYTES`` for each rank."""
_BATCHES_IN_TRAINING = 2
"""Number of batches that the training of a rank holds in memory: the current batch and a copy of it."""


def memory_bytes(memory: str) -> int | None:
    """Return the bytes of the option ``feature_cache``, or None for auto.

    Raises:
        InputError: ``memory`` is neither a size nor auto.
    """
    if memory == "auto":
        return None
    try:
        _, num_bytes = parse_size(memory, "feature_cache")
    except InputError:
        num_bytes = 0
    if not num_bytes:
        raise InputError(f"feature_cache is {memory}: it must be bytes with their unit, or auto; give for instance 8GiB")
    return num_bytes


def feature_files(stores: Mapping[str, Any]) -> dict[str, StoredRows]:
    """Return the files of the features among a loader's stores. Labels stay mapped, since a batch has only those of its seeds.

    A table that is smaller than its lookup tables would be is left out and stays memory-mapped (``held_whole``), unless it is the only one.

    Raises:
        InputError: features are not in a file.
    """
    tables = {name: store for name, store in stores.items() if name != "y" and store.nbytes}
    long = {
        name: store for name, store in tables.items() if not isinstance(store, np.ndarray) or store.nbytes > bytes_for(0, len(store), 0)
    }
    return {
        name: store
        if not isinstance(store, np.ndarray)
        else FileRows.of(store, "features of edges" if name.startswith("edge_attr") else "features")
        for name, store in (long or tables).items()
    }


def held_whole(stores: Mapping[str, Any], files: Collection[str]) -> dict[str, int]:
    """Return the bytes of the tables that ``feature_files`` leaves out. They are in the page cache, so memory is reserved for them."""
    return {name: store.nbytes for name, store in stores.items() if name != "y" and name not in files and store.nbytes}


def num_elsewhere(file: StoredRows) -> int:
    """Return the number of rows outside this machine's own partition, at least 1. Rows of this partition are in memory without the cache."""
    return max(1, file.num_elsewhere)


def budget_of(
    stores: Mapping[str, Any],
    files: Mapping[str, StoredRows],
    memory: int,
    sample_share: int = 0,
    is_auto: bool = False,
    messages: Messages | None = None,
) -> Budget:
    """Return the division of ``feature_cache`` bytes into the tables of ``files``, tables that stay whole, and edges or messages if there are any."""
    return Budget(
        memory=memory,
        sizes={name: (file.shape[0], file.row_bytes) for name, file in files.items()},
        most={name: num_elsewhere(file) for name, file in files.items()},
        whole=held_whole(stores, files),
        sample_share=sample_share,
        is_auto=is_auto,
        messages=messages.num_bytes if messages else None,
    )


def log_budget(said: str, budget: Budget, tables: Sequence[CachedTable], prefetch_steps: int) -> None:
    """Log how much memory the cache has, and how many rows fit in it."""
    slots, rows, whole = sum(table.num_slots for table in tables), sum(budget.most.values()), " and ".join(budget.whole)
    _log.info(
        "feature cache: %s MiB%s, holds %s of %s rows (%.0f %%), prefetch_steps %d%s",
        f"{sum(table.num_bytes for table in tables) / 2**20:,.1f}", said, f"{slots:,}", f"{rows:,}", 100 * slots / rows, prefetch_steps,
        whole and f"; in addition {sum(budget.whole.values()) / 2**20:,.1f} MiB for all of {whole}",
    )  # fmt: skip


def mapped_beside(task: SampleTask, tables: Collection[str]) -> list[Array]:
    """Return the memory-mapped arrays that no cache holds: the graph without edges that are read from files, and the stores that are not in ``tables``."""
    read = task.edges.files if task.edges else ()
    columns = columns_of(task.graph).items()
    beside = [array for relation, own in columns for name, array in own.arrays().items() if named(name, relation) not in read]
    beside += [y for name, y in task.stores.items() if name not in tables]
    return [array for array in beside if mapped_file(array) is not None]


def memory_left(
    task: SampleTask, tables: Collection[str], num_workers: int, worker_options: WorkerOptions, num_ranks: int
) -> tuple[int, str]:
    """Return the bytes that are free for a cache, and a description of the calculation.

    Args:
        task: the loader's task; its first batch is sampled to estimate the memory of batches.
        tables: names of the stores in the cache.
        num_workers: number of worker processes per rank.
        worker_options: queue options of the loader.
        num_ranks: number of ranks on this machine.

    Raises:
        InputError: no memory is left.
    """
    free = available_memory()
    own = sum(file.own.rows.nbytes for file in task.stores.values() if isinstance(file, PartitionedFeatures) and file.own is not None)
    table = min(DIRECT_TABLE_BYTES, 4 * max(len(store) for name, store in task.stores.items() if name in tables))
    needs = {
        "graph and labels": sum(array.nbytes for array in mapped_beside(task, tables)),
        "sampler processes": (num_workers * num_ranks + 1) * (_PROCESS_BYTES + table),
        "batches": num_ranks * (num_workers * (worker_options.prefetch_factor + 1) + _BATCHES_IN_TRAINING) * task.rehearse(0),
        "training": max(free // _SPARE_SHARE, _SPARE_BYTES * num_ranks),
    }
    if own:
        # at most half of the free memory: of a larger partition the page cache keeps only pages in use
        needs["its own partition"] = min(own, free // 2)
    left = free - sum(needs.values())
    said = f"{free / 2**30:.2f} GiB free minus " + ", ".join(f"{size / 2**30:.2f} for {what}" for what, size in needs.items())
    if left <= 0:
        raise InputError(
            f"feature_cache is auto, {said}: {-left / 2**30:.2f} GiB are missing; free more than that, use fewer num_workers, or give feature_cache in bytes"
        )
    return left, f" ({said})"


def num_asked(task: SampleTask, rows: PartitionedFeatures, ranks: Collection[int], is_graph_whole: bool) -> int:
    """Estimate the number of rows of other machines in a step, from the first batch, or from an upper bound if sampling it needs all machines."""
    sampler: Any = task.sampler
    if is_graph_whole:
        batch: Any = replace(task, workspace=Workspace()).sampled(0, 0)
        of_rank = len(rows.elsewhere(batch.node_ids))
    else:
        draws = getattr(sampler, "fanouts", None) or [sampler.num_walks * sampler.steps]
        is_bounded = all(isinstance(number, int) and number >= 0 for number in draws)
        most = len(task.schedule.batch_items(0, 0)) * prod(1 + number for number in draws)
        of_rank = int(most) * rows.num_elsewhere // len(rows) if is_bounded else rows.num_elsewhere
    return min(len(ranks) * of_rank, rows.num_elsewhere)


class Messages(NamedTuple):
    """The sizes of messages with rows of other machines, sent and received, for a window of steps.

    Messages take at most half of the memory that the cache's lookup tables leave. The window is shortened to fit, but not below one step.

    Attributes:
        num_rows: number of rows V of the features.
        row_bytes: bytes of a row.
        asked: number of rows of other machines that a step uses.
        most: maximum number of steps of a window.
    """

    num_rows: int
    row_bytes: int
    asked: int
    most: int

    @classmethod
    def of(cls, task: SampleTask, rows: PartitionedFeatures, ranks: Collection[int], is_graph_whole: bool, most: int) -> Messages:
        """Return the message sizes for the ``ranks`` of a machine."""
        return cls(len(rows), rows.row_bytes, num_asked(task, rows, ranks, is_graph_whole), most)

    def window(self, memory: int) -> int:
        """Return the number of steps of a window if the cache has ``memory`` bytes."""
        return max(1, self._message_bytes(memory) // self._of_step)

    def num_bytes(self, memory: int) -> int:
        """Return how many of the cache's ``memory`` bytes do not hold rows: the bytes of messages and of the plan's table of slots."""
        return self._places + self._message_bytes(memory)

    def _message_bytes(self, memory: int) -> int:
        return min(self.most * self._of_step, max(0, memory - self._places - bytes_for(0, self.num_rows, self.row_bytes)) // 2)

    @property
    def _places(self) -> int:
        return self.num_rows * np.dtype(np.int32).itemsize

    @property
    def _of_step(self) -> int:
        return 2 * max(1, self.asked) * (self.row_bytes + id_dtype(self.num_rows).itemsize)
