"""What does a bulk of mini-batches on a CUDA device ask of the host: launches, copies, synchronisations, allocations, and time?

No device is needed: the driver's calls are replaced by nothing (``hoptrain.benchmarks.common.stub_driver``), so the time is that of Python alone.
Counts are those of a bulk like the one before; ``start`` queues it, ``finish`` takes it over once the device is done, and ``batch`` makes a mini-batch when
it is asked for. Times are the least of the rounds, of one thread.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from hoptrain.benchmarks.common.harness import Record, Result
from hoptrain.benchmarks.common.options import FANOUTS, SEED, num_rounds
from hoptrain.benchmarks.common.stub_driver import StubStream, stubbed
from hoptrain.engine import Dataset, InputError, load_dataset
from hoptrain.engine.device import is_simulated
from hoptrain.samplers import NeighborSampler, Workspace
from hoptrain.samplers.cuda.cost_model import SCHEDULES
from hoptrain.samplers.cuda.drivers import driver_for

COUNTED = ("replays", "launches", "host_to_device", "device_to_host", "synchronisations", "allocations")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this benchmark."""
    add = parser.add_argument
    add("--bulks", type=int, nargs="+", metavar="K", help="mini-batches of a bulk (default 1 8 64 193, with --quick 1 8)")
    add("--batch-size", type=int, default=1024, metavar="B", help="seeds of a mini-batch (default 1024)")
    add("--rounds", type=int, metavar="R", help="rounds that count (default 7, with --quick 3)")


def run(args: argparse.Namespace) -> Result:
    """Count and time bulks of ``NeighborSampler([15, 10, 5])`` by both schedules.

    Raises:
        InputError: in the simulator, where there is no driver to replace.
    """
    if is_simulated():
        raise InputError("NUMBA_ENABLE_CUDASIM is on: the simulator has no driver to replace; leave the variable out")
    data = load_dataset("synthetic:products", scale=0.02)
    cases = product(SCHEDULES, (False, True), args.bulks or ([1, 8] if args.quick else [1, 8, 64, 193]))
    with stubbed() as counts:
        records = [
            {"kernel": kernel, "captured": captured, "bulk": bulk, **measure(data, (kernel, captured), bulk, args, counts)}
            for kernel, captured, bulk in cases
        ]
    return Result(records=records, summary={f"max_{name}": max(float(row[name]) for row in records) for name in COUNTED}, seeds=[SEED])


def measure(data: Dataset, way: tuple[str, bool], bulk: int, args: argparse.Namespace, counts: Counter[str]) -> Record:
    """Counts of one bulk, and milliseconds on the host, by a schedule, launch for launch or captured."""
    sampler, workspace = NeighborSampler(FANOUTS[1]), Workspace(device="cuda", kernel=way[0], placement="device", capture=way[1])
    workspace._stream = StubStream(counts)
    driver: Any = driver_for(data.graph, sampler, workspace)
    seeds = list(_seeds(data.graph.num_nodes, args.batch_size, bulk))
    sizes = _sizes(data, sampler, seeds[:4])
    driver._fetch_sizes = partial(_give_sizes, driver, sizes, counts)
    start: Callable[[], Any] = partial(driver.start, seeds, seed=SEED, epoch=0, first_batch=0)
    for _ in range(2):  # the first makes the buffers, and compiles
        start()()
    times = []
    for _ in range(num_rounds(args)):
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


def _seeds(num_vertices: int, number: int, bulk: int) -> Iterator[Any]:
    random = np.random.default_rng(SEED)
    return (random.choice(num_vertices, number, replace=False) for _ in range(bulk))


def _sizes(data: Dataset, sampler: NeighborSampler, seeds: list[Any]) -> dict[str, list[int]]:
    """What comes up in some batches on the CPU, by the names that the sizes have on the device."""
    found: dict[str, list[int]] = {}
    for some in seeds:
        batch = sampler.sample(data.graph, some)
        for hop, block in enumerate(batch.blocks[::-1]):
            found.setdefault(f"nodes{hop}", []).append(block.num_dst)
            found.setdefault(f"edges{hop}", []).append(block.num_edges)
        found.setdefault(f"nodes{len(batch.blocks)}", []).append(len(batch.node_ids))
    return found


def _give_sizes(driver: Any, sizes: dict[str, list[int]], counts: Counter[str]) -> None:
    """In place of the copy from the device."""
    counts["device_to_host"] += 1
    for name, values in sizes.items():
        driver.host_size(name)[:] = np.resize(values, driver.num_batches)
