"""What does a script written for PyG's or DGL's loaders gain from changing one import line to hoptrain?

For each graph, fanouts and number of workers, the loaders of the original and of the changed import line are timed in interleaved rounds. The column
``what`` says what is timed:

``loader``
    an epoch of the loader alone, reading each feature row.
``script``
    an epoch of training GraphSAGE with 32 hidden channels, built from the library's own layers.

Heterogeneous graphs are measured with ``--graphs typed:mag``, a synthetic ogbn-mag (at scale 0.05 unless ``--scale`` is given), or with
``--graphs hetero_acm`` and the folder of that file as ``--root``. Then the loaders are those for heterogeneous graphs, the script has a layer for each
relation, and node types without features get zeros.

Both loaders get the same arguments. An epoch has ``--batches`` mini-batches, and workers are persistent. ``ratio`` is the original's time over
hoptrain's, formed within each round. The summary has the smallest ratio of the loaders alone (``min_ratio_pyg``, ``min_ratio_dgl``) and of the scripts
(``min_script_ratio_*``).
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from hoptrain.benchmarks.baselines.installed import call
from hoptrain.benchmarks.cases.hetero import DEFAULT_SCALE, SYNTHETIC_MAG, synthetic_mag
from hoptrain.benchmarks.common import options
from hoptrain.benchmarks.common.harness import HOPTRAIN, Record, Result
from hoptrain.benchmarks.common.rounds import time_rounds
from hoptrain.engine import Dataset, HeteroDataset, InputError

LIBRARIES = ("pyg", "dgl")
LOADER, SCRIPT = "loader", "script"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    options.add_graph_arguments(parser, LIBRARIES, scale=0.2)
    options.add_fanouts(parser)
    add = parser.add_argument
    add("--batch-size", type=int, default=1024, metavar="B", help="seeds of a mini-batch (default 1024)")
    add("--workers", type=int, nargs="+", default=[0, 2], metavar="W", help="worker processes of each loader (default 0 2)")
    add("--batches", type=int, metavar="N", help="mini-batches per epoch (default 16, with --quick 2)")


def run(args: argparse.Namespace) -> Result:
    """Time each library's loader and hoptrain's replacement for it on each graph."""
    options.warn_if_busy()
    records: list[Record] = []
    for name in args.graphs:
        data = _load(name, args)
        for baseline in args.baselines:
            try:
                records += _measure_library(baseline, data, args)
            except InputError as error:
                print(f"skipped {baseline}: {error}")
    return Result(records=records, summary=options.summarize([_answer(record) for record in records]), seeds=[options.SEED])


def _load(name: str, args: argparse.Namespace) -> Dataset | HeteroDataset:
    """Open a homogeneous or heterogeneous data set."""
    if name == SYNTHETIC_MAG:
        return synthetic_mag(DEFAULT_SCALE if args.scale is None else args.scale)
    return options.load_either(name, args, scale=0.2)


def _measure_library(baseline: str, data: Dataset | HeteroDataset, args: argparse.Namespace) -> Iterator[Record]:
    """Yield the records of one library's loaders on a graph."""
    batches = (2 if args.quick else 16) if args.batches is None else args.batches
    seeds = options.schedule(data, batches * args.batch_size).batch_items(0, 0)
    opens = ("hetero", f"open_{baseline}") if isinstance(data, HeteroDataset) else (baseline, "open_pair")
    for fanouts in args.fanouts or options.FANOUTS:
        pair = call(*opens, data, fanouts, seeds, args.batch_size)
        for workers in sorted(set(args.workers)):
            facts = {
                "library": baseline,
                "graph": data.name,
                "fanouts": ",".join(map(str, fanouts)),
                "batch": args.batch_size,
                "workers": workers,
            }
            print(*facts.values(), file=sys.stderr)
            yield from (facts | row for row in _measure_pair(pair, workers, options.num_rounds(args)))


def _measure_pair(pair: Any, workers: int, rounds: int) -> Iterator[dict[str, Any]]:
    """Yield the records of the library's loader and of hoptrain's replacement, with ``workers`` workers."""
    loaders = {system: open_one(workers) for system, open_one in pair.loaders.items()}
    subjects: dict[str, Callable[[int], int]] = {}
    for system, loader in loaders.items():
        subjects[f"{LOADER} {system}"] = partial(_consume, pair.touch, loader)
        subjects[f"{SCRIPT} {system}"] = partial(_consume, pair.trained(), loader)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # hides deprecation warnings of the baselines
            costs = time_rounds(subjects, rounds)
    finally:
        for loader in loaders.values():
            call("lines", "close", loader)
    for subject, cost in costs.items():
        what, system = subject.split(" ", 1)
        ratio = None if system == HOPTRAIN else cost.over(costs[f"{what} {HOPTRAIN}"].ns)
        yield {"what": what, "system": system, "ms_batch": 1e-6 * cost.median, "spread": cost.spread, "ratio": ratio}


def _consume(use: Callable[[Any], None], loader: Any, _call: int) -> int:
    """Call ``use`` with each batch of one epoch, and return the number of batches."""
    number = 0
    for batch in loader:
        use(batch)
        number += 1
    return number


def _answer(record: Record) -> dict[str, float]:
    """Return one record's part of the summary."""
    if record["ratio"] is None:
        return {}
    return {f"min_{'' if record['what'] == LOADER else 'script_'}ratio_{record['library']}": record["ratio"]}
