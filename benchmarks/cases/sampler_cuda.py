"""The part of ``hoptrain bench sampler`` for CUDA devices: compares hoptrain's schedules on bulks of mini-batches.

A bulk is several mini-batches that the GPU samples together. The schedule "sample" processes requests one by one, "transit" processes all requests for a
node together, and "auto" takes the cost model's choice for each hop.

For each graph, fanouts and mode these are timed in interleaved rounds (``what`` in the records):

``bulk``
    one bulk with each schedule. The graph is in device memory, for
    the largest bulk also in pinned host memory. The time runs from NumPy seeds on the host until the sizes of the result are back on the host, when
    all kernels have ended. ``host_s`` and ``device_s`` are the host's and the device's part of ``seconds`` (``hoptrain.benchmarks.cases.bulk_times``).
    ``floor_share`` is the time that the memory needs at least, at the speed of a copy, over the measured time. The minimum is each distinct 32-byte
    sector of ``indices`` that the bulk reads, one sector for each destination's offsets, and 12 bytes of output per edge. It does not include the
    relabelling table, so the ratio is always below 1. ``predicted_s`` is a prediction of ``device_s`` from the bytes of the launches on this device
    (``hoptrain.benchmarks.traffic``); ``careful_s`` assumes half of the memory's bandwidth for random accesses.
``epoch``
    all mini-batches of the train split, in bulks of the largest size.
``gather``
    the feature rows of a mini-batch's nodes, from device memory and from pinned host memory, with Numba's kernels and, if CuPy is installed, with those
    in CUDA C++. ``copy_share`` is the bandwidth relative to a plain copy. Within device memory bytes read and bytes written both count; from pinned
    memory only the bytes that cross the bus count.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch  # so that device memory comes from torch's allocator, as in training, and results name the GPU
from numba import cuda

from hoptrain.benchmarks.cases.bulk_times import TimedBulks
from hoptrain.benchmarks.common.floor import OUTPUT_BYTES, count_lines
from hoptrain.benchmarks.common.harness import Record, Result, write_results
from hoptrain.benchmarks.common.options import SEED, load, num_rounds, schedule, summarize
from hoptrain.benchmarks.common.rounds import WARMUP, Cost, time_rounds
from hoptrain.benchmarks.traffic.bulk import count_bytes
from hoptrain.benchmarks.traffic.facts import facts_of
from hoptrain.benchmarks.traffic.predict import Device, predict, this_device
from hoptrain.benchmarks.traffic.record import recorded
from hoptrain.engine import Dataset, InputError, Schedule
from hoptrain.engine.arrays import Array
from hoptrain.engine.device import cuda_status
from hoptrain.engine.features.quantized import codes_of
from hoptrain.engine.gpu_memory.device_store import as_words, has_native, native_gather, numba_gather, to_device
from hoptrain.engine.gpu_memory.device_stream import DeviceStream
from hoptrain.kernels.cuda.launch import Launch
from hoptrain.kernels.cuda.thresholds import THRESHOLDS
from hoptrain.samplers import MiniBatch, NeighborSampler, Workspace
from hoptrain.samplers.cuda.cost_model import KERNELS

FANOUTS = ((25, 10), (15, 10, 5), (10, 10, 10))
RESULTS = Path(__file__).parents[1] / "results"
SECTOR = 32
"""Bytes of a sector, the smallest unit that device memory transfers."""
COPY_BYTES = 1 << 30
MEMORIES = ("device", "pinned")
_PASSES = {"device": 2, "pinned": 1}
"""Number of transfers for which a copied byte counts, by the memory that it is copied from: a read and a write in device memory, or one over the bus."""


def measure(args: argparse.Namespace) -> Result:
    """Run all cases. In a checkout the results of a full run are also saved as ``benchmarks/results/GPU_sampler.json``.

    Raises:
        InputError: CUDA is not available.
    """
    reason = cuda_status()
    if reason is not None:
        raise InputError(f"--device cuda: {reason}; run it on a machine with a GPU, or leave --device out")
    rounds, device = num_rounds(args), this_device(args.bandwidth)
    bulks = sorted(set(args.bulks or ((1, 4) if args.quick else (1, 4, 16, 64, 256))))
    records: list[dict[str, Any]] = []
    for name in args.graphs:
        data = load(name, args)
        for fanouts, batch_size, mode in product(args.fanouts or FANOUTS, args.batch_size, args.modes):
            facts = {"graph": data.name, "fanouts": ",".join(map(str, fanouts)), "batch": batch_size, "mode": mode}
            print(*facts.values(), file=sys.stderr)
            sampler = NeighborSampler(fanouts, replace=args.replace, expand=mode)
            records += [facts | row for row in _measure_case(data, sampler, schedule(data, batch_size), bulks, rounds, device)]
    result = Result(records=records, summary=summarize([_answer(record) for record in records]), seeds=[SEED])
    if RESULTS.is_dir() and not args.quick:
        _keep(result)
    return result


def _measure_case(
    data: Dataset, sampler: NeighborSampler, schedule: Schedule, bulks: Sequence[int], rounds: int, device: Device
) -> Iterator[dict[str, Any]]:
    """Yield the records of one graph, fanouts, batch size and mode."""
    spaces = {(kernel, "device"): Workspace(device="cuda", kernel=kernel, placement="device") for kernel in KERNELS}
    spaces["auto", "pinned"] = Workspace(device="cuda", placement="pinned")
    auto, stream = partial(sampler.sample_bulk, data.graph, workspace=spaces["auto", "device"]), spaces["auto", "device"].stream
    cases = [(kernel, memory, bulk) for bulk in bulks for kernel, memory in spaces if memory == "device" or bulk == bulks[-1]]
    seeds = {bulk: list(take_bulks(schedule, bulk, WARMUP + rounds)) for bulk in bulks}
    epoch = [schedule.batch_items(0, step) for step in range(schedule.num_steps)]
    timed = {_label(*case): TimedBulks(sampler, data.graph, spaces[case[:2]], seeds[case[2]]) for case in cases}
    copies = {_copied(memory): _copy(stream, memory) for memory in MEMORIES}
    gathers = {} if data.x is None else _gathers(stream, codes_of(data.x), sampler.sample(data.graph, epoch[0]).node_ids)
    of_gathers = {_gathered(*way): gather for way, gather in gathers.items()}
    costs = time_rounds({**timed, "epoch": partial(_sample_epoch, auto, epoch, bulks[-1]), **copies, **of_gathers}, rounds)
    touched = {bulk: _bytes_per_edge(data, sampler, seeds[bulk][0]) for bulk in bulks}
    for kernel, memory, bulk in cases:
        cost = costs[_label(kernel, memory, bulk)]
        yield (
            {"what": "bulk", "kernel": kernel, "memory": memory, "bulk": bulk}
            | _speed(cost, bulk)
            | {
                "ratio": costs[_label("sample", "device", bulk)].over(cost.ns),
                "floor_share": 1 / cost.over(costs[_copied("device")].ns * touched[bulk]),
            }
            | timed[_label(kernel, memory, bulk)].parts(rounds)
            | (_predicted(data, sampler, seeds[bulk][0], kernel, device) if memory == "device" else {})
        )
    yield {"what": "epoch", "kernel": "auto", "memory": "device", "bulk": bulks[-1]} | _speed(costs["epoch"], len(epoch))
    for memory, by in gathers:
        gather, copy = costs[_gathered(memory, by)], costs[_copied(memory)]
        yield {"what": "gather", "memory": memory, "by": by, "gb_s": 1 / gather.median, "copy_share": 1 / gather.over(copy.ns)}


def _predicted(data: Dataset, sampler: NeighborSampler, seeds: Sequence[Array], kernel: str, device: Device) -> dict[str, float]:
    """Return two predictions of the seconds of a bulk's launches, both from the bytes that the launches move."""
    workspace = Workspace(device="cuda", kernel=kernel, placement="device", cuda_graphs=False)
    sample = partial(sampler.sample_bulk, data.graph, seeds, workspace=workspace)
    sample()
    with recorded() as launches:
        facts = facts_of(data.graph, sample())
    found = predict(count_bytes(launches, facts, workspace.on_device.driver), device)
    return {"predicted_s": found.seconds, "careful_s": found.careful_seconds}


def take_bulks(schedule: Schedule, batches: int, count: int) -> Iterator[list[Array]]:
    """Yield the seeds of ``count`` bulks of ``batches`` mini-batches each, epoch after epoch."""
    for call in range(count):
        numbers = range(call * batches, (call + 1) * batches)
        yield [schedule.batch_items(*divmod(number, schedule.num_steps)) for number in numbers]


def _label(kernel: str, memory: str, bulk: int) -> str:
    return f"{kernel} {memory} {bulk}"


def _copied(memory: str) -> str:
    return f"copy {memory}"


def _gathered(memory: str, by: str) -> str:
    return f"gather {memory} {by}"


def _sample_epoch(sample: Callable[..., list[MiniBatch]], epoch: Sequence[Array], bulk: int, call: int) -> int:
    edges = 0
    for first in range(0, len(epoch), bulk):
        batches = sample(epoch[first : first + bulk], epoch=call, first_batch=first)
        edges += sum(batch.num_edges for batch in batches)
    return edges


def _copy(stream: DeviceStream, memory: str) -> Callable[[int], int]:
    """Return a function that copies ``COPY_BYTES`` from ``memory`` to the device. It returns the bytes moved, counted as for a gather."""
    target = stream.empty((COPY_BYTES,), np.uint8)
    source = stream.empty((COPY_BYTES,), np.uint8) if memory == "device" else cuda.pinned_array(COPY_BYTES, np.uint8)

    def copy(_: int) -> int:
        target.copy_to_device(source, stream=stream.numba)
        stream.synchronize()
        return _PASSES[memory] * COPY_BYTES

    return copy


def _gathers(stream: DeviceStream, features: Array, ids: Array) -> dict[tuple[str, str], Callable[[int], int]]:
    """Return functions that gather the rows ``ids``, keyed by the memory that holds the features and by the kernels' language."""
    found: dict[tuple[str, str], Callable[[int], int]] = {}
    device_ids, rows = to_device(ids, "device", stream), stream.tensor((len(ids), *features.shape[1:]), features.dtype)
    launch = Launch(stream=stream.numba, thresholds=THRESHOLDS, num_batches=1)
    for memory in MEMORIES:
        source = (to_device(as_words(features), memory, stream),)
        ways = {"Numba": numba_gather(source, stream)}
        if has_native():
            ways["CUDA C++"] = native_gather(source, memory, stream)
        for by, copy in ways.items():
            found[memory, by] = partial(_gather, stream, partial(copy, launch, device_ids, rows), _PASSES[memory] * rows.nbytes)
    return found


def _gather(stream: DeviceStream, copy: Callable[[], None], num_bytes: int, _: int) -> int:
    copy()
    stream.synchronize()
    return num_bytes


def _bytes_per_edge(data: Dataset, sampler: NeighborSampler, seeds: Sequence[Array]) -> float:
    """Return the minimum bytes per edge that a bulk must transfer, counted in mini-batches sampled on the CPU, which are identical."""
    batches = sampler.sample_bulk(data.graph, seeds)
    blocks = [block for batch in batches for block in (batch.blocks[:1] if batch.nested else batch.blocks)]
    sectors = count_lines(data.graph.indices, np.concatenate([block.edge_ids for block in blocks]), SECTOR)
    sectors += sum(block.num_dst for block in blocks)
    return SECTOR * sectors / sum(batch.num_edges for batch in batches) + OUTPUT_BYTES


def _speed(cost: Cost, batches: int) -> dict[str, float]:
    return {"medges_s": 1e3 / cost.median, "batches_s": batches / cost.seconds, "seconds": cost.seconds, "spread": cost.spread}


def _answer(record: Record) -> dict[str, float]:
    """Return one record's part of the summary."""
    if record["what"] == "gather":
        return {f"min_gather_copy_share_{record['memory']}": record["copy_share"]}
    if record["what"] == "epoch":
        return {f"max_epoch_s_{record['graph'].removeprefix('synthetic:')}": record["seconds"]}
    if record["memory"] == "pinned":
        return {"max_medges_s_pinned": record["medges_s"]}
    key = record["kernel"]
    host_share = record["host_s"] / record["seconds"]
    return {f"max_medges_s_{key}": record["medges_s"], f"max_floor_share_{key}": record["floor_share"], f"max_host_share_{key}": host_share}


def _keep(result: Result) -> None:
    """Save the result in ``benchmarks/results/``, as ``GPU_sampler.json`` with the GPU's name for ``GPU``."""
    gpu = re.sub(r"\W+", "-", torch.cuda.get_device_name().lower())
    with tempfile.TemporaryDirectory(dir=RESULTS) as folder:
        path = write_results(Path(folder), "sampler", result, quick=False, command=shlex.join(["hoptrain", *sys.argv[1:]]))
        kept = path.replace(RESULTS / f"{gpu}_sampler.json")
    print(f"saved as {kept}")
