"""Features in parts as one table: rows of the parts that this machine has are read there, those of others have to be fetched from their owners.

A machine is what ``one_copy.machine`` tells apart. One alone has all parts, and reads their files as those of any table. Of several, as many as parts,
machine m has part m, counted by their first ranks, and has it mapped: its own rows need no place in a cache.
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
from hoptrain.engine.features.quantized import Columns, QuantizedRows, codes_of
from hoptrain.engine.gpu_memory.meeting import Meeting, meeting_of
from hoptrain.engine.gpu_memory.one_copy import machine
from hoptrain.engine.partition.exchange import Exchange
from hoptrain.engine.partition.folder import Partition, open_partition, part_folder
from hoptrain.engine.partition.rank_rows import RankRows
from hoptrain.engine.queue.shared_memory import check_whole, mapped_files
from hoptrain.engine.storage.file_rows import FileRows, StoredRows
from hoptrain.engine.storage.shared_rows import LocalFeatures


@dataclass(frozen=True, slots=True)
class Links:
    """What connects the processes of a run, made by those who can: torch's collectives are beyond this floor.

    Attributes:
        machines: an exchange among the machines of these rows, for a process that imports no torch.
        ranks: an exchange among all ranks, for this process.
    """

    machines: Callable[[PartitionedFeatures], Exchange]
    ranks: Callable[[], Exchange]


class PartitionedFeatures(StoredRows):
    """Features (V, F) whose rows lie in parts, or the codes of features.

    Attributes:
        path: the folder.
        shape: (V, F), of codes (V, bytes of a row).
        dtype: as stored.
        columns: what codes stand for; None of features that are none.
        row_bytes: bytes of a row.
        ranks: of each machine of the run its ranks; empty until they have met.
        machine: the number of this one.
        own: its part, where there are several.
        num_reads: reads of this machine's files so far.
        num_bytes: their bytes.
    """

    def __init__(self, partition: Partition, links: Links | None = None) -> None:
        """Open the parts that are here.

        Raises:
            InputError: none is, or one is of another partition.
        """
        self.path = str(partition.path)
        self._name, self._place, self._bounds = partition.data.name, partition.place, partition.bounds
        parts = range(partition.num_parts)
        stored = {part: partition.rows(part) for part in parts if part_folder(partition.path, part).exists()}
        self._here = here = {part: codes_of(rows) for part, rows in stored.items()}
        if not here:
            raise InputError(
                f"{self.path} has no part's folder: this machine needs its own, part-0 to part-{partition.num_parts - 1}; copy it"
            )
        self._graph_is = "partitioned" if partition.has_columns else "replicated"
        one = next(iter(here.values()))
        self.columns: Columns | None = next((rows.columns for rows in stored.values() if isinstance(rows, QuantizedRows)), None)
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

    @property
    def num_parts(self) -> int:
        """P."""
        return len(self._bounds) - 1

    @property
    def num_reads(self) -> int:
        """See the class."""
        return sum(file.num_reads for file in self.files.values())

    @property
    def num_bytes(self) -> int:
        """See the class."""
        return sum(file.num_bytes for file in self.files.values())

    @property
    def is_whole(self) -> bool:
        """Whether this machine has all rows."""
        return len(self.files) == self.num_parts

    def meet(self, meeting: Meeting | None) -> None:
        """Find out which part is this machine's, once; every rank of the run calls this, and all come to the same, or fail alike.

        Raises:
            InputError: machines with other parts, partitions or versions than they should have.
        """
        if self.ranks:
            return
        own: dict[str, Any] = {"machine": machine(), "host": socket.gethostname(), "parts": sorted(self.files), "shared": self._facts()}
        told = [own] if meeting is None else meeting.exchange("which parts it has", own)
        rank = 0 if meeting is None else meeting.rank
        for other, each in enumerate(told):
            different = next((what for what, value in told[0]["shared"].items() if each["shared"][what] != value), None)
            if different:
                raise InputError(
                    f"rank {other} on {each['host']} has {different} {each['shared'][different]}, and rank 0 on {told[0]['host']} "
                    f"{told[0]['shared'][different]}: all machines need the same; copy the folder of one of them, and install one version"
                )
        names = list(dict.fromkeys(each["machine"] for each in told))
        ranks = [[other for other, each in enumerate(told) if each["machine"] == name] for name in names]
        if 1 < len(names) != self.num_parts:
            raise InputError(
                f"{self.path} has {self.num_parts} parts, and the run {len(names)} machines: each has one of them; start as many, or write "
                f"others by 'hoptrain data partition --parts {len(names)}'"
            )
        if len(names) == 1:
            self.check_alone()
        for other, each in enumerate(told):
            number = names.index(each["machine"])
            missing = sorted(({number} if len(names) > 1 else set(range(self.num_parts))) - set(each["parts"]))
            if missing:
                is_alone = "one machine alone needs all parts" if len(names) == 1 else f"it is machine {number} of {len(names)}"
                raise InputError(f"rank {other} on {each['host']} has no part-{missing[0]} in {self.path}: {is_alone}; copy it there")
        self.settle(ranks, names.index(told[rank]["machine"]))

    def check_alone(self) -> None:
        """Whether one machine alone can read the parts.

        Raises:
            InputError: the graph is parted too.
        """
        if self._graph_is == "partitioned":
            raise InputError(
                f"{self.path} has the graph in {self.num_parts} parts, and the run one machine: start as many machines as parts, or write parts that "
                "have the graph whole"
            )

    def settle(self, ranks: list[list[int]], machine: int) -> None:
        """Take the ranks of each machine, and the number of this one, whose part alone is read from now on where there are several."""
        self.ranks, self.machine = ranks, machine
        if len(ranks) > 1:
            first, end = map(int, self._bounds[machine : machine + 2])
            self.own = LocalFeatures(self._here[machine], self._place, first, end)
            self.files = {}
        self._here = {}

    def _facts(self) -> dict[str, Any]:
        """What all machines have in common, by its name for people."""
        return {
            "hoptrain": version("hoptrain"),
            "the parts of": self._name,
            "as number of parts": self.num_parts,
            "places of nodes with checksum": zlib.crc32(np.ascontiguousarray(self._place).data, zlib.crc32(self._bounds.data)),
            "a graph that is": self._graph_is,
            "features": f"{self.dtype} of {self.row_bytes} bytes a row" + _checksum(self.columns),
        }

    @property
    def links(self) -> Links:
        """What connects this machine with the others.

        Raises:
            InputError: nobody made them.
        """
        if self._links is None:
            raise InputError(
                f"{self.path} lies on {self.num_parts} machines: rows are fetched by a NodeDataModule(partitions=...); use that"
            )
        return self._links

    def owner(self, ids: Array) -> Array:
        """The part of each node of ``ids`` (N,), (N,) int64."""
        return np.searchsorted(self._bounds, self._place[ids], side="right") - 1

    def elsewhere(self, ids: Array) -> Array:
        """Those of ``ids`` (N,) that take slots of a cache: nodes of other machines; of one machine alone, whose rows are read from files, all."""
        if self.own is None:
            return ids
        places = self._place[ids]
        return ids[(places < self.own.first) | (places >= self.own.end)]

    @property
    def num_elsewhere(self) -> int:
        """How many rows may take slots."""
        return len(self) - (0 if self.own is None else len(self.own.rows))

    def numbers(self, ids: Array, part: int) -> Array:
        """Where nodes ``ids`` (N,) of a part stand in it, (N,) of their dtype; ascending ids have ascending numbers."""
        numbers: Array = (self._place[ids] - self._bounds[part]).astype(ids.dtype)
        return numbers

    def of_own(self, numbers: Array, out: Array | None = None) -> Array:
        """The rows (N, row_bytes) uint8 of this machine's part, of several, by their numbers (N,) in it; written to ``out`` (N, row_bytes) where that is given.

        Raises:
            InputError: there is no such row, or the part's file was cut off.
        """
        own: Any = self.own
        check_whole(mapped_files(own.rows))
        if len(numbers) and int(numbers.max()) >= len(own.rows):
            raise InputError(
                f"row {numbers.max()} of part {self.machine} was asked for, which has {len(own.rows):,}: machines have other parts"
            )
        found = np.empty((len(numbers), self.row_bytes), np.uint8) if out is None else out
        np.take(
            own.rows.view(np.uint8).reshape(-1, self.row_bytes), numbers, axis=0, out=found, mode="clip"
        )  # others write to a copy first
        return found

    def put(self, fetched: dict[int, tuple[Array, Array]]) -> None:
        """Keep what was fetched of each part for ``read``, in place of that of before: nodes (M,), ascending, and their rows (M, row_bytes) uint8."""
        self._fetched = fetched

    def read(self, rows: Array, slots: Array, out: Array, meanwhile: Callable[[], None] | None = None) -> None:
        """As ``FileRows.read``; rows of other machines have to be fetched before.

        Raises:
            InputError: a row that is neither here nor fetched; as ``FileRows.read``.
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
                    f"the row of node {missing[0]} is on another machine, and was not fetched: {self.path} has a part of them alone"
                )
            out[slots[of_part]] = fetched[found]
        if meanwhile is not None:
            meanwhile()

    def take(self, ids: Array) -> Array:
        """Return the rows (N, F) of nodes ``ids`` (N,). Where they lie on several machines all ranks call this, and ``finish`` at last.

        Raises:
            InputError: as ``meet``, as exchanges fail, and as files are read.
        """
        out = np.empty((len(ids), *self.shape[1:]), self.dtype)
        if (ranks := self.rank_rows()) is not None:
            out.view(np.uint8).reshape(len(ids), self.row_bytes)[...] = ranks.take(ids)
        else:
            super().gather(ids, out)
        return out

    def finish(self) -> None:
        """Answer the ranks that still take rows; this one takes no more for now."""
        if (ranks := self.rank_rows()) is not None:
            ranks.finish()

    def rank_rows(self) -> RankRows | None:
        """Return what takes rows from all ranks, once these have met; None where one machine has all parts."""
        torch = sys.modules.get("torch")
        is_one_of = torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized()
        if not self.ranks:
            self.meet(meeting_of(torch.distributed.get_world_size()) if torch is not None and is_one_of else None)
        if self._rank_rows is None and len(self.ranks) > 1:
            self._rank_rows = RankRows(self, self.links.ranks())
        return self._rank_rows

    def gather(self, ids: Array, out: Array, *_: Any) -> None:
        """See ``StoredRows``; where rows are on other machines only the size of a batch is asked for, and its rows are zeros."""
        if self.is_whole:
            super().gather(ids, out)
        else:
            out[...] = np.zeros((), out.dtype)


def open_partitioned(path: str | Path, links: Links | None = None) -> Dataset:
    """A data set in parts whose features are ``PartitionedFeatures``, or ``QuantizedRows`` of such.

    Raises:
        InputError: as ``open_partition``, and where no part is here.
    """
    partition = open_partition(path)
    rows: Any = PartitionedFeatures(partition, links)
    x = rows if rows.columns is None else QuantizedRows(rows, rows.columns)
    return replace(partition.data, x=x, validate=False)


def _checksum(columns: Columns | None) -> str:
    """Of what codes stand for, in words."""
    if columns is None:
        return ""
    return f", codes whose scales and zeros have checksum {zlib.crc32(columns.zero.tobytes(), zlib.crc32(columns.scale.tobytes()))}"
