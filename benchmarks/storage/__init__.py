"""How fast is training with features larger than memory: with hoptrain's feature cache, a memory map, and online cache policies?

For each data set the benchmark takes four measurements, the first two only on homogeneous graphs. *Tier* is hoptrain's host feature cache.

*Reads* counts the rows that each cache has to read over five epochs, with the same number of slots, all empty at first. It compares the tier's plan with
several look-aheads, LRU, S3-FIFO, a fixed cache of the rows with the largest out-degree, one of the rows used most in the first epoch, and the optimum,
a plan that knows all epochs from the start. The plan and the optimum do not overwrite slots of prefetched steps that the trainer has not yet taken
(``RowPlan``). "optimum of one" prefetches only one step, after the previous step has been taken.

*Speed* measures mini-batches a second in interleaved rounds.

* Each system has one process that samples and gathers. A consumer reads every cache line of the features, or with ``--train`` trains a step on them.
  The tier has another process, which reads ahead. DGL loads the same two batches each round in a single process, without a training step, so
  ``--train`` leaves it out.
* Systems with a cache of rows run an epoch of warm-up. The policies read rows as the tier does, bypassing the page cache, and have as many slots.
* Processes with a memory map run in control groups limited to ``memory``, page cache included. If a control group cannot be created, the file's pages are
  dropped from the page cache before each round. The column ``limit`` says which.
* In each round, 64 threads read for a second at random positions of the file, as many bytes a read as the tier reads on average. The line ``disk`` has this
  rate, and the upper bound that it sets for the tier: the rate divided by the tier's reads of a batch.

*Edges* measures mini-batches a second in such rounds with the edges read from their file by the tier, mapped with MADV_RANDOM, and in memory. All systems
keep the features, 16 bytes a node, in memory. The control group of the map may hold as many bytes of edges as the tier.

*Handover* measures the processor time of a step that another process samples ahead, as the tier does for edges in a file: to sample it, to serialise and send
it, and to receive it.

The summary has the worst of several cases:

* ``min_ratio_mmap``, ``min_ratio_mmap_read_ahead``: speed of the tier over that of the memory map with MADV_RANDOM, and without.
* ``share_of_memory_speed``: speed of the tier over that with all features in memory. ``share_permitted`` is the largest value that the disk permits.
* ``share_of_bound``: speed of the tier over the upper bound set by the disk.
* ``misses_over_optimum``: reads of the default plan over the optimum's. The plan knows as many accesses as the tier can store with this number of slots.
* ``reads_over_best_policy``: reads of the default plan over those of the best policy.
* ``min_edges_over_map``, ``min_edges_share_of_memory_speed``: speed with edges read by the tier over that with the map, and with edges in memory.
* ``take_over_sample``: time to receive a step over the time to sample it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from hoptrain.benchmarks.baselines.loaders import Case as Load
from hoptrain.benchmarks.common import options
from hoptrain.benchmarks.common.harness import Result
from hoptrain.benchmarks.common.options import summarize
from hoptrain.benchmarks.common.rounds import time_rounds
from hoptrain.benchmarks.storage import counts, edges, speed
from hoptrain.benchmarks.storage.disk import Disk
from hoptrain.benchmarks.storage.sources import features_of
from hoptrain.benchmarks.storage.train import Steps
from hoptrain.engine import Dataset, HeteroDataset, InputError, Schedule
from hoptrain.engine.storage.file_rows import FileRows
from hoptrain.engine.storage.filler import FORESEEN_BYTES
from hoptrain.engine.storage.shared_rows import FORESEEN_SHARE, bytes_for
from hoptrain.samplers import NeighborSampler, Sampler
from hoptrain.samplers.loader.check_batch import prepared
from hoptrain.samplers.loader.feature_cache import LOOKAHEAD
from hoptrain.samplers.loader.memory_left import budget_of
from hoptrain.samplers.loader.topology.edge_memory import SAMPLE_SHARE

_SCALE, _QUICK_SCALE = 0.01, 0.002
_LOOKAHEADS = (64, LOOKAHEAD)
_MEMORY, _TIER, _RANDOM, _MAP = "in memory", "tier", "map, MADV_RANDOM", "map"
_DISK, _DGL = "disk", "DGL, map"
_EPOCHS, _PEER_BATCHES = 5, 2
_Answer: TypeAlias = tuple[list[dict[str, Any]], dict[str, float]]
_OURS = {"optimum", "optimum of one", *(f"plan {ahead}" for ahead in _LOOKAHEADS)}
_THREADS = 64
_PLAIN, _TYPED = "synthetic:papers100M", "synthetic:mag"
PARTS = ("reads", "speed", "edges", "handover")
"""Names of the measurements of this benchmark, in the order in which they run."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add = parser.add_argument
    add(
        "--graphs",
        nargs="+",
        metavar="NAME",
        help="data sets with features, by name or path (default: synthetic:papers100M; for edges and handover also synthetic:mag)",
    )
    add(
        "--scale",
        type=float,
        help=f"size of synthetic:NAME data sets relative to the original, in (0, 1] (default {_SCALE:g}, with --quick {_QUICK_SCALE:g})",
    )
    add("--root", type=Path, metavar="DIR", help="folder that holds data sets")
    add("--fanouts", type=int, nargs="+", default=[10, 10], metavar="N", help="neighbours per hop from the seeds outward (default 10 10)")
    add("--batch-size", type=int, metavar="B", help="seeds of a mini-batch (default 128, with --quick 8)")
    add(
        "--shares",
        type=float,
        nargs="+",
        default=[0.05, 0.1, 0.25],
        metavar="S",
        help="cached rows as a share of all rows, for reads (default 0.05 0.1 0.25)",
    )
    add("--share", type=float, default=0.25, metavar="S", help="memory as a share of the features' bytes, for speed (default 0.25)")
    add("--batches", type=int, metavar="K", help="approximate number of mini-batches in a round (default 16, with --quick 4)")
    add("--rounds", type=int, metavar="R", help="measured rounds (default 5, with --quick 1)")
    add("--train", type=int, metavar="WIDTH", help="for speed, train GraphSAGE with this many hidden channels on each mini-batch")
    add("--only", choices=PARTS, help="run only this measurement")
    others = [_MEMORY, _RANDOM, _MAP, *counts.POLICIES, _DGL]
    add("--without", nargs="+", default=[], choices=others, metavar="NAME", help=f"systems to leave out of speed: {'; '.join(others)}")


@dataclass(frozen=True, eq=False, kw_only=True)
class Case:
    """A loaded data set with its sampler.

    Attributes:
        data: the data set.
        sampler: the prepared sampler.
        schedule: the seeds of each batch.
        epochs: rows that each step of the first epochs uses.
    """

    data: Dataset
    sampler: Sampler[Any, Any]
    schedule: Schedule
    epochs: counts.Accesses

    @cached_property
    def file(self) -> FileRows:
        """File of the features."""
        return features_of(self.data)

    def memory(self, share: float) -> tuple[int, int]:
        """Return the bytes of a share of the features, and the number of rows that a cache of this size holds with its bookkeeping."""
        memory = int(share * self.file.shape[0] * self.file.row_bytes)
        return memory, budget_of({}, {"x": self.file}, memory, SAMPLE_SHARE).tables()[0].num_slots


def run(args: argparse.Namespace) -> Result:
    """Count reads and measure speeds, as the module's docstring describes."""
    if args.train and args.only not in (None, "speed"):
        raise InputError(f"--train is {args.train} with --only {args.only}: --train applies to speed only; leave one of them out")
    records: list[dict[str, Any]] = []
    answers: list[dict[str, float]] = []
    parts = PARTS if args.only is None else (args.only,)
    for name in args.graphs or [_PLAIN, *[_TYPED] * bool({"edges", "handover"} & set(parts))]:
        data = options.load_either(name, args, scale=_SCALE, quick_scale=_QUICK_SCALE)
        print(data.name, file=sys.stderr)
        if not isinstance(data, Dataset) and args.only in ("reads", "speed"):
            raise InputError(
                f"--only is {args.only}, which needs a homogeneous graph, and {data.name} is heterogeneous: name a homogeneous one, or "
                "choose edges or handover"
            )
        for rows, answer in _found(data, args, parts):
            records, answers = records + rows, [*answers, answer]
    summary = {name.removeprefix("max_"): value for name, value in summarize(answers).items()}
    return Result(records=records, summary=summary, seeds=[options.SEED])


def _found(data: Dataset | HeteroDataset, args: argparse.Namespace, parts: Sequence[str]) -> Iterator[_Answer]:
    """Make the measurements ``parts`` on a data set. Yield the records and summary entries of each."""
    batch_size = args.batch_size or (8 if args.quick else 128)
    if isinstance(data, Dataset) and {"reads", "speed"} & set(parts):
        sampler, items = prepared(NeighborSampler(args.fanouts), data.graph, data.split("train"))
        schedule = Schedule(items=items, batch_size=batch_size, seed=options.SEED)
        epochs = counts.accesses(data, sampler, schedule, _EPOCHS if "reads" in parts else 2)
        case = Case(data=data, sampler=sampler, schedule=schedule, epochs=epochs)
        for share in args.shares if "reads" in parts else []:
            yield _reads(case, share)
        if "speed" in parts:
            yield _speed(case, args)
    if "edges" in parts:
        yield edges.speed(data, args.fanouts, batch_size, *_batches_and_rounds(args))
    if "handover" in parts:
        yield edges.handover(data, args.fanouts, batch_size, args.quick)


def _batches_and_rounds(args: argparse.Namespace) -> tuple[int, int]:
    return args.batches or (4 if args.quick else 16), args.rounds or (1 if args.quick else 5)


def _reads(case: Case, share: float) -> _Answer:
    """Count the reads with one cache size, and return records and entries of the summary."""
    num_slots, num_rows = round(share * case.data.graph.num_nodes), case.data.graph.num_nodes
    most_foreseen = bytes_for(num_slots, num_rows, case.file.row_bytes) // (FORESEEN_SHARE - 1) // FORESEEN_BYTES
    found = counts.misses_a_row(case.data, case.epochs, num_slots, _LOOKAHEADS, most_foreseen)
    facts = {"graph": case.data.name, "part": "reads", "share": share}
    rows = [facts | {"system": name, "misses_row": value, "over_optimum": value / found["optimum"]} for name, value in found.items()]
    best = min(value for name, value in found.items() if name not in _OURS)
    return rows, {
        "max_misses_over_optimum": found[f"plan {_LOOKAHEADS[-1]}"] / found["optimum"],
        "max_reads_over_best_policy": found[f"plan {_LOOKAHEADS[-1]}"] / best,
    }


def _speed(case: Case, args: argparse.Namespace) -> _Answer:
    """Measure speeds, and return records and entries of the summary."""
    memory, num_slots = case.memory(args.share)
    batches, rounds = _batches_and_rounds(args)
    policies = {name: make for name, make in counts.policies(case.data, case.epochs[0], num_slots).items() if name not in args.without}
    use = speed.read_lines if args.train is None else Steps(case.data, len(args.fanouts), args.train)
    sizes: dict[str, Any] = {"memory": memory, "num_slots": num_slots, "prefetch_steps": LOOKAHEAD}
    systems = speed.opened(
        case.data, case.sampler, case.schedule, **sizes, policies=policies, batches=batches, use=use, without=args.without
    )
    first = np.concatenate([case.schedule.batch_items(0, step) for step in range(min(_PEER_BATCHES, case.schedule.num_steps))])
    load = Load(fanouts=tuple(args.fanouts), batch_size=case.schedule.batch_size, seeds=first)
    baseline = None if _DGL in args.without or args.train else speed.Dgl.opened(case.data, load, memory)
    everyone: dict[str, speed.System | speed.Dgl] = {**systems, **({_DGL: baseline} if baseline else {})}
    try:
        for name in (_TIER, *policies):
            systems[name].take(0, range(case.schedule.num_steps))
        _, _, num_reads, num_bytes, *_ = systems[_TIER].filled[-1]
        disk = Disk(case.file.path, _THREADS, 0.2 if args.quick else 1.0, num_bytes / num_reads)
        costs = time_rounds({_DISK: disk, **everyone}, rounds)
    finally:
        for system in everyone.values():
            system.close()
    tier, facts = costs[_TIER], {"graph": case.data.name, "part": "speed", "share": args.share}
    rows = [
        facts
        | {"system": name, "batches_s": 1e9 / costs[name].median, "spread": costs[name].spread, "ratio": costs[name].over(tier.ns)}
        | {"limit": "control group" if system.group else "dropped pages" if name in (_RANDOM, _MAP) else None}
        for name, system in everyone.items()
    ]
    filled = [sum(column) for column in zip(*systems[_TIER].filled[-rounds:], strict=True)]
    num_batches = tier.amount * rounds
    bounds = [rate / (filled[2] / num_batches) for rate in disk.rates[-rounds:]]
    bound = statistics.median(bounds)
    own = {"misses_row": filled[1] / filled[0], "reads_batch": filled[2] / num_batches, "bytes_read": filled[3] / filled[2]}
    next(row for row in rows if row["system"] == _TIER).update(own)
    rows.append(
        facts | {"system": _DISK, "batches_s": bound, "spread": costs[_DISK].spread, "reads_s": statistics.median(disk.rates[-rounds:])}
    )
    ratios = {"min_ratio_mmap": _RANDOM, "min_ratio_mmap_read_ahead": _MAP, "share_of_memory_speed": _MEMORY}
    summary = {name: costs[other].over(tier.ns) for name, other in ratios.items() if other in costs}
    if _MEMORY in costs:
        summary["share_permitted"] = min(1.0, bound * costs[_MEMORY].median * 1e-9)
    return rows, summary | {"share_of_bound": statistics.median(1e9 / ns / each for ns, each in zip(tier.ns, bounds, strict=True))}
