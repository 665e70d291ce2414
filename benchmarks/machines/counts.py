"""Counts of the bytes that machines send to fill their feature caches, without a network."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hoptrain.benchmarks.common import options
from hoptrain.benchmarks.machines import optimum
from hoptrain.benchmarks.machines.optimum import WINDOW
from hoptrain.engine import Dataset, Schedule
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.partition.exchange import LocalExchange
from hoptrain.engine.partition.fill import DistributedCacheFillTask
from hoptrain.engine.partition.folder import GRAPHS, open_partition
from hoptrain.engine.partition.rows import PartitionedFeatures
from hoptrain.engine.storage.filler import Filled, run_and_epoch
from hoptrain.engine.storage.plan import IN_FLIGHT
from hoptrain.engine.storage.shared_rows import CachedTable, SharedRows, shared_out, tag_of
from hoptrain.samplers import NeighborSampler, Workspace
from hoptrain.samplers.distributed.samples_ahead import DistributedPrefetchSampler
from hoptrain.samplers.loader.check_batch import prepared
from hoptrain.samplers.loader.feature_cache import LOOKAHEAD, PARTED_LOOKAHEAD, PARTED_WINDOWS, WINDOWS
from hoptrain.samplers.loader.memory_left import Messages, num_asked
from hoptrain.samplers.loader.task import SampleTask
from hoptrain.samplers.loader.topology.edge_memory import SAMPLE_SHARE
from hoptrain.samplers.loader.topology.superbatch import StepAccesses
from hoptrain.samplers.superbatch.transport import message_slots

EPOCHS, RANKS = 2, 4
_COUNT = np.dtype(np.int32)  # dtype of the number of sampled edges per node in messages between machines
_PLENTY = 1 << 40  # bytes of a cache that can store all planned accesses


class Cluster:
    """A simulation of several machines that train on a partitioned data set, with ``RANKS`` ranks in all.

    Attributes:
        size: number of machines.
        topology: whether each machine has the whole graph or its partition, one of ``hoptrain.engine.partition.folder.GRAPHS``.
        num_rows: number of rows of the features, V.
        num_steps: number of steps of an epoch.
        cut: share of the edges that join two partitions.
        row_bytes: bytes of a row.
        num_windows: number of windows of an epoch; the rows of a window are requested together.
        num_sampled: number of windows of an epoch in which machines sample together; 0 if each has the whole graph.
        samples: fewest bytes of distributed sampling: an id for each node of another machine, and in return a count, and the source and position of each
            sampled edge.
    """

    def __init__(self, data: Dataset, number: int, parts: Path, args: argparse.Namespace) -> None:
        """Open the partitions in ``parts`` and sample all steps to find the rows that they use."""
        sampler, items = prepared(NeighborSampler(args.fanouts), data.graph, data.split("train"))
        common: dict[str, Any] = {"items": items, "batch_size": args.batch_size, "world_size": RANKS, "seed": options.SEED}
        ranks, self._partition = np.array_split(np.arange(RANKS), number), open_partition(parts)
        schedules = [[Schedule(rank=rank, **common) for rank in own] for own in ranks]
        task: dict[str, Any] = {"graph": data.graph, "stores": {"x": 0}, "sampler": sampler}
        self._rows_of = [
            StepAccesses(
                tasks=[SampleTask(schedule=each, workspace=Workspace(), **task) for each in own],
                num_tables=1,
                boxes=message_slots(IN_FLIGHT, 0, range(len(own)), None),
            )
            for own in schedules
        ]
        self.size, self.topology = number, GRAPHS[self._partition.has_columns]
        self.num_rows, self.num_steps, self.cut = data.graph.num_nodes, schedules[0][0].num_steps, self._partition.cut
        self._machines = [PartitionedFeatures(self._partition) for _ in range(number)]
        for machine, rows in enumerate(self._machines):
            rows.settle([own.tolist() for own in ranks], machine)
        self.row_bytes = self._machines[0].row_bytes
        pairs = zip(self._rows_of, self._machines, ranks, strict=True)
        self._asked = [num_asked(own.tasks[0], rows, each, not self._partition.has_columns) for own, rows, each in pairs]
        at = [(epoch, step) for epoch in range(EPOCHS) for step in range(self.num_steps)]
        self._steps = [[self._of_others(machine, *each) for each in at] for machine in range(number)]
        self.num_windows, self.num_sampled, self.samples = -(-self.num_steps // WINDOW), 0, 0
        self._ahead: list[DistributedPrefetchSampler | None] = [None] * number
        if self._partition.has_columns:
            self.num_sampled = 1 + -(-max(0, self.num_steps - PARTED_LOOKAHEAD) // WINDOW)
            self.samples = sum(self._of_samples(machine, *each) for each in at for machine in range(number))
            self._ahead = [
                DistributedPrefetchSampler(
                    sampler=sampler,
                    columns=self._partition.columns(machine),
                    schedules=own,
                    boxes=message_slots(PARTED_LOOKAHEAD + 2 * WINDOW, 0, range(len(own)), None),
                )
                for machine, own in enumerate(schedules)
            ]

    def _of_others(self, machine: int, epoch: int, step: int) -> Array:
        """Return the rows of other machines that a step uses."""
        (ids,) = self._rows_of[machine](epoch, step)
        others: Array = ids[self._partition.owner(ids) != machine]
        return others

    def _of_samples(self, machine: int, epoch: int, step: int) -> int:
        """Return a lower bound of the bytes that machines must send to sample one machine's batches of a step."""
        found, of_id = 0, id_dtype(self.num_rows).itemsize
        for task in self._rows_of[machine].tasks:
            batch: Any = task.sampled(epoch, step)
            for block in batch.blocks:
                is_elsewhere = self._partition.owner(batch.node_ids[: block.num_dst]) != machine
                num_draws = int(np.diff(block.indptr)[is_elsewhere].sum())
                found += int(is_elsewhere.sum()) * (of_id + _COUNT.itemsize) + num_draws * (of_id + block.edge_ids.itemsize)
        return found

    def _in_bytes(self, rows: int) -> int:
        """Return the bytes that ``rows`` rows take in messages, with an id of the request for each row."""
        return rows * (self.row_bytes + id_dtype(self.num_rows).itemsize)

    def slots(self, share: float) -> list[int]:
        """Return the number of slots on each machine: enough for any two steps' rows of other machines, plus ``share`` of all rows."""
        return [2 * max(map(len, own)) + round(share * self.num_rows) for own in self._steps]

    def within(self, memory: int) -> tuple[list[CachedTable], int]:
        """Return each machine's cache for a ``feature_cache`` of ``memory`` bytes (without slots if none fits), and the number of steps in a window."""
        prefetch_steps, windows = (PARTED_LOOKAHEAD, PARTED_WINDOWS) if self.num_sampled else (LOOKAHEAD, WINDOWS)
        tables, found = [], []
        for rows, asked in zip(self._machines, self._asked, strict=True):
            messages = Messages(self.num_rows, self.row_bytes, asked, prefetch_steps // windows)
            size, most = {"x": (self.num_rows, self.row_bytes)}, {"x": rows.num_elsewhere}
            beside = messages.num_bytes(memory) + (0 if self.num_sampled else memory // SAMPLE_SHARE)
            tables += shared_out(max(memory - beside, 0), size, most)
            found.append(messages.window(memory))
        return tables, min(found)

    def unplanned(self) -> int:
        """Return the bytes that machines would send without a cache, if each step requested all rows of other machines that it uses."""
        return self.samples + self._in_bytes(sum(sum(map(len, own)) for own in self._steps))

    def optimum(self, slots: Sequence[int]) -> int:
        """Return the fewest bytes that any plan could send; ``slots`` has the number of slots of each machine's cache."""
        pairs = zip(self._steps, slots, strict=True)
        return self.samples + self._in_bytes(sum(optimum.fewest(optimum.windows(own, self.num_steps), number) for own, number in pairs))

    def planned(self, slots: Sequence[int], most_foreseen: int | None = None, window: int = WINDOW) -> int:
        """Return the bytes that hoptrain's plan sends.

        Args:
            slots: slots of each machine's cache.
            most_foreseen: largest number of accesses that the plan of a machine stores; None for no limit.
            window: steps whose rows are requested together.
        """
        found = 0
        for machine, number in enumerate(slots):

            def of_others(epoch: int, step: int, machine: int = machine) -> Array:
                return self._of_others(machine, epoch, step)

            size = self.num_rows, number, self.num_steps, EPOCHS, most_foreseen, window
            found += sum(map(len, optimum.planned(of_others, *size, sampled=PARTED_LOOKAHEAD if self.num_sampled else None)))
        return self.samples + self._in_bytes(found)

    def filled(self, slots: Sequence[int]) -> list[Filled]:
        """Run each machine's cache process in a thread and return what it has read and sent; the simulated trainers take each step immediately."""
        exchanges, done = LocalExchange.among(len(slots)), [Filled() for _ in slots]
        errors: list[Exception] = []

        def fill(machine: int) -> None:
            rows = self._machines[machine]
            shared = SharedRows.make([CachedTable(len(rows), rows.row_bytes, slots[machine], _PLENTY)], 1)
            ahead = self._ahead[machine]
            task = DistributedCacheFillTask(
                shared=shared, files=[rows], samples=ahead or self._rows_of[machine], num_steps=self.num_steps,
                prefetch_steps=PARTED_LOOKAHEAD if ahead else LOOKAHEAD, window=WINDOW, exchange=exchanges[machine], ahead=ahead,
            )  # fmt: skip
            try:
                for epoch in range(EPOCHS):
                    shared.begin(0, epoch + 1, range(self.num_steps))
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
