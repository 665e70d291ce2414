"""Partitioned features as one table: rows of this machine's partition are read from its files, others are fetched from their owners.

``one_copy.machine`` identifies machines. A single machine needs all partitions, and reads their files like those of any table. With several machines there
must be one per partition: machine m, in the order of first ranks, has partition m memory-mapped, so its own rows need no slots in a cache.
"""

from __future__ import annotations

import socket
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.dataset import Dataset
from hoptrain.engine.errors import InputError
from hoptrain.engine.features.quantized import QuantizedRows, QuantParams, codes_of
from hoptrain.engine.gpu_memory.meeting import Meeting, meeting_of
from hoptrain.engine.gpu_memory.one_copy import machine
from hoptrain.engine.partition.exchange import Exchange
from hoptrain.engine.partition.folder import Partition, open_partition, part_folder
from hoptrain.engine.partition.rank_rows import RankRows
from hoptrain.engine.queue.shared_memory import check_whole, mapped_files
from hoptrain.engine.storage.file_rows import FileRows, StoredRows
from hoptrain.engine.storage.shared_rows import LocalFeatures


@dataclass(frozen=True, slots=True)
class CommGroups:
    """Functions that connect the processes of a training. The caller provides them, because this layer does not import torch.

    Attributes:
        machines: function that returns an exchange among the machines, for a process without torch.
        ranks: function that returns an exchange among all ranks, for this process.
    """

    machines: Callable[[PartitionedFeatures], Exchange]
    ranks: Callable[[], Exchange]


class PartitionedFeatures(StoredRows):
    """A partitioned feature table (V, F), or the codes of a quantised table.

    Attributes:
        path: path of the folder.
        shape: (V, F), or (V, bytes per row) for codes.
        dtype: dtype as stored.
        columns: quantisation parameters of codes; None if features are not quantised.
        row_bytes: number of bytes per row.
        ranks: ranks of each machine of the run; empty before ``meet``.
        machine: index of this machine.
        own: this machine's partition if there are several machines, else None.
        num_reads: number of reads from this machine's files so far.
        num_bytes: number of bytes read from this machine's files so far.
    """

    def __init__(self, partition: Partition, links: CommGroups | None = None) -> None:
        """Open the partitions that are on this machine.

        Raises:
            InputError: this machine has no partition, or a partition belongs to another partitioning.
        """
        self.path = str(partition.path)
        self._name, self._place, self._bounds = partition.data.name, partition.place, partition.bounds
        parts = range(partition.num_parts)
        stored = {part: partition.rows(part) for part in parts if part_folder(partition.path, part).exists()}
        self._here = here = {part: codes_of(rows) for part, rows in stored.items()}
        if not here:
            raise InputError(
                f"{self.path} has no partition's folder: this machine needs its own of part-0 to part-{partition.num_parts - 1}; copy it"
            )
        self._graph_is = "partitioned" if partition.has_columns else "replicated"
        one = next(iter(here.values()))
        self.columns: QuantParams | None = next((rows.columns for rows in stored.values() if isinstance(rows, QuantizedRows)), None)
        self.shape, self.dtype = (len(self._place), *one.shape[1:]), one.dtype
        self.files = {part: FileRows.of(x, "features") for part, x in here.items()}
        self.row_bytes = next(iter(self.files.values())).row_bytes
        self.ranks: list[list[int]] = []
        self.machine = 0
        self.own = None
        self._links = links
        self._rank_rows: RankRows | None = None
        self._fetched: dict[int, tuple[Array, Array]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_links": None, "_rank_rows": None}

    def __len__(self) -> int:
        """Return the number of rows, V."""
        return int(self.shape[0])

    @property
    def nbytes(self) -> int:
        """Size of the whole table in bytes."""
        return int(len(self) * self.row_bytes)

    @property
    def num_parts(self) -> int:
        """Number of partitions, P."""
        return len(self._bounds) - 1

    @property
    def num_reads(self) -> int:
        """Number of reads from this machine's files so far."""
        return sum(file.num_reads for file in self.files.values())

    @property
    def num_bytes(self) -> int:
        """Number of bytes read from this machine's files so far."""
        return sum(file.num_bytes for file in self.files.values())

    @property
    def is_whole(self) -> bool:
        """True if this machine has all rows."""
        return len(self.files) == self.num_parts

    def meet(self, meeting: Meeting | None) -> None:
        """Determine the ranks of each machine and this machine's partition, once. All ranks must call this; it succeeds on all or on none.

        Raises:
            InputError: the number of machines differs from the number of partitions, a partition is missing, or machines have different data or versions.
        """
        if self.ranks:
            return
        own: dict[str, Any] = {"machine": machine(), "host": socket.gethostname(), "parts": sorted(self.files), "shared": self._facts()}
        told = [own] if meeting is None else meeting.exchange("which partitions it has", own)
        rank = 0 if meeting is None else meeting.rank
        for other, each in enumerate(told):
            different = next((what for what, value in told[0]["shared"].items() if each["shared"][what] != value), None)
            if different:
                raise InputError(
                    f"rank {other} on {each['host']} has {different} {each['shared'][different]}, but rank 0 on {told[0]['host']} "
                    f"{told[0]['shared'][different]}: all machines need the same; copy the folder of one of them, and install one version"
                )
        names = list(dict.fromkeys(each["machine"] for each in told))
        ranks = [[other for other, each in enumerate(told) if each["machine"] == name] for name in names]
        if 1 < len(names) != self.num_parts:
            raise InputError(
                f"{self.path} has {self.num_parts} partitions, but the run {len(names)} machines: each machine has one of them; start {self.num_parts} "
                f"machines, or partition the data again with 'hoptrain data partition --parts {len(names)}'"
            )
        if len(names) == 1:
            self.check_alone()
        for other, each in enumerate(told):
            number = names.index(each["machine"])
            missing = sorted(({number} if len(names) > 1 else set(range(self.num_parts))) - set(each["parts"]))
            if missing:
                is_alone = "a single machine needs all partitions" if len(names) == 1 else f"it is machine {number} of {len(names)}"
                raise InputError(f"rank {other} on {each['host']} has no part-{missing[0]} in {self.path}: {is_alone}; copy it there")
        self.settle(ranks, names.index(told[rank]["machine"]))

    def check_alone(self) -> None:
        """Raise InputError if a single machine cannot use the partitions.

        Raises:
            InputError: the graph is partitioned, too.
        """
        if self._graph_is == "partitioned":
            raise InputError(
                f"{self.path} has the graph in {self.num_parts} partitions, but the run one machine: start {self.num_parts} machines, or write "
                "partitions with the whole graph"
            )

    def settle(self, ranks: list[list[int]], machine: int) -> None:
        """Set the ranks of each machine and the index of this machine. With several machines, only this machine's partition is read afterwards."""
        self.ranks, self.machine = ranks, machine
        if len(ranks) > 1:
            first, end = map(int, self._bounds[machine : machine + 2])
            self.own = LocalFeatures(self._here[machine], self._place, first, end)
            self.files = {}
        self._here = {}

    def _facts(self) -> dict[str, Any]:
        """Return values that must be identical on all machines, keyed by a label for messages."""
        return {
            "hoptrain": version("hoptrain"),
            "the partitions of": self._name,
            "a partition count of": self.num_parts,
            "positions of nodes with checksum": zlib.crc32(np.ascontiguousarray(self._place).data, zlib.crc32(self._bounds.data)),
            "a graph that is": self._graph_is,
            "features": f"{self.dtype} of {self.row_bytes} bytes a row" + _checksum(self.columns),
        }

    @property
    def links(self) -> CommGroups:
        """Functions that connect this process with those of other machines.

        Raises:
            InputError: the table was created without ``links``.
        """
        if self._links is None:
            raise InputError(f"{self.path} is on {self.num_parts} machines: only NodeDataModule(partitions=...) fetches rows; use that")
        return self._links

    def owner(self, ids: Array) -> Array:
        """Return the partition of each node in ``ids`` (N,), (N,) int64."""
        return np.searchsorted(self._bounds, self._place[ids], side="right") - 1

    def elsewhere(self, ids: Array) -> Array:
        """Return the nodes in ``ids`` (N,) whose rows need cache slots: those of other machines; on a single machine all nodes, since it reads files."""
        if self.own is None:
            return ids
        places = self._place[ids]
        return ids[(places < self.own.first) | (places >= self.own.end)]

    @property
    def num_elsewhere(self) -> int:
        """Number of rows that may need slots of a cache."""
        return len(self) - (0 if self.own is None else len(self.own.rows))

    def numbers(self, ids: Array, part: int) -> Array:
        """Return the positions of nodes ``ids`` (N,) within their partition, in the dtype of ``ids``. Ascending ids have ascending positions."""
        numbers: Array = (self._place[ids] - self._bounds[part]).astype(ids.dtype)
        return numbers

    def of_own(self, numbers: Array, out: Array | None = None) -> Array:
        """Return rows of this machine's partition by their positions (N,) in it, (N, row_bytes) uint8, written to ``out`` if given.

        Raises:
            InputError: a position is out of range, or the partition's file was truncated.
        """
        own: Any = self.own
        check_whole(mapped_files(own.rows))
        if len(numbers) and int(numbers.max()) >= len(own.rows):
            raise InputError(
                f"row {numbers.max()} of partition {self.machine} was requested, which has {len(own.rows):,}: copy the same partitions to all"
            )
        found = np.empty((len(numbers), self.row_bytes), np.uint8) if out is None else out
        np.take(
            own.rows.view(np.uint8).reshape(-1, self.row_bytes), numbers, axis=0, out=found, mode="clip"
        )  # with other modes than "clip", NumPy buffers the output
        return found

    def put(self, fetched: dict[int, tuple[Array, Array]]) -> None:
        """Replace the rows fetched from each partition, for ``read``: nodes (M,), ascending, and their rows (M, row_bytes) uint8."""
        self._fetched = fetched

    def read(self, rows: Array, slots: Array, out: Array, meanwhile: Callable[[], None] | None = None) -> None:
        """Read rows into slots, like ``FileRows.read``. Rows of other machines must have been fetched with ``put``.

        Raises:
            InputError: a row is neither on this machine nor fetched, or a file cannot be read.
        """
        owners = self.owner(rows)
        for part in np.unique(owners).tolist():
            of_part = owners == part
            wanted = rows[of_part]
            if part in self.files:
                self.files[part].read(self.numbers(wanted, part), slots[of_part], out)
                continue
            ids, fetched = self._fetched.get(part, (wanted[:0], out[:0]))
            found = np.searchsorted(ids, wanted)
            missing = wanted if not len(ids) else wanted[ids[np.minimum(found, len(ids) - 1)] != wanted]
            if len(missing):
                raise InputError(
                    f"the row of node {missing[0]} is on another machine and was not fetched: {self.path} has some partitions only"
                )
            out[slots[of_part]] = fetched[found]
        if meanwhile is not None:
            meanwhile()

    def take(self, ids: Array) -> Array:
        """Return the rows (N, F) of nodes ``ids`` (N,). With several machines all ranks call this, and ``finish`` at the end.

        Raises:
            InputError: the machines are not consistent (see ``meet``), an exchange fails, or a file cannot be read.
        """
        out = np.empty((len(ids), *self.shape[1:]), self.dtype)
        if (ranks := self.rank_rows()) is not None:
            out.view(np.uint8).reshape(len(ids), self.row_bytes)[...] = ranks.take(ids)
        else:
            super().gather(ids, out)
        return out

    def finish(self) -> None:
        """Serve the rows that other ranks still request, after this rank's last ``take``."""
        if (ranks := self.rank_rows()) is not None:
            ranks.finish()

    def rank_rows(self) -> RankRows | None:
        """Return the reader by which all ranks request rows, after ``meet``; None if one machine has all partitions."""
        torch = sys.modules.get("torch")
        is_one_of = torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized()
        if not self.ranks:
            self.meet(meeting_of(torch.distributed.get_world_size()) if torch is not None and is_one_of else None)
        if self._rank_rows is None and len(self.ranks) > 1:
            self._rank_rows = RankRows(self, self.links.ranks())
        return self._rank_rows

    def gather(self, ids: Array, out: Array, *_: Any) -> None:
        """Gather rows (see ``StoredRows``). If rows are on other machines, ``out`` is filled with zeros, since then only the size of a batch is needed."""
        if self.is_whole:
            super().gather(ids, out)
        else:
            out[...] = np.zeros((), out.dtype)


def open_partitioned(path: str | Path, links: CommGroups | None = None) -> Dataset:
    """Open a partitioned data set whose features are ``PartitionedFeatures``, or ``QuantizedRows`` of these.

    Raises:
        InputError: the folder is not a valid partitioned data set, or this machine has no partition.
    """
    partition = open_partition(path)
    rows: Any = PartitionedFeatures(partition, links)
    x = rows if rows.columns is None else QuantizedRows(rows, rows.columns)
    return replace(partition.data, x=x, validate=False)


def _checksum(columns: QuantParams | None) -> str:
    """Return text with the checksum of quantisation parameters."""
    if columns is None:
        return ""
    return f", codes whose scales and zeros have checksum {zlib.crc32(columns.zero.tobytes(), zlib.crc32(columns.scale.tobytes()))}"
