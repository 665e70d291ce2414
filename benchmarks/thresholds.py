"""Which block sizes and borders of ``hoptrain.kernels.cuda.thresholds`` are fastest on this GPU?

A bulk is sampled by each schedule, with one number of the table smaller or larger and the others as they are, in rounds interleaved with those
of the table itself. ``ratio`` is how many times as fast it is then, and ``device_ratio`` the same of the device's part alone, without what the host
does beside it. The batches are the same whatever the numbers are.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hoptrain.benchmarks.common import options
from hoptrain.benchmarks.common.harness import Result
from hoptrain.engine import InputError

CANDIDATES: Mapping[str, Mapping[str, Sequence[int]]] = {
    "sample": {
        "block": (64, 128, 512),
        "max_blocks": (132 * 16, 132 * 64),
        "resident_blocks": (132 * 4, 132 * 16),
        "lanes": (1, 2),
        "cache_bytes": (0,),
    },
    "transit": {
        "block": (64, 128, 512),
        "max_blocks": (132 * 16, 132 * 64),
        "resident_blocks": (132 * 4, 132 * 16),
        "cache_bytes": (0,),
        "thread_work": (2, 8, 16),
        "warp_work": (64, 256),
        "block_work": (4096, 16384),
        "warp_stage_bytes": (2048, 8192),
        "block_stage_bytes": (12 * 1024, 32 * 1024),
        "shares": (32, 128),
    },
}
"""Schedule -> number -> what is tried in the place of its value. Staging and a scan's sums fit the 48 KiB that a launch may have; with ``cache_bytes`` 0
there are no direct tables, whatever the graph. ``lanes`` are tried on draws with replacement: distinct ones of a request are one thread's anyway."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this benchmark."""
    add = parser.add_argument
    add("--graph", default="synthetic:products", metavar="NAME", help="data set by name or path (default: synthetic products)")
    add("--scale", type=float, help="size of synthetic:NAME data sets relative to the original, in (0, 1] (default 1, with --quick 0.02)")
    add("--root", type=Path, metavar="DIR", help="folder that holds data sets")
    add(
        "--fanouts",
        type=int,
        nargs="+",
        default=[15, 10, 5],
        metavar="N",
        help="neighbours per hop from the seeds outward (default 15 10 5)",
    )
    add("--batch-size", type=int, default=1024, metavar="B", help="seeds of a mini-batch (default 1024)")
    add("--bulk", type=int, default=64, metavar="K", help="mini-batches of a bulk (default 64)")
    add("--rounds", type=int, metavar="R", help="timed rounds, after the warm-up (default 7, with --quick 3)")
    add("--schedules", nargs="+", choices=list(CANDIDATES), default=list(CANDIDATES), help="those to time (default: both)")


def run(args: argparse.Namespace) -> Result:
    """Time every candidate.

    Raises:
        InputError: CUDA cannot be used here.
    """
    from hoptrain.engine.device import cuda_status  # here, for what comes with it would keep --help waiting

    reason = cuda_status()
    if reason is not None:
        raise InputError(f"bench thresholds: {reason}; run it where there is a GPU")
    data = options.load(args.graph, args)
    facts = {"graph": data.name, "fanouts": ",".join(map(str, args.fanouts)), "batch": args.batch_size, "bulk": args.bulk}
    records = [facts | {"schedule": schedule} | row for schedule in args.schedules for row in _measure(data, schedule, args)]
    gains = {f"max_ratio_{row['schedule']}_{row['number']}": row["ratio"] for row in sorted(records, key=lambda row: row["ratio"])}
    return Result(records=records, summary=gains, seeds=[options.SEED])


def _measure(data: Any, schedule: str, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The records of a schedule. Of a number's values each has buffers of its own, of which few fit the memory: so they go before the next number."""
    from hoptrain.benchmarks.cases.bulk_times import TimedBulks
    from hoptrain.benchmarks.cases.sampler_cuda import take_bulks
    from hoptrain.benchmarks.common.rounds import WARMUP, time_rounds
    from hoptrain.kernels.cuda.thresholds import THRESHOLDS
    from hoptrain.samplers import NeighborSampler, Workspace

    rounds = options.num_rounds(args)
    seeds = list(take_bulks(options.schedule(data, args.batch_size), args.bulk, WARMUP + rounds))
    for number, values in CANDIDATES[schedule].items():
        print(schedule, number, file=sys.stderr)
        own, sampler = getattr(THRESHOLDS, number), NeighborSampler(args.fanouts, replace=number == "lanes")
        subjects: dict[int, TimedBulks] = {}
        for value in (own, *values):
            workspace = Workspace(device="cuda", kernel=schedule)
            workspace.on_device.thresholds = replace(THRESHOLDS, **{number: value})
            subjects[value] = TimedBulks(sampler, data.graph, workspace, seeds)
        costs = time_rounds({str(value): subject for value, subject in subjects.items()}, rounds)
        for value in values:
            cost, device_ratio = costs[str(value)], subjects[value].device_ratio(subjects[own], rounds)
            ratios = {"ratio": costs[str(own)].over(cost.ns), "device_ratio": device_ratio}
            yield {"number": number, "value": value, "own": own, "medges_s": 1e3 / cost.median, **ratios, "spread": cost.spread}
