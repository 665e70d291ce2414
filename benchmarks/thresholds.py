"""Which block sizes and limits of ``hoptrain.kernels.cuda.thresholds`` are fastest on this GPU?

A schedule is how a hop is distributed over the GPU's threads: "sample" processes requests one by one, "transit" processes all requests for a node together.
Each schedule samples a bulk of mini-batches with one value of the table changed and the others unchanged, in rounds interleaved with those of the
unchanged table. ``ratio`` is the speedup from the change; ``device_ratio`` is the speedup of the GPU's part alone, without the host's work. The batches
are the same for all values.
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
"""Schedule -> name of a threshold -> values to try instead of the one in ``hoptrain.kernels.cuda.thresholds``.

The shared memory for staging and for the sums of a scan must fit in the 48 KiB that a launch may use. With ``cache_bytes`` 0, direct lookup tables are never
used. ``lanes`` are tried with replacement, since without it one thread draws all neighbours of a request.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
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
    add("--bulk", type=int, default=64, metavar="K", help="mini-batches that the GPU samples in one bulk (default 64)")
    add("--rounds", type=int, metavar="R", help="timed rounds, after the warm-up (default 7, with --quick 3)")
    add("--schedules", nargs="+", choices=list(CANDIDATES), default=list(CANDIDATES), help="sampling schedules to time (default: both)")


def run(args: argparse.Namespace) -> Result:
    """Time every candidate.

    Raises:
        InputError: CUDA is not available.
    """
    from hoptrain.engine.device import cuda_status  # imported here, since this import would slow down --help

    reason = cuda_status()
    if reason is not None:
        raise InputError(f"bench thresholds: {reason}; run it on a machine with a GPU")
    data = options.load(args.graph, args)
    facts = {"graph": data.name, "fanouts": ",".join(map(str, args.fanouts)), "batch": args.batch_size, "bulk": args.bulk}
    records = [facts | {"schedule": schedule} | row for schedule in args.schedules for row in _measure(data, schedule, args)]
    gains = {f"max_ratio_{row['schedule']}_{row['number']}": row["ratio"] for row in sorted(records, key=lambda row: row["ratio"])}
    return Result(records=records, summary=gains, seeds=[options.SEED])


def _measure(data: Any, schedule: str, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the records of a schedule.

    Each value of a threshold needs its own buffers, and few buffers fit in memory at once. They are freed before the next threshold is tried.
    """
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
