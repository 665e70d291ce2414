"""Trace files with the timings of a run's batches, for chrome://tracing and https://ui.perfetto.dev.

Each rank is a process of the trace. Its rows ("threads") are wait, copy and train, and one or more for each sampler process, if it makes several batches
at once. The queue's length is a counter. Times are microseconds of ``time.perf_counter``, so the files of all ranks of a machine share one time axis.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hoptrain.engine.errors import InputError
from hoptrain.engine.timeline import STAGES, BatchTimes, Span

_log = logging.getLogger(__name__)

_ROWS = {"wait": 1, "copy": 2, "train": 3}  # some viewers treat 0 as the idle thread


def trace_path(path: Path, rank: int, world_size: int) -> Path:
    """Return the trace file of a rank: ``path`` for a single rank, else for example ``out.rank0.json`` for ``out.json``."""
    return path if world_size == 1 else path.with_name(f"{path.stem}.rank{rank}{path.suffix}")


def check_trace_path(path: Path) -> None:
    """Check that the file can be written; an existing file is not changed.

    Raises:
        InputError: the file cannot be opened for writing.
    """
    existed = path.exists()
    _open(path, "a").close()
    if not existed:
        path.unlink()


class TraceFile:
    """A trace file that is written batch by batch, so memory does not grow with the run. It is valid JSON after ``close()``."""

    def __init__(self, path: Path, rank: int = 0) -> None:
        """Open the file for writing, replacing an existing one.

        Raises:
            InputError: the file cannot be opened for writing.
        """
        self._rows: dict[int, dict[int, float]] = {}  # process id of a sampler -> {row: end of its last span}
        self._file = _open(path, "w")
        self._file.write('{"displayTimeUnit": "ms", "traceEvents": [')
        self._separator = "\n"
        self._write({"ph": "M", "name": "process_name", "args": {"name": f"rank {rank}"}})
        for name, row in _ROWS.items():
            self._name_row(row, name)

    def add(self, times: BatchTimes) -> None:
        """Write a batch's events. If writing fails, a warning is logged and training continues without a trace."""
        if not self._file.closed:
            with self._or_end():
                self._add(times)

    @contextmanager
    def _or_end(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            _log.warning("the timeline is incomplete, because its file cannot be written: %s", error)
            with suppress(OSError):
                self._file.close()

    def _add(self, times: BatchTimes) -> None:
        making = self._row_of_making(times)
        for stage in STAGES:
            self._span(stage, _ROWS.get(stage, making), getattr(times, stage), {"epoch": times.epoch, "batch": times.batch})
        self._write({"ph": "C", "name": "queue", "ts": _microseconds(times.wait[1]), "args": {"ready": times.num_ready}})

    def _row_of_making(self, times: BatchTimes) -> int:
        """Return a row of the sampler process that is free when the batch begins, because viewers hide one of two overlapping spans."""
        rows = self._rows.setdefault(times.pid, {})
        row = next((row for row, end in rows.items() if end <= times.sample[0]), None)
        if row is None:
            row = 1 + len(_ROWS) + sum(map(len, self._rows.values()))
            where = "this process" if times.pid == os.getpid() else f"pid {times.pid}"
            self._name_row(row, f"sampler ({where}, {len(rows) + 1})" if rows else f"sampler ({where})")
        rows[row] = times.gather[1]
        return row

    def _span(self, name: str, row: int, span: Span, args: dict[str, Any]) -> None:
        begin, end = map(_microseconds, span)
        self._write({"ph": "X", "name": name, "tid": row, "ts": begin, "dur": end - begin, "args": args})

    def _name_row(self, row: int, name: str) -> None:
        self._write({"ph": "M", "name": "thread_name", "tid": row, "args": {"name": name}})
        self._write({"ph": "M", "name": "thread_sort_index", "tid": row, "args": {"sort_index": row}})

    def _write(self, event: dict[str, Any]) -> None:
        self._file.write(self._separator + json.dumps(event | {"pid": os.getpid()}))
        self._separator = ",\n"

    def close(self) -> None:
        """Finish and close the file. Further calls do nothing."""
        if not self._file.closed:
            with self._or_end():
                self._file.write("\n]}\n")
                self._file.close()


def _open(path: Path, mode: str) -> Any:
    try:
        return open(path, mode)  # the caller closes the file
    except OSError as error:
        raise InputError(
            f"the timeline {path} cannot be written ({error.strerror}): name a file in an existing folder that you can write to"
        ) from error


def _microseconds(seconds: float) -> int:
    """Return whole microseconds: with fractions, rounding could let a span end after the next one begins, and viewers would hide one."""
    return round(seconds * 1e6)
