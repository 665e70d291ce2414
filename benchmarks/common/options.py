"""Options, data sets and rules for summaries that the benchmarks of sampling and loading share."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from hoptrain.benchmarks.common import harness
from hoptrain.engine import Dataset, HeteroDataset, InputError, Schedule, load_dataset
from hoptrain.engine.datasets.load import load_any
from hoptrain.engine.machine import allowed_cores

SEED = 0
GRAPHS = ("synthetic:reddit", "synthetic:products")
FANOUTS = ((25, 10), (15, 10, 5))
QUICK_SCALE = 0.02
_IDLE = 0.5
"""Largest load average, and largest number of cores used by other programs, with which a machine counts as idle."""
_TOLERANCE = 0.05
"""Largest relative difference in the number of sampled edges between two systems that is attributed to chance."""


def add_graph_arguments(
    parser: argparse.ArgumentParser, baselines: Sequence[str], scale: float = 1.0, quick_scale: float = QUICK_SCALE
) -> None:
    """Add the options that choose the graphs, the baselines and the number of rounds."""
    add = parser.add_argument
    add(
        "--graphs",
        nargs="+",
        default=list(GRAPHS),
        metavar="NAME",
        help="data sets by name or path (default: synthetic Reddit and products); seeds are taken from the train split",
    )
    add(
        "--scale",
        type=float,
        help=f"size of synthetic:NAME data sets relative to the original, in (0, 1] (default {scale:g}, with --quick {quick_scale:g})",
    )
    add("--root", type=Path, metavar="DIR", help="folder that holds data sets")
    add(
        "--baselines",
        nargs="*",
        choices=baselines,
        default=baselines,
        help="libraries to compare with (default: all that are installed; without a name: none)",
    )
    add("--rounds", type=int, metavar="R", help="timed rounds, after the warm-up (default 7, with --quick 3)")


def add_case_arguments(parser: argparse.ArgumentParser, baselines: Sequence[str]) -> None:
    """Add the options of ``add_graph_arguments``, and options that choose the mini-batches."""
    add_graph_arguments(parser, baselines)
    add_fanouts(parser)
    add = parser.add_argument
    add("--batch-size", type=int, nargs="+", default=[1024], metavar="B", help="seeds of a mini-batch (default 1024)")
    add(
        "--modes",
        nargs="+",
        choices=("all", "new"),
        default=["all", "new"],
        help="nodes that a hop expands: all nodes found so far, as in DGL, or only the new ones, as in PyG (default: both)",
    )


def add_fanouts(parser: argparse.ArgumentParser) -> None:
    """Add the option for the fanouts."""
    parser.add_argument(
        "--fanouts",
        type=_fanouts,
        action="append",
        metavar="N,N,...",
        help="neighbours per hop from the seeds outward; repeat the option to measure several (default: 25,10 and 15,10,5)",
    )


def add_threads(parser: argparse.ArgumentParser) -> None:
    """Add the option for the numbers of threads; see ``check_threads``."""
    parser.add_argument(
        "--threads", type=int, nargs="+", default=[1, 2][: allowed_cores()], metavar="T", help="threads of each system (default 1 2)"
    )


def _fanouts(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(number) for number in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of integers; write for example 25,10") from None


def check_threads(threads: Sequence[int]) -> None:
    """Check sorted numbers of threads.

    Raises:
        InputError: a number is below 1 or above the number of cores.
    """
    if not 1 <= threads[0] <= threads[-1] <= allowed_cores():
        raise InputError(
            f"threads are {list(threads)}: they must be in [1, {allowed_cores()}], the number of usable cores; correct --threads"
        )


def warn_if_busy() -> None:
    """Print a warning if other programs use the cores of the machine."""
    found = harness.load()
    if max(found.values()) > _IDLE:
        print(
            f"other programs use {found['busy_cores']:.1f} cores of this machine, and its load average is {found['load_average']:.1f}: "
            "results with several threads will be unreliable; run again when it is idle"
        )


def num_rounds(args: argparse.Namespace) -> int:
    """Return the number of timed rounds."""
    rounds: int = (3 if args.quick else 7) if args.rounds is None else args.rounds
    return rounds


def load(name: str, args: argparse.Namespace, *, scale: float = 1.0, quick_scale: float = QUICK_SCALE) -> Dataset:
    """Open a data set. If it is synthetic, generate it at the scale that the options give."""
    return load_dataset(name, root=args.root, scale=_scale(name, args, scale, quick_scale))


def load_either(name: str, args: argparse.Namespace, *, scale: float = 1.0, quick_scale: float = QUICK_SCALE) -> Dataset | HeteroDataset:
    """Open a homogeneous or heterogeneous data set by name."""
    return load_any(name, root=args.root, scale=_scale(name, args, scale, quick_scale))


def _scale(name: str, args: argparse.Namespace, scale: float, quick_scale: float) -> float:
    asked = args.scale if args.scale is not None else quick_scale if args.quick else scale
    return asked if name.startswith("synthetic:") else 1.0


def schedule(data: Dataset | HeteroDataset, batch_size: int) -> Schedule:
    """Return the mini-batches of the train split, or of all nodes that may be seeds if there is no such split."""
    number = data.num_seed_nodes if isinstance(data, HeteroDataset) else data.graph.num_nodes
    seeds = data.split("train") if "train" in data.splits else np.arange(number)
    return Schedule(items=seeds, batch_size=batch_size, seed=SEED)


def is_same_work(label: str, edges: float, expected: float, tolerance: float = _TOLERANCE) -> bool:
    """Return whether a system's mini-batches have about as many edges as hoptrain's. If not, print that the system is left out."""
    same = abs(edges - expected) <= tolerance * expected
    if not same:
        print(f"left out {label}: {edges:,.0f} edges per batch instead of hoptrain's {expected:,.0f}, so speeds are not comparable")
    return same


def key_of(name: str) -> str:
    """Return the name of a data set or system as it appears in names of the summary: lower case, with underscores."""
    return name.removeprefix("synthetic:").lower().replace(" ", "_").replace("-", "_")


def summarize(answers: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the minimum of each value named ``min_*``, and the maximum of each named ``max_*``, over all ``answers``."""
    keys = sorted({key for answer in answers for key in answer})
    return {key: (max if key.startswith("max_") else min)(answer[key] for answer in answers if key in answer) for key in keys}
