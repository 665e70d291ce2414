"""What does a bulk of mini-batches on a CUDA device ask of the host: launches, copies, synchronisations, allocations, and time?

A bulk is several mini-batches that the GPU samples together, with one of two schedules: "sample" processes requests one by one, "transit" processes all
requests for a node together. No GPU is needed: stubs replace the calls of the CUDA driver
(``hoptrain.benchmarks.common.stub_driver``), so times are those of Python alone. Each time is the minimum over the rounds, on one thread. Counts are those
of a bulk after the warm-up. The columns:

* ``start_ms``: queueing a bulk.
* ``finish_ms``: collecting the results of a bulk once the device is done.
* ``batch_ms``: creating one mini-batch of a bulk.
* ``feed_*``: all that the training process does per mini-batch (``DeviceFeed``): its share of the bulk, copying its arrays, gathering its rows and
  returning it. The time that torch's allocator and copies take on a device is not included.

With ``--device-model`` nothing is timed. The benchmark counts the bytes that the bulks of an epoch move on the given GPU, for each kernel and for the
epoch, and predicts the time from them (``hoptrain.benchmarks.traffic``). With ``--cache-shares`` it prints the hit rate of a ``gpu_cache`` that holds the
given fraction of the feature rows, in the epoch whose reads filled it and in the next one.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from hoptrain.benchmarks.common import options
from hoptrain.benchmarks.common.harness import Record, Result
from hoptrain.benchmarks.common.options import FANOUTS, QUICK_SCALE, SEED, num_rounds
from hoptrain.benchmarks.common.stub_driver import StubStream, feeding, giving_sizes, stubbed
from hoptrain.benchmarks.traffic.epoch import predict_epoch
from hoptrain.benchmarks.traffic.hits import hit_rates
from hoptrain.benchmarks.traffic.predict import DEVICES, device_named
from hoptrain.engine import Dataset, InputError, Schedule
from hoptrain.engine.device import is_simulated
from hoptrain.samplers import NeighborSampler, Workspace
from hoptrain.samplers.cuda.cost_model import KERNELS, SCHEDULES
from hoptrain.samplers.cuda.drivers import driver_for
from hoptrain.samplers.loader.device_feed import DeviceFeed
from hoptrain.samplers.loader.gather import split_columns
from hoptrain.samplers.loader.task import SampleTask

COUNTED = ("replays", "launches", "host_to_device", "device_to_host", "synchronisations", "allocations")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add = parser.add_argument
    add("--bulks", type=int, nargs="+", metavar="K", help="mini-batches per bulk (default 1 8 64 193, with --quick 1 8)")
    add("--batch-size", type=int, default=1024, metavar="B", help="seeds of a mini-batch (default 1024)")
    add("--fanouts", type=int, nargs="+", default=list(FANOUTS[1]), metavar="N", help="neighbours per hop (default 15 10 5)")
    add("--graph", default="synthetic:products", metavar="NAME", help="data set by name or path (default: synthetic products)")
    add(
        "--scale",
        type=float,
        help="size of synthetic:NAME data sets relative to the original, in (0, 1] (default 0.02; 1 with --device-model)",
    )
    add("--root", type=Path, metavar="DIR", help="folder that holds data sets")
    add("--rounds", type=int, metavar="R", help="timed rounds, after the warm-up (default 7, with --quick 3)")
    add("--device-model", metavar="GPU", help=f"count the bytes that an epoch moves, and predict its time on one of: {', '.join(DEVICES)}")
    add(
        "--cache-shares",
        type=float,
        nargs="+",
        metavar="SHARE",
        help="print the hit rate of a gpu_cache that holds these fractions of the feature rows, in (0, 1]",
    )
    add("--bandwidth", type=float, metavar="GB/S", help="with --device-model: the GPU's memory bandwidth (default: the vendor's figure)")


def run(args: argparse.Namespace) -> Result:
    """Count and time bulks of ``NeighborSampler`` with both schedules.

    Raises:
        InputError: the CUDA simulator is on, so there is no driver to replace; the GPU is unknown; options exclude each other; a bulk has no mini-batch.
    """
    if args.cache_shares is not None:
        return _hits(args)
    if is_simulated():
        raise InputError("NUMBA_ENABLE_CUDASIM is on: the CUDA simulator has no driver to replace with stubs; unset the variable")
    bulks = args.bulks or ([1, 8] if args.quick else [1, 8, 64, 193])
    if min(bulks) < 1:
        raise InputError(f"--bulks has {min(bulks)}: a bulk has 1 or more mini-batches; give 1 or more")
    if args.device_model is not None:
        return _predicted(args, bulks)
    if args.bandwidth is not None:
        raise InputError(
            f"--bandwidth {args.bandwidth:g} without --device-model: it is used only for predictions; leave it out, or add --device-model"
        )
    data = options.load(args.graph, args, scale=QUICK_SCALE)
    cases = product(SCHEDULES, (False, True), bulks)
    with stubbed() as counts:
        records = [
            {"kernel": kernel, "captured": captured, "bulk": bulk, **measure(data, (kernel, captured), bulk, args, counts)}
            for kernel, captured, bulk in cases
        ]
    return Result(records=records, summary={f"max_{name}": max(float(row[name]) for row in records) for name in COUNTED}, seeds=[SEED])


def _hits(args: argparse.Namespace) -> Result:
    """Return the hit rates of ``gpu_cache`` in two epochs."""
    for name in ("device_model", "bandwidth", "rounds", "bulks"):
        if (value := getattr(args, name)) is not None:
            raise InputError(
                f"--{name.replace('_', '-')} {value} with --cache-shares: that option only counts reads; leave one of them out"
            )
    data = options.load(args.graph, args, scale=QUICK_SCALE)
    records = list(hit_rates(data, NeighborSampler(args.fanouts), options.schedule(data, args.batch_size), args.cache_shares))
    return Result(records=records, summary={"max_hit_rate": max(row["counted"] for row in records)}, seeds=[SEED])


def _predicted(args: argparse.Namespace, bulks: Sequence[int]) -> Result:
    """Return the bytes of an epoch's bulks and the time predicted from them."""
    if args.rounds is not None:
        raise InputError(f"--rounds {args.rounds} with --device-model: that option times nothing; leave one of them out")
    device, data = device_named(args.device_model, args.bandwidth), options.load(args.graph, args)
    case = data, NeighborSampler(args.fanouts), options.schedule(data, args.batch_size), KERNELS
    records = [row for bulk in bulks for row in predict_epoch(*case, bulk, device)]
    epochs = [row for row in records if row["what"] == "epoch"]
    names = "ms", "careful_ms", "asked_bytes_edge", "moved_bytes_edge"
    return Result(records=records, summary={f"min_{name}": min(row[name] for row in epochs) for name in names}, seeds=[SEED])


def measure(data: Dataset, way: tuple[str, bool], bulk: int, args: argparse.Namespace, counts: Counter[str]) -> Record:
    """Return the counts and the host's milliseconds for one bulk, and per mini-batch of a feed.

    ``way`` is the schedule's name, and whether its kernels are captured as a CUDA graph.
    """
    sampler, seeds = NeighborSampler(args.fanouts), list(_seeds(data.graph.num_nodes, args.batch_size, bulk))

    def workspace() -> Workspace:
        made = Workspace(device="cuda", kernel=way[0], placement="device", gpu=0, cuda_graphs=way[1])
        made._stream = StubStream(counts)
        return made

    with giving_sizes(_sizes(data, sampler, seeds[:4]), counts), feeding(counts):
        driver: Any = driver_for(data.graph, sampler, workspace())
        start = partial(driver.start, seeds, seed=SEED, epoch=0, first_batch=0)
        of_bulk = _of_bulk(start, bulk, num_rounds(args), counts)
        return {**of_bulk, **_of_feed(data, sampler, workspace(), seeds, num_rounds(args), counts)}


def _of_bulk(start: Callable[[], Any], bulk: int, rounds: int, counts: Counter[str]) -> Record:
    for _ in range(2):  # warm-up: the first bulk allocates the buffers and compiles the kernels
        start()()
    times = []
    for _ in range(rounds):
        counts.clear()
        begin = time.thread_time()
        finish = start()
        queued = time.thread_time()
        batches = finish()
        finished = time.thread_time()
        list(batches)
        times.append((queued - begin, finished - queued, (time.thread_time() - finished) / bulk))
    start_ms, finish_ms, batch_ms = (1e3 * min(some) for some in zip(*times, strict=True))
    return {name: counts[name] for name in COUNTED} | {"start_ms": start_ms, "finish_ms": finish_ms, "batch_ms": batch_ms}


def _of_feed(data: Dataset, sampler: NeighborSampler, workspace: Workspace, seeds: list[Any], rounds: int, counts: Counter[str]) -> Record:
    """Return the counts and the host's milliseconds per mini-batch of a ``DeviceFeed``. An epoch has two bulks, one for each of the feed's buffers."""
    bulk = len(seeds)
    schedule = Schedule(items=np.concatenate(seeds * 2), batch_size=len(seeds[0]), shuffle=False, seed=SEED)
    task = SampleTask(graph=data.graph, stores=split_columns(data.stores())[0], sampler=sampler, schedule=schedule, workspace=workspace)
    feed: DeviceFeed[Any] = DeviceFeed(task, bulk, placement="device")
    times = []
    for _ in range(2 + rounds):  # two warm-up rounds allocate the buffers, compile kernels and capture CUDA graphs
        counts.clear()
        begin = time.thread_time()
        for _ in feed.run(0, range(2 * bulk)):
            pass
        times.append((time.thread_time() - begin) / (2 * bulk))
    per_batch = {f"feed_{name}": counts[name] / (2 * bulk) for name in ("launches", "allocations")}
    return per_batch | {"feed_ms": 1e3 * min(times[2:])}


def _seeds(num_nodes: int, number: int, bulk: int) -> Iterator[Any]:
    random = np.random.default_rng(SEED)
    return (random.choice(num_nodes, number, replace=False) for _ in range(bulk))


def _sizes(data: Dataset, sampler: NeighborSampler, seeds: list[Any]) -> dict[str, list[int]]:
    """Return the node and edge counts of some batches sampled on the CPU, by the names of the device's counters."""
    found: dict[str, list[int]] = {}
    for some in seeds:
        batch = sampler.sample(data.graph, some)
        for hop, block in enumerate(batch.blocks[::-1]):
            found.setdefault(f"nodes{hop}", []).append(block.num_dst)
            found.setdefault(f"edges{hop}", []).append(block.num_edges)
        found.setdefault(f"nodes{len(batch.blocks)}", []).append(len(batch.node_ids))
    return found
