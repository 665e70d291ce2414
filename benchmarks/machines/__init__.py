"""How many bytes do several machines with partitioned features send, and do they learn the same weights as one machine?

*Counts*: the cache processes of 2 and 4 machines run as threads of this process over two epochs, without a network. The columns are bytes:

* ``sent``: what they send, namely rows, ids, and a header of 8 bytes for each message.
* ``minimum``: the distinct rows of other machines that the plan reads in each window (a group of steps), each with its id; counted independently.
* ``optimum``: the least that any plan could send with a cache of this size, without headers. Such a plan knows both epochs from the start, may keep any
  rows from one window to the next, and does not need slots for the rows of the current window.
* ``unplanned``: what would be sent without a cache and without windows, if each step requested all rows that it lacks.
* ``samples``, if the ``topology`` is partitioned too: part of all of the above. It is an id for each node whose neighbours another machine samples, and
  in return a count, and the source and the position of each sampled edge.

A cache of ``share`` 0 has slots for the rows of other machines that two steps use; a larger cache has, in addition, slots for that share of all rows.

*Weights*: ``hoptrain fit`` trains two epochs on ``digits-knn``, in processes that communicate through gloo and count as machines by ``HOPTRAIN_MACHINE``.
The weights are compared with those of one machine that has as many ranks and all features. A run that has not ended within five minutes counts as hung.

*Wire*: torchrun starts ``hoptrain fit`` as 4 ranks on 1, 2 and 4 machines, with the batches of *counts*. The machines are network namespaces, each of which
sends at most ``--rate-mbit``. This needs root; other users get a message, and no such measurement.

* ``wire``: bytes that the network interfaces sent, with all headers.
* ``rows``: the part of ``wire`` that exceeds a run on as many machines that have all features each and send the same gradients.
* ``minimum``: bytes that the plan reads with this ``feature_cache``. Half of this small cache is for messages, so a window has only one or two steps.
* ``foretold_s``: predicted seconds of a step (``what_if_machines``), from the step of one machine and the counted bytes.
* ``step_s``: measured seconds of a step, the mean of the last epoch. The prediction holds only at a rate so low that the network limits the
  speed, not the cores, which all machines share.

*Memory*: ``hoptrain fit`` in such processes again, one rank on each machine, with separate files. It is measured only if ``--only`` names it, since the data
has to be large compared with batches and processes. Memory is PSS (a page counts once it was touched, divided among the processes that map it), the largest
median of five consecutive measurements.

* ``base``: memory of a machine's processes with hardly any data, without its files: the median of three runs, or one run with ``--quick``.
* ``beyond``: the most memory that a machine's processes hold, minus ``base``.
* ``share``: bytes of the machine's files: its own partition, and the files that all machines have.
* ``cache``: bytes of the option ``feature_cache``.

The summary has the worst of all runs: ``bytes_over_minimum`` and ``bytes_over_optimum`` (``sent`` over each), ``bytes_saved_by_cache`` (``unplanned`` over
``sent``, with the largest cache), ``wire_over_minimum`` (``rows`` over ``minimum``), ``step_s_error`` (relative error of ``foretold_s``),
``max_weight_difference``, ``memory_over_share`` (``beyond`` over ``share + cache``), and ``hung_cells``, the number of runs that hung or failed.
``seconds`` is the time of a whole run with its start. All machines share the cores of one computer, so this time is only a rough guide.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hoptrain.benchmarks.common import options
from hoptrain.benchmarks.common.harness import Result
from hoptrain.benchmarks.machines import memory, namespaces, training, wire
from hoptrain.benchmarks.machines.counts import EPOCHS, RANKS, Cluster
from hoptrain.engine import Dataset, InputError, load_dataset
from hoptrain.engine.arrays import Array
from hoptrain.engine.features.quantized import FORMATS, format_of, quantize
from hoptrain.engine.partition.folder import GRAPHS, write_partition
from hoptrain.engine.partition.methods import METHODS

_SCALE, _QUICK_SCALE = 0.01, 0.001
_WHAT = ("counts", "weights", "wire")
_HARDLY_ANY = 0.005  # scale of a small synthetic data set; all its nodes are seeds, so that 4 ranks have several windows of steps


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add = parser.add_argument
    add(
        "--graphs",
        nargs="+",
        default=["synthetic:products"],
        metavar="NAME",
        help="data sets by name or path (default: synthetic:products)",
    )
    add(
        "--scale",
        type=float,
        help=f"size of synthetic:NAME data sets relative to the original, in (0, 1] (default {_SCALE:g}, with --quick {_QUICK_SCALE:g})",
    )
    add("--root", type=Path, metavar="DIR", help="folder that holds data sets")
    add("--machines", type=int, nargs="+", default=[2, 4], metavar="P", help="2 or 4 (default both); 4 ranks are distributed over them")
    add(
        "--methods",
        nargs="+",
        choices=METHODS,
        default=["range", "stream"],
        help="methods of partitioning the nodes (default range stream)",
    )
    add("--features", nargs="+", choices=("as-stored", *FORMATS), default=["as-stored"], help="format of the features (default as-stored)")
    add(
        "--topologies",
        nargs="+",
        choices=GRAPHS,
        default=list(GRAPHS),
        help="replicated: each machine has the whole graph; partitioned: the graph is partitioned like the features (default both)",
    )
    add("--fanouts", type=int, nargs="+", default=[10, 10], metavar="N", help="neighbours per hop from the seeds outward (default 10 10)")
    add("--batch-size", type=int, default=16, metavar="B", help="seeds of a rank's mini-batch (default 16)")
    add("--shares", type=float, nargs="+", default=[0.0, 0.1], metavar="S", help="cached rows as a share of all rows (default 0 0.1)")
    add("--rate-mbit", type=int, default=1000, metavar="R", help="network rate limit of each machine in Mbit/s, for wire (default 1000)")
    add("--cache-mib", type=int, default=64, metavar="M", help="feature cache of each machine in MiB, for memory (default 64)")
    add("--only", nargs="+", choices=(*_WHAT, "memory"), default=list(_WHAT), help="which measurements to run (default all but memory)")


def run(args: argparse.Namespace) -> Result:
    """Count bytes and train, as the module's docstring describes."""
    if not set(args.machines) <= {2, 4}:
        raise InputError(f"machines are {args.machines}: {RANKS} ranks are distributed over 2 or 4 machines; give 2, 4 or both")
    if args.rate_mbit < 1:
        raise InputError(f"rate-mbit is {args.rate_mbit}: must be at least 1 Mbit/s; give 1 or more")
    if args.cache_mib < 1:
        raise InputError(f"cache-mib is {args.cache_mib}: must be at least 1 MiB; give 1 or more")
    records: list[dict[str, Any]] = []
    summary: dict[str, float] = {}
    graphs = [] if args.only == ["weights"] else [data for name in args.graphs for data in _in_formats(name, args)]
    if "counts" in args.only:
        records += [
            record
            for data in graphs
            for number in args.machines
            for method in args.methods
            for topology in args.topologies
            for record in _counted(data, number, method, topology, args)
        ]
        summary["bytes_over_minimum"] = max(record["sent"] / max(1, record["minimum"]) for record in records)
        summary["bytes_over_optimum"] = max(record["sent"] / max(1, record["optimum"]) for record in records)
        cached = [record for record in records if record["share"] == max(args.shares)]
        summary["bytes_saved_by_cache"] = min(record["unplanned"] / max(1, record["sent"]) for record in cached)
    machines, methods = ([2], args.methods[:1]) if args.quick else (args.machines, args.methods)
    ways = [(method, topology) for method in methods for topology in args.topologies]
    trained: list[dict[str, Any]] = []
    if "weights" in args.only:
        trained += training.cells(2 if args.quick else RANKS, machines, ways)
    if "wire" in args.only and (lacks := namespaces.lacking()):
        print(f"wire: skipped, since network namespaces cannot be created: {lacks}", file=sys.stderr)
    elif "wire" in args.only:
        found = [record for data in graphs for record in wire.cells(data, machines, ways, args.shares, args)]
        summary["step_s_error"] = max((abs(r["error"]) for r in found if "error" in r), default=0.0)
        summary["wire_over_minimum"] = max((r["rows"] / max(1, r["minimum"]) for r in found if r["rows"] is not None), default=0.0)
        trained += found
    if "memory" in args.only:
        pairs = [(_for_training_alone(data, data.split("train")), _hardly_any(data, args)) for data in graphs]
        found = [record for pair in pairs for record in memory.cells(*pair, machines, ways, args)]
        summary["memory_over_share"] = max((r["memory_over_share"] for r in found if r["outcome"] == "ended"), default=0.0)
        trained += found
    if trained:
        summary["max_weight_difference"] = max(
            (r["weight_difference"] for r in trained if r.get("weight_difference") is not None), default=0.0
        )
        summary["hung_cells"] = sum(r["outcome"] != "ended" for r in trained)
    return Result(records=records + trained, summary=summary, seeds=[options.SEED])


def _in_formats(name: str, args: argparse.Namespace) -> Iterator[Dataset]:
    """Yield the data set with its features in each format of ``--features``.

    Raises:
        InputError: the data set has no features that can be quantised.
    """
    data = options.load(name, args, scale=_SCALE, quick_scale=_QUICK_SCALE)
    for features in args.features:
        if features != "as-stored" and not isinstance(data.x, np.ndarray):
            raise InputError(
                f"features are {features}, but {name} has no features that can be quantised; leave this format out, or name another data set"
            )
        yield data if features == "as-stored" else replace(data, x=quantize(np.asarray(data.x), features, what=name), validate=False)


def _hardly_any(data: Dataset, args: argparse.Namespace) -> Dataset:
    """Return a very small data set from the same generator. All of its nodes are seeds.

    Raises:
        InputError: the data set is not synthetic, or its features are converted.
    """
    if not data.name.startswith("synthetic:"):
        raise InputError(
            f"graphs has {data.name}: memory is compared with a small data set of the same kind; name a synthetic:NAME data set"
        )
    if any(features != "as-stored" for features in args.features):
        raise InputError(f"features are {args.features}: memory is measured with the stored features; leave --features out")
    small = load_dataset(data.name, root=args.root, scale=_HARDLY_ANY)
    return _for_training_alone(small, np.arange(small.graph.num_nodes))


def _for_training_alone(data: Dataset, seeds: Array) -> Dataset:
    """Return the data set with only the training split. Evaluation would need memory for a whole layer's outputs."""
    return replace(data, splits={"train": seeds}, validate=False)


def _counted(data: Dataset, number: int, method: str, topology: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Count the rows that machines send each other, and return a record for each cache size."""
    print(f"{data.name}: {number} machines, partitioned by {method}, graph {topology}: counting bytes", file=sys.stderr)
    records = []
    x: Any = data.x
    with tempfile.TemporaryDirectory() as folder:
        write_partition(data, Path(folder) / "parts", number, method, graph=topology)
        cluster = Cluster(data, number, Path(folder) / "parts", args)
        for share in args.shares:
            slots = cluster.slots(share)
            filled = cluster.filled(slots)
            records.append(
                {
                    "graph": data.name,
                    "features": format_of(x),
                    "topology": topology,
                    "machines": number,
                    "parts": method,
                    "cut": cluster.cut,
                    "share": share,
                }
                | {
                    "steps": EPOCHS * cluster.num_steps,
                    "windows": EPOCHS * cluster.num_windows,
                    "sampled_windows": EPOCHS * cluster.num_sampled,
                    "rounds": filled[0].num_rounds,
                }
                | {"samples": cluster.samples, "sent": sum(each.num_sent for each in filled), "minimum": cluster.planned(slots)}
                | {"optimum": cluster.optimum(slots), "unplanned": cluster.unplanned()}
            )
    return records
