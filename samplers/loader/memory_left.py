"""What memory beyond which features lie in files is for, and how much there is where nobody says it: what is left beside what a run needs.

Of features in parts some is for the rows of other machines on their way, which says how many steps they travel for at once.
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
"""Of a sampler process its own: Python, NumPy and Numba's code take 80 MiB."""
_SPARE_BYTES, _SPARE_SHARE = 256 << 20, 8
"""For training, which nobody knows before: a part of this many of what is free, and so much at the least."""
_BATCHES_IN_TRAINING = 2
"""The one in use, and a copy of it."""


def memory_bytes(memory: str) -> int | None:
    """Bytes of the option ``feature_cache``; None for auto.

    Raises:
        InputError: it is neither.
    """
    if memory == "auto":
        return None
    try:
        _, num_bytes = parse_size(memory, "feature_cache")
    except InputError:
        num_bytes = 0
    if not num_bytes:
        raise InputError(f"feature_cache is {memory}: it is bytes with their unit, or auto; give for instance 8GiB")
    return num_bytes


def feature_files(stores: Mapping[str, Any]) -> dict[str, StoredRows]:
    """The files of features among a loader's stores; labels stay where they are, since a batch has those of its seeds alone.

    A table whose rows take less than what would tell where they lie is left out, and stays mapped (``held_whole``), but where there is no other.

    Raises:
        InputError: features that lie in no file.
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
    """The bytes of the tables that ``feature_files`` leaves out: the system keeps them, as it does labels, and memory has room for all of them."""
    return {name: store.nbytes for name, store in stores.items() if name != "y" and name not in files and store.nbytes}


def num_elsewhere(file: StoredRows) -> int:
    """Return how many rows are not in memory anyway, as a machine's own partition is; one at least."""
    return max(1, file.num_elsewhere)


def budget_of(
    stores: Mapping[str, Any],
    files: Mapping[str, StoredRows],
    memory: int,
    edge_share: int = 0,
    is_auto: bool = False,
    messages: Messages | None = None,
) -> Budget:
    """What ``memory`` bytes are for: the tables of ``files``, those of the stores that are held whole, and maybe edges or messages."""
    return Budget(
        memory=memory,
        sizes={name: (file.shape[0], file.row_bytes) for name, file in files.items()},
        most={name: num_elsewhere(file) for name, file in files.items()},
        whole=held_whole(stores, files),
        edge_share=edge_share,
        is_auto=is_auto,
        messages=messages.num_bytes if messages else None,
    )


def log_budget(said: str, budget: Budget, tables: Sequence[CachedTable], prefetch_steps: int) -> None:
    """Log how much memory the cache has, and how many of the rows it holds."""
    slots, rows, whole = sum(table.num_slots for table in tables), sum(budget.most.values()), " and ".join(budget.whole)
    _log.info(
        "memory: %s MiB%s, room for %s of %s rows (%.0f %%), whose use is known %d steps ahead%s",
        f"{sum(table.num_bytes for table in tables) / 2**20:,.1f}", said, f"{slots:,}", f"{rows:,}", 100 * slots / rows, prefetch_steps,
        whole and f"; beside them {sum(budget.whole.values()) / 2**20:,.1f} MiB for all of {whole}",
    )  # fmt: skip


def mapped_beside(task: SampleTask, tables: Collection[str]) -> list[Array]:
    """Arrays of graph and labels that are read by maps of their files: all but the stores with these names, and what is read of edges."""
    read = task.edges.files if task.edges else ()
    columns = columns_of(task.graph).items()
    beside = [array for relation, own in columns for name, array in own.arrays().items() if named(name, relation) not in read]
    beside += [y for name, y in task.stores.items() if name not in tables]
    return [array for array in beside if mapped_file(array) is not None]


def memory_left(
    task: SampleTask, tables: Collection[str], num_workers: int, worker_options: WorkerOptions, num_ranks: int
) -> tuple[int, str]:
    """Bytes for a cache of rows, and where they come from, in words.

    Args:
        task: the loader's; its first batch is made.
        tables: the names of the stores that it is for.
        num_workers: sampler processes of a rank.
        worker_options: of the loader.
        num_ranks: ranks on this machine.

    Raises:
        InputError: nothing is left.
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
        needs["its own part"] = min(own, free // 2)  # of one that memory cannot hold the system keeps what is in use
    left = free - sum(needs.values())
    said = f"{free / 2**30:.2f} GiB that are free less " + ", ".join(f"{size / 2**30:.2f} for {what}" for what, size in needs.items())
    if left <= 0:
        raise InputError(
            f"memory is auto, {said}: {-left / 2**30:.2f} GiB are missing; free more than that, use fewer num_workers, or say how much memory may be"
        )
    return left, f" ({said})"


def num_asked(task: SampleTask, rows: PartitionedFeatures, ranks: Collection[int], is_graph_whole: bool) -> int:
    """Rows of others that a step of a machine's ranks uses, about: by the first batch, and by the most that it may have where only all machines sample it."""
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
    """Rows of other machines on their way, there and back: those of a window of steps at once.

    They take half of what the cache's tables leave at most, or those of one step; the window is the shorter.

    Attributes:
        num_rows: V, of the features.
        row_bytes: of them.
        asked: rows of others that a step uses.
        most: steps of a window.
    """

    num_rows: int
    row_bytes: int
    asked: int
    most: int

    @classmethod
    def of(cls, task: SampleTask, rows: PartitionedFeatures, ranks: Collection[int], is_graph_whole: bool, most: int) -> Messages:
        """Those of the ``ranks`` of a machine."""
        return cls(len(rows), rows.row_bytes, num_asked(task, rows, ranks, is_graph_whole), most)

    def window(self, memory: int) -> int:
        """Steps whose rows machines ask for at once, where a cache has so many bytes."""
        return max(1, self._room(memory) // self._of_step)

    def num_bytes(self, memory: int) -> int:
        """Of so many bytes those that are not for slots: messages, and where the plan that runs ahead of readers has each row."""
        return self._places + self._room(memory)

    def _room(self, memory: int) -> int:
        return min(self.most * self._of_step, max(0, memory - self._places - bytes_for(0, self.num_rows, self.row_bytes)) // 2)

    @property
    def _places(self) -> int:
        return self.num_rows * np.dtype(np.int32).itemsize

    @property
    def _of_step(self) -> int:
        return 2 * max(1, self.asked) * (self.row_bytes + id_dtype(self.num_rows).itemsize)
