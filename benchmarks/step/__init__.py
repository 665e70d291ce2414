"""Where does a training step of ``fit`` spend its time: loader, forward, backward, optimiser, and what Lightning and its callbacks add?

Lightning trains ``NodeClassifier`` with the callbacks that ``hoptrain fit`` adds, without a logger, a progress bar or validation. Times are medians over the
steps, measured on the host: on a GPU, a part ends when the host has queued its work, or has waited for it. A step lasts from the end of the previous one to
its own end; ``rest_ms`` is the time of it outside of the four parts, with the copy to the device. The first step of each epoch does not count.

On CUDA, a second training runs under ``torch.profiler``. It counts launches of kernels and of CUDA graphs, copies, and waits of the host, each per step, and
measures how long the GPU is busy and idle. The profiler slows the host down, so compare ``idle_ms`` with ``profiled_ms``, not with ``step_ms``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from hoptrain.benchmarks.common import options
from hoptrain.benchmarks.common.harness import Result
from hoptrain.benchmarks.common.options import FANOUTS, SEED
from hoptrain.engine import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add = parser.add_argument
    add("--devices", nargs="+", choices=("cpu", "cuda"), help="where to train (default: cpu, and cuda if there is a GPU)")
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
    add("--steps", type=int, metavar="N", help="measured steps (default 100, with --quick 12)")


def run(args: argparse.Namespace) -> Result:
    """Train on each device.

    Raises:
        InputError: ``--steps`` is below 1, or ``--devices`` has cuda and torch finds no GPU.
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
