"""How many bytes do several machines with partitioned features send, and are their weights those of one machine?

*Counts*: the processes that fill the caches of 2 and 4 machines run as threads of this one, over two epochs. ``sent`` are their bytes: rows, ids, and 8 bytes
of a head for each message; ``minimum`` is counted apart from them: of each window the distinct rows that the plan reads and that lie elsewhere, each with its
id. ``optimum`` is the least that any plan could send with such a cache, heads left out: the cache may keep what it likes from one window to the next,
knows all of both epochs, and what a window needs beyond it is free. ``unplanned`` is what would be sent with no cache and no window, each step asking for
all that lies elsewhere. A cache of share 0 has slots for two steps' rows of others, and of another that share of all rows besides. Where the
``topology`` is partitioned too, all of these have ``samples``: an id for each node that another machine draws for. Back come a
count, and the source and position of each draw.

*Weights*: ``hoptrain fit`` on the digits, as real processes over gloo that count as machines by ``HOPTRAIN_MACHINE``, after two epochs, beside one machine
with as many ranks and the features whole. A cell that has not ended within five minutes is hung.

*Wire*: ``hoptrain fit`` on the same batches by torchrun, as 4 ranks on 1, 2 and 4 machines that are network namespaces, each of which sends at most
``--rate-mbit`` (root is needed; else it is said and left out). ``wire`` are the bytes that their interfaces have sent, all heads included; ``rows`` are
those beyond a run with the features whole on each of as many machines, which sends gradients alike; ``minimum`` is what the plan reads with this memory,
whose half is for messages: it is so small that a window has a step or two.

A step there should take ``foretold_s`` (``what_if_machines``), by that of one machine and the bytes that are counted; ``step_s`` is what it took, on average of
the last epoch, and ``step_s_error`` the worst of both. The rate has to be low enough for the network to decide: else the cores do, which all share.

*Memory*: ``hoptrain fit`` as such processes again, one rank on each machine with files of its own. ``beyond`` is the most that a machine's processes hold
beyond ``base``, what they do with hardly any data, that left out: the median of three runs, of which the first one compiles, with ``--quick`` one run (PSS: a
page of a file counts once it was touched, shared out among those that map it; the largest median of five looks in a row). ``share`` are the machine's files,
which are its part and what all have; ``cache`` is the option ``feature_cache``. It is left out where ``--only`` does not name it: the data has to be large
beside batches and processes.

``bytes_over_minimum``, ``bytes_over_optimum`` and ``bytes_saved_by_cache`` (``unplanned`` over what is sent with the largest share) are the worst of all
cells; ``wire_over_minimum`` is the worst of ``rows`` over ``minimum``, ``max_weight_difference`` the largest of any weight; ``hung_cells`` counts.
``memory_over_share`` is the largest of ``beyond`` over ``share`` and ``cache``.
``seconds`` are those of whole runs, their starts included, on machines that share the cores of one: no more than a hint.
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
    add("--machines", type=int, nargs="+", default=[2, 4], metavar="P", help="2 or 4 (default both); 4 ranks are shared out among them")
    add("--methods", nargs="+", choices=METHODS, default=["range", "stream"], help="how the parts are cut (default range stream)")
    add("--features", nargs="+", choices=("as-stored", *FORMATS), default=["as-stored"], help="their format (default as they are)")
    add(
        "--topologies",
        nargs="+",
        choices=GRAPHS,
        default=list(GRAPHS),
        help="replicated: each machine has the whole graph; partitioned: the graph is partitioned like the features (default both)",
    )
    add("--fanouts", type=int, nargs="+", default=[10, 10], metavar="N", help="neighbours per hop from the seeds outward (default 10 10)")
    add("--batch-size", type=int, default=16, metavar="B", help="seeds of a rank's mini-batch (default 16)")
    add("--shares", type=float, nargs="+", default=[0.0, 0.1], metavar="S", help="rows that a cache keeps over all (default 0 0.1)")
    add(
        "--rate-mbit", type=int, default=1000, metavar="R", help="megabits a second that a machine of the wire sends at most (default 1000)"
    )
    add("--cache-mib", type=int, default=64, metavar="M", help="mebibytes of each machine's cache, where memory is measured (default 64)")
    add("--only", nargs="+", choices=(*_WHAT, "memory"), default=list(_WHAT), help="some of the four things (default all but memory)")


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
        print(f"nothing goes over a wire: {lacks}", file=sys.stderr)
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
    """The data set with its features in each format.

    Raises:
        InputError: it has none of which that can be made.
    """
    data = options.load(name, args, scale=_SCALE, quick_scale=_QUICK_SCALE)
    for features in args.features:
        if features != "as-stored" and not isinstance(data.x, np.ndarray):
            raise InputError(
                f"features are {features}, and {name} has no numbers to make them from; leave it out, or name another data set"
            )
        yield data if features == "as-stored" else replace(data, x=quantize(np.asarray(data.x), features, what=name), validate=False)


def _hardly_any(data: Dataset, args: argparse.Namespace) -> Dataset:
    """Return a very small data set of the same kind, all of whose nodes are seeds.

    Raises:
        InputError: the data set is not synthetic, or its features are converted.
    """
    if not data.name.startswith("synthetic:"):
        raise InputError(f"graphs has {data.name}: memory is compared with a small data set of the same kind; name a synthetic: set")
    if any(features != "as-stored" for features in args.features):
        raise InputError(f"features are {args.features}: memory is measured with the stored features; leave --features out")
    small = load_dataset(data.name, root=args.root, scale=_HARDLY_ANY)
    return _for_training_alone(small, np.arange(small.graph.num_nodes))


def _for_training_alone(data: Dataset, seeds: Array) -> Dataset:
    """Without evaluation, whose memory is that of one layer's rows."""
    return replace(data, splits={"train": seeds}, validate=False)


def _counted(data: Dataset, number: int, method: str, topology: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    """A record for each share of the rows that a cache keeps."""
    print(f"{data.name}: {number} machines, parts by {method}, graph {topology}", file=sys.stderr)
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
