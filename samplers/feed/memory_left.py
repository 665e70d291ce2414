"""How much memory a cache of rows may take where nobody says it: what the control group or the machine leaves, less what the run needs beside it."""

from __future__ import annotations

from collections.abc import Collection

from hoptrain.engine import InputError, QueueOptions
from hoptrain.engine.arrays import Array
from hoptrain.engine.machine import available_memory
from hoptrain.engine.partition.rows import PartedRows
from hoptrain.engine.placement.hot_rows import parsed_size
from hoptrain.engine.queue.shared_memory import mapped_file
from hoptrain.samplers.ahead.relations import columns_of, named
from hoptrain.samplers.feed.task import SampleTask
from hoptrain.samplers.scratch.workspace import DIRECT_TABLE_BYTES

_PROCESS_BYTES = 128 << 20
"""Of a sampler process its own: Python, NumPy and Numba's code take 80 MiB."""
_SPARE_BYTES, _SPARE_SHARE = 256 << 20, 8
"""For training, which nobody knows before: a part of this many of what is free, and so much at the least."""
_BATCHES_IN_TRAINING = 2
"""The one in use, and a copy of it."""


def memory_bytes(memory: str) -> int | None:
    """Bytes of the option ``memory``; None for auto.

    Raises:
        InputError: it is neither.
    """
    if memory == "auto":
        return None
    try:
        _, num_bytes = parsed_size(memory, "memory")
    except InputError:
        num_bytes = 0
    if not num_bytes:
        raise InputError(f"memory is {memory}: it is bytes with their unit, or auto; give for instance 8GiB")
    return num_bytes


def mapped_beside(task: SampleTask, tables: Collection[str]) -> list[Array]:
    """Arrays of graph and labels that are read by maps of their files: all but the stores with these names, and what is read of edges."""
    read = task.edges.files if task.edges else ()
    columns = columns_of(task.graph).items()
    beside = [array for relation, own in columns for name, array in own.arrays().items() if named(name, relation) not in read]
    beside += [y for name, y in task.stores.items() if name not in tables]
    return [array for array in beside if mapped_file(array) is not None]


def memory_left(task: SampleTask, tables: Collection[str], num_workers: int, queue: QueueOptions, num_ranks: int) -> tuple[int, str]:
    """Bytes for a cache of rows, and where they come from, in words.

    Args:
        task: the loader's; its first batch is made.
        tables: the names of the stores that are not to lie in memory.
        num_workers: sampler processes of a rank.
        queue: of the loader.
        num_ranks: ranks on this machine.

    Raises:
        InputError: nothing is left.
    """
    free = available_memory()
    own = sum(file.own.rows.nbytes for file in task.stores.values() if isinstance(file, PartedRows) and file.own is not None)
    table = min(DIRECT_TABLE_BYTES, 4 * max(len(store) for name, store in task.stores.items() if name in tables))
    needs = {
        "graph and labels": sum(array.nbytes for array in mapped_beside(task, tables)),
        "sampler processes": (num_workers * num_ranks + 1) * (_PROCESS_BYTES + table),
        "batches": num_ranks * (num_workers * (queue.prefetch + 1) + _BATCHES_IN_TRAINING) * task.rehearse(0),
        "training": max(free // _SPARE_SHARE, _SPARE_BYTES * num_ranks),
    }
    if own:
        needs["its own part"] = min(own, free // 2)  # of one that memory cannot hold the system keeps what is in use
    left = free - sum(needs.values())
    said = f"{free / 2**30:.2f} GiB that are free less " + ", ".join(f"{size / 2**30:.2f} for {what}" for what, size in needs.items())
    if left <= 0:
        raise InputError(f"memory is auto, {said}: nothing is left; free some, use fewer num_workers, or say how much it may be")
    return left, f" ({said})"
