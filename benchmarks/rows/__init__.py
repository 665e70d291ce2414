"""Is the first layer faster if it sums rows of the feature table itself, so that the batch's rows are not gathered (FuseSampleAgg, arXiv 2511.13645)?

Both ways compute the input of GraphSAGE's first product on the CPU: the means over the edges and the destinations' own rows. ``gathered_ms`` is the CPU time
of gathering the features of all input nodes and of summing these rows. ``table_ms`` is that of summing rows of the table by global ids. ``ratio`` is
the second over the first, the median over rounds in which both ways alternate. Before each, other data evict the features from the caches.
``gathered_mb`` and ``table_mb`` are the bytes that each way reads and writes, if no row is cached.

With ``--hidden``, ``step_gathered_ms`` and ``step_table_ms`` are CPU times of whole training steps, and ``step_ratio`` is their ratio. The layer reads
the table only where few edges share a row (``sums_in_table``), and gathers otherwise.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from hoptrain.benchmarks.common import options
from hoptrain.benchmarks.common.harness import Result
from hoptrain.benchmarks.rows.steps import step_times
from hoptrain.engine.arrays import Array
from hoptrain.samplers import MiniBatch, Workspace

CASES: Mapping[str, tuple[float, tuple[int, ...]]] = {
    "synthetic:products": (0.05, (15, 10, 5)),
    "synthetic:arxiv": (1.0, (10, 10, 10)),
    "synthetic:reddit": (0.05, (25, 10)),
}
"""Default data sets, with their scales and fanouts."""
_BATCHES = 4
_EVICTED_BYTES = 64 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add = parser.add_argument
    add("--graphs", nargs="+", choices=CASES, default=list(CASES), help="data sets (default: all)")
    add("--scale", type=float, help="size relative to the original, in (0, 1] (default 0.05, of arxiv 1, with --quick 0.02)")
    add("--root", type=Path, metavar="DIR", help="folder that holds data sets")
    add("--batch-size", type=int, default=1024, metavar="B", help="seeds of a mini-batch (default 1024)")
    add("--hidden", type=int, metavar="C", help="also time training steps with this number of hidden channels")
    add("--rounds", type=int, metavar="R", help="timed rounds, after the warm-up (default 7, with --quick 3)")
    options.add_threads(parser)


def run(args: argparse.Namespace) -> Result:
    """Time summing rows of the table and summing gathered rows, on each graph with each number of threads."""
    threads = sorted(set(args.threads))
    options.check_threads(threads)
    records = [row for name in args.graphs for row in _measure(name, threads, args)]
    ratios = {f"{options.key_of(row['graph'])}_ratio_{row['threads']}": row["ratio"] for row in records}
    return Result(records=records, summary=ratios, seeds=[options.SEED])


def _measure(name: str, threads: list[int], args: argparse.Namespace) -> list[dict[str, Any]]:
    import torch

    from hoptrain.samplers import NeighborSampler, SampleLoader

    scale, fanouts = CASES[name]
    data = options.load(name, args, scale=scale).in_memory()
    table = np.asarray(data.x)
    loader = SampleLoader(data, NeighborSampler(fanouts), batch_size=args.batch_size, seed=options.SEED)
    batches = [batch.to("cpu") for batch in islice(loader, _BATCHES)]
    before, records = torch.get_num_threads(), []
    for number in threads:
        torch.set_num_threads(number)
        gathered, from_table = _times([ways(batch, table, Workspace(number)) for batch in batches], options.num_rounds(args))
        times = {"gathered_ms": float(np.median(gathered)), "table_ms": float(np.median(from_table))}
        times["ratio"] = float(np.median(from_table / gathered))
        if args.hidden:
            steps = step_times(data, fanouts, args.batch_size, args.hidden, options.num_rounds(args))
            times |= {"step_gathered_ms": float(np.median(steps[0])), "step_table_ms": float(np.median(steps[1]))}
            times["step_ratio"] = float(np.median(steps[1] / steps[0]))
        records.append({"graph": name, "threads": number, **count(batches[0], table), **times})
    torch.set_num_threads(before)
    return records


def _times(subjects: Sequence[Sequence[Callable[[], Any]]], rounds: int) -> Array:
    """Return the milliseconds (ways, rounds) of CPU time of each way. Rounds go through the batches, and the ways change their order."""
    evicted, times = np.ones(_EVICTED_BYTES, np.uint8), np.empty((2, _BATCHES + rounds))
    for i in range(_BATCHES + rounds):  # every batch is a warm-up once
        for way in (0, 1) if i // _BATCHES % 2 else (1, 0):
            np.add(evicted, 1, out=evicted)
            begin = time.process_time()
            subjects[i % len(subjects)][way]()
            times[way, i] = 1e3 * (time.process_time() - begin)
    return times[:, _BATCHES:]


def count(batch: MiniBatch, table: Array) -> dict[str, float]:
    """Return the sizes of the first block, and the megabytes that each way reads and writes for it."""
    block, row = batch.blocks[0], table[:1].nbytes / 1e6
    summed = (block.num_edges + 3 * block.num_dst) * row  # rows of the edges and own rows, read; means and own rows, written
    sizes = {"sources": block.num_src, "destinations": block.num_dst, "edges": block.num_edges, "features": table.shape[1]}
    return {**sizes, "gathered_mb": summed + 2 * block.num_src * row, "table_mb": summed}


def ways(batch: MiniBatch, table: Array, workspace: Workspace) -> tuple[Callable[[], tuple[Array, Array]], ...]:
    """Return the functions of both ways, gathered and table. Each returns the means and the own rows (num_dst, C)."""
    from hoptrain.kernels.cpu.training.sums import sum_rows
    from hoptrain.samplers.loader.gather import gather_rows
    from hoptrain.trainers.models.sums.threads import share

    block, ids, width = batch.blocks[0], batch.node_ids.numpy(), table.shape[1]
    indptr, indices = block.indptr.numpy(), block.indices.numpy()
    x, joined = np.empty((block.num_src, width), table.dtype), np.empty((block.num_dst, 2 * width + 8), table.dtype)

    def add(rows: Array, ids: Array | None) -> None:
        share(partial(sum_rows, indptr, indices, None, rows, ids, True, True, joined), block.num_dst, block.num_edges * width)

    def gathered() -> tuple[Array, Array]:
        gather_rows(table, ids, x, workspace)
        add(x, None)
        return joined[:, :width], joined[:, width : 2 * width]

    def from_table() -> tuple[Array, Array]:
        add(table, ids)
        return joined[:, :width], joined[:, width : 2 * width]

    return gathered, from_table
