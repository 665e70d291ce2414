"""What machines send by the plans of their caches, without a network."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hoptrain.benchmarks.common import options
from hoptrain.benchmarks.machines import optimum
from hoptrain.engine import Dataset, Schedule
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.partition.exchange import LocalExchange
from hoptrain.engine.partition.folder import open_partition
from hoptrain.engine.partition.rows import PartedRows
from hoptrain.engine.storage.filler import Filled, FillTask, run_and_epoch
from hoptrain.engine.storage.shared_rows import CachedTable, SharedRows, tag_of
from hoptrain.samplers import NeighborSampler, Workspace
from hoptrain.samplers.feed.check_batch import prepared
from hoptrain.samplers.feed.task import SampleTask
from hoptrain.samplers.feed.tier import LOOKAHEAD, WINDOWS, StepRows

EPOCHS, RANKS = 2, 4
_PLENTY = 1 << 40  # bytes of a cache, for the accesses that are foreseen: as many as there are


class Cluster:
    """Some machines that train on a data set in parts with ``RANKS`` ranks.

    Attributes:
        size: how many.
        num_rows: V.
        num_steps: of an epoch.
        cut: share of the edges that join two parts.
        row_bytes: bytes of a row.
    """

    def __init__(self, data: Dataset, number: int, parts: Path, args: argparse.Namespace) -> None:
        """Open the parts, and sample what the steps use."""
        sampler, items = prepared(NeighborSampler(args.fanouts), data.graph, data.split("train"))
        common: dict[str, Any] = {"items": items, "batch_size": args.batch_size, "world_size": RANKS, "seed": options.SEED}
        schedules = [Schedule(rank=rank, **common) for rank in range(RANKS)]
        task: dict[str, Any] = {"graph": data.graph, "stores": {"x": 0}, "sampler": sampler}
        ranks = np.array_split(np.arange(RANKS), number)
        self._rows_of = [
            StepRows(tasks=[SampleTask(schedule=schedules[rank], workspace=Workspace(), **task) for rank in own], num_tables=1)
            for own in ranks
        ]
        self.size, self._partition = number, open_partition(parts)
        self.num_rows, self.num_steps, self.cut = data.graph.num_nodes, schedules[0].num_steps, self._partition.cut
        self._machines = [PartedRows(self._partition) for _ in range(number)]
        for machine, rows in enumerate(self._machines):
            rows.settle([own.tolist() for own in ranks], machine)
        self.row_bytes = self._machines[0].row_bytes
        at = [(epoch, step) for epoch in range(EPOCHS) for step in range(self.num_steps)]
        self._steps = [[self._of_others(machine, *each) for each in at] for machine in range(number)]

    def _of_others(self, machine: int, epoch: int, step: int) -> Array:
        """The rows of other machines that a step uses."""
        (ids,) = self._rows_of[machine](epoch, step)
        others: Array = ids[self._partition.owner(ids) != machine]
        return others

    def _in_bytes(self, rows: int) -> int:
        """What rows are when they travel, each with the id that it was asked for by."""
        return rows * (self.row_bytes + id_dtype(self.num_rows).itemsize)

    def slots(self, share: float) -> list[int]:
        """Of each machine: for the rows of others of two of its steps, and a share of all rows besides."""
        return [2 * max(map(len, own)) + round(share * self.num_rows) for own in self._steps]

    def unplanned(self) -> int:
        """Bytes, where each step asks for all that lies elsewhere."""
        return self._in_bytes(sum(sum(map(len, own)) for own in self._steps))

    def optimum(self, slots: Sequence[int]) -> int:
        """The fewest bytes that any plan could send with so many slots on each machine."""
        pairs = zip(self._steps, slots, strict=True)
        return self._in_bytes(sum(optimum.fewest(optimum.windows(own, self.num_steps), number) for own, number in pairs))

    def planned(self, slots: Sequence[int], most_foreseen: int | None = None) -> int:
        """Bytes by the plan as it is, which stores so many accesses at most on each machine."""
        found = 0
        for machine, number in enumerate(slots):

            def of_others(epoch: int, step: int, machine: int = machine) -> Array:
                return self._of_others(machine, epoch, step)

            found += sum(map(len, optimum.planned(of_others, self.num_rows, number, self.num_steps, EPOCHS, most_foreseen)))
        return self._in_bytes(found)

    def filled(self, slots: Sequence[int]) -> list[Filled]:
        """What the caches' processes do, each in a thread, whose trainers take every step at once."""
        exchanges, done = LocalExchange.among(len(slots)), [Filled() for _ in slots]
        errors: list[Exception] = []

        def fill(machine: int) -> None:
            rows = self._machines[machine]
            shared = SharedRows.make([CachedTable(len(rows), rows.row_bytes, slots[machine], _PLENTY)], 1)
            task = FillTask(
                shared=shared, files=[rows], names=["x"], rows_of=self._rows_of[machine], num_steps=self.num_steps, lookahead=LOOKAHEAD,
                window=LOOKAHEAD // WINDOWS, exchange=exchanges[machine],
            )  # fmt: skip
            try:
                for epoch in range(EPOCHS):
                    for step in range(self.num_steps):
                        made = task.make_batch(run_and_epoch(epoch + 1, epoch), step, lambda _: {})
                        done[machine] = done[machine].plus(made)
                        shared.take(0, tag_of(epoch + 1, step))
            except Exception as error:
                errors.append(error)
                exchanges[machine].abort()

        threads = [threading.Thread(target=fill, args=(machine,)) for machine in range(len(slots))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return done
