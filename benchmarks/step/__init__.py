"""Where does a training step of ``fit`` spend its time: loader, forward, backward, optimiser, and what Lightning and its callbacks add?

``NodeClassifier`` is trained by Lightning's loop with the callbacks that ``hoptrain fit`` adds, without a logger, a progress bar or validation. Times are the
host's, medians over the steps: on a GPU a part ends when its work is queued, or waited for. ``rest_ms`` is what remains of the time from one step's end to the
next one's, the copy to the device included. An epoch's first step does not count.

On CUDA a second training runs under ``torch.profiler``: launches of kernels and of graphs, copies and waits of the host, each per step, and the time for which
the GPU works and is idle. The profiler itself slows the host, so compare ``idle_ms`` with ``profiled_ms``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from hoptrain.benchmarks.common import options
from hoptrain.benchmarks.common.harness import Result
from hoptrain.benchmarks.common.options import FANOUTS, SEED
from hoptrain.engine import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this benchmark."""
    add = parser.add_argument
    add("--devices", nargs="+", choices=("cpu", "cuda"), help="where to train (default: the CPU, and CUDA where there is a GPU)")
    add("--graph", default="synthetic:products", metavar="NAME", help="data set by name or path (default synthetic:products)")
    add(
        "--scale", type=float, help="size of synthetic:NAME data sets relative to the original, in (0, 1] (default 0.05, with --quick 0.02)"
    )
    add("--root", type=Path, metavar="DIR", help="folder that holds data sets")
    add("--fanouts", type=int, nargs="+", metavar="N", help="neighbours per hop (default 15 10 5, with --quick 5 5)")
    add("--batch-size", type=int, metavar="B", help="seeds of a mini-batch (default 1024, with --quick 64)")
    add("--arch", choices=("sage", "gcn", "gin", "gat"), default="sage", help="the model's layers (default sage)")
    add("--hidden", type=int, metavar="C", help="width between layers (default 256, with --quick 16)")
    add(
        "--num-workers",
        type=int,
        default=0,
        metavar="W",
        help="sampler processes (default 0: sample in the training process, on its device)",
    )
    add("--steps", type=int, metavar="N", help="steps that count (default 100, with --quick 12)")


def run(args: argparse.Namespace) -> Result:
    """Train on each device.

    Raises:
        InputError: no steps; CUDA is asked for and cannot be used.
    """
    import torch

    from hoptrain.benchmarks.step.timed import Setting, measure

    devices = args.devices or ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    if "cuda" in devices and not torch.cuda.is_available():
        raise InputError("--devices cuda: torch finds no GPU; give cpu")
    steps = args.steps if args.steps is not None else 12 if args.quick else 100
    if steps < 1:
        raise InputError(f"--steps is {steps}: must be at least 1; give 1 or more")
    setting = Setting(
        data=options.load(args.graph, args, scale=0.05),
        fanouts=args.fanouts or ((5, 5) if args.quick else FANOUTS[1]),
        batch_size=args.batch_size or (64 if args.quick else 1024),
        arch=args.arch,
        hidden=args.hidden or (16 if args.quick else 256),
        num_workers=args.num_workers,
        steps=steps,
    )
    records = [{"device": device, **measure(setting, device)} for device in devices]
    names = "step_ms", "rest_ms"
    return Result(records=records, summary={f"{row['device']}_{name}": row[name] for row in records for name in names}, seeds=[SEED])
