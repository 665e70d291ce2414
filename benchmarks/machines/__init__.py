"""What do several machines send, with features in parts, and do they learn what one does?

*Counts*: the processes that fill the caches of 2 and 4 machines run as threads of this one, over two epochs. ``sent`` are their bytes: rows, ids, and 8 bytes
of a head for each message; ``minimum`` is counted apart from them: of each window the distinct rows that the plan reads and that lie elsewhere, each with its
id. ``optimum`` is the least that any plan could send with such a cache, heads left out: the cache may keep what it likes from one window to the next,
knows all of both epochs, and what a window needs beyond it is free. ``unplanned`` is what would be sent with no cache and no window, each step asking for
all that lies elsewhere. A cache of share 0 has slots for two steps' rows of others, and of another that share of all rows besides.

*Weights*: ``hoptrain fit`` on the digits, as real processes over gloo that count as machines by ``HOPTRAIN_MACHINE``, after two epochs, beside one machine
with as many ranks and the features whole. A cell that has not ended within five minutes is hung.

``bytes_over_minimum``, ``bytes_over_optimum`` and ``bytes_saved_by_cache`` (``unplanned`` over what is sent with the largest share) are the worst of all cells;
``max_weight_difference`` is the largest of any weight; ``hung_cells`` counts. Time is not compared: all machines share the cores of one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hoptrain.benchmarks.common import options
from hoptrain.benchmarks.common.harness import Result
from hoptrain.benchmarks.machines import optimum, training
from hoptrain.engine import Dataset, InputError, Schedule
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.partition.exchange import LocalExchange
from hoptrain.engine.partition.folder import Partition, open_partition, write_partition
from hoptrain.engine.partition.methods import METHODS
from hoptrain.engine.partition.rows import PartedRows
from hoptrain.engine.storage.filler import Filled, FillTask, run_and_epoch
from hoptrain.engine.storage.shared_rows import CachedTable, SharedRows, tag_of
from hoptrain.samplers import NeighborSampler, Workspace
from hoptrain.samplers.feed.check_batch import prepared
from hoptrain.samplers.feed.task import SampleTask
from hoptrain.samplers.feed.tier import LOOKAHEAD, WINDOWS, StepRows

_SCALE, _QUICK_SCALE = 0.01, 0.001
_EPOCHS, _RANKS = 2, 4
_PLENTY = 1 << 40  # bytes of a cache, for the accesses that are foreseen: as many as there are


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this benchmark."""
    add = parser.add_argument
    add("--graphs", nargs="+", default=["synthetic:products"], metavar="NAME", help="data sets by name or path (default: products' twin)")
    add("--scale", type=float, help=f"share of a synthetic: set to generate, in (0, 1] (default {_SCALE:g}, with --quick {_QUICK_SCALE:g})")
    add("--root", type=Path, metavar="DIR", help="folder that holds data sets")
    add("--machines", type=int, nargs="+", default=[2, 4], metavar="P", help="2 or 4 (default both); 4 ranks are shared out among them")
    add("--methods", nargs="+", choices=METHODS, default=["range", "stream"], help="how the parts are cut (default range stream)")
    add("--fanouts", type=int, nargs="+", default=[10, 10], metavar="N", help="neighbours per hop from the seeds outward (default 10 10)")
    add("--batch-size", type=int, default=16, metavar="B", help="seeds of a rank's mini-batch (default 16)")
    add("--shares", type=float, nargs="+", default=[0.0, 0.1], metavar="S", help="rows that a cache keeps over all (default 0 0.1)")
    add("--only", choices=("counts", "weights"), help="one of the two things")


def run(args: argparse.Namespace) -> Result:
    """Count, and train; see the module's docstring."""
    if not set(args.machines) <= {2, 4}:
        raise InputError(f"machines are {args.machines}: {_RANKS} ranks are shared out among 2 or 4; choose of these")
    records: list[dict[str, Any]] = []
    summary: dict[str, float] = {}
    if args.only != "weights":
        for name in args.graphs:
            data = options.load(name, args, scale=_SCALE, quick_scale=_QUICK_SCALE)
            for number in args.machines:
                for method in args.methods:
                    print(f"{data.name}: {number} machines, parts by {method}", file=sys.stderr)
                    records += _counted(data, number, method, args)
        summary["bytes_over_minimum"] = max(record["sent"] / max(1, record["minimum"]) for record in records)
        summary["bytes_over_optimum"] = max(record["sent"] / max(1, record["optimum"]) for record in records)
        cached = [record for record in records if record["share"] == max(args.shares)]
        summary["bytes_saved_by_cache"] = min(record["unplanned"] / max(1, record["sent"]) for record in cached)
    if args.only != "counts":
        cells = training.cells(
            2 if args.quick else _RANKS, [2] if args.quick else args.machines, args.methods[:1] if args.quick else args.methods
        )
        records += cells
        summary["max_weight_difference"] = max((r["weight_difference"] for r in cells if r["weight_difference"] is not None), default=0.0)
        summary["hung_cells"] = sum(r["outcome"] != "ended" for r in cells)
    return Result(records=records, summary=summary, seeds=[options.SEED])


def _counted(data: Dataset, number: int, method: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    """A record for each share of the rows that a cache keeps."""
    sampler, items = prepared(NeighborSampler(args.fanouts), data.graph, data.split("train"))
    schedules = [
        Schedule(items=items, batch_size=args.batch_size, rank=rank, world_size=_RANKS, seed=options.SEED) for rank in range(_RANKS)
    ]
    ranks = np.array_split(np.arange(_RANKS), number)
    rows_of = [
        StepRows(
            tasks=[
                SampleTask(graph=data.graph, stores={"x": 0}, sampler=sampler, schedule=schedules[rank], workspace=Workspace())
                for rank in own
            ],
            num_tables=1,
        )
        for own in ranks
    ]
    num_steps = schedules[0].num_steps
    records = []
    with tempfile.TemporaryDirectory() as folder:
        write_partition(data, Path(folder) / "parts", number, method)
        partition = open_partition(Path(folder) / "parts")
        machines = [PartedRows(partition) for _ in range(number)]
        for machine, rows in enumerate(machines):
            rows.settle([own.tolist() for own in ranks], machine)
        cost = machines[0].row_bytes + id_dtype(data.graph.num_nodes).itemsize
        at = [(epoch, step) for epoch in range(_EPOCHS) for step in range(num_steps)]
        others = [[_of_others(partition, machine, own)(*each) for each in at] for machine, own in enumerate(rows_of)]
        for share in args.shares:
            slots = [2 * max(map(len, own)) + round(share * data.graph.num_nodes) for own in others]
            filled = _filled(machines, rows_of, slots, num_steps)
            least = 0
            for machine, room in enumerate(slots):
                of_others = _of_others(partition, machine, rows_of[machine])
                least += sum(map(len, optimum.planned(of_others, data.graph.num_nodes, room, num_steps, _EPOCHS)))
            fewest = sum(optimum.fewest(optimum.windows(own, num_steps), room) for own, room in zip(others, slots, strict=True))
            records.append(
                {"graph": data.name, "machines": number, "parts": method, "cut": partition.cut, "share": share}
                | {"windows": _EPOCHS * -(-num_steps // (LOOKAHEAD // WINDOWS)), "rounds": filled[0].num_rounds}
                | {"sent": sum(each.num_sent for each in filled), "minimum": least * cost, "optimum": fewest * cost}
                | {"unplanned": sum(sum(map(len, own)) for own in others) * cost}
            )
    return records


def _of_others(partition: Partition, machine: int, rows_of: StepRows) -> Callable[[int, int], Array]:
    """The rows of other machines that an epoch and a step use."""

    def found(epoch: int, step: int) -> Array:
        (ids,) = rows_of(epoch, step)
        others: Array = ids[partition.owner(ids) != machine]
        return others

    return found


def _filled(machines: list[PartedRows], rows_of: list[StepRows], slots: list[int], num_steps: int) -> list[Filled]:
    """What the caches' processes did, each in a thread, whose trainers take every step at once."""
    exchanges, done = LocalExchange.among(len(machines)), [Filled() for _ in machines]
    errors: list[Exception] = []

    def fill(machine: int) -> None:
        rows = machines[machine]
        shared = SharedRows.make([CachedTable(len(rows), rows.row_bytes, slots[machine], _PLENTY)], 1)
        task = FillTask(
            shared=shared, files=[rows], names=["x"], rows_of=rows_of[machine], num_steps=num_steps, lookahead=LOOKAHEAD,
            window=LOOKAHEAD // WINDOWS, exchange=exchanges[machine],
        )  # fmt: skip
        try:
            for epoch in range(_EPOCHS):
                for step in range(num_steps):
                    made = task.make_batch(run_and_epoch(epoch + 1, epoch), step, lambda _: {})
                    done[machine] = done[machine].plus(made)
                    shared.take(0, tag_of(epoch + 1, step))
        except Exception as error:
            errors.append(error)
            exchanges[machine].abort()

    threads = [threading.Thread(target=fill, args=(machine,)) for machine in range(len(machines))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return done
