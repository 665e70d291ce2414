"""How fast are whole trainings with hoptrain, PyG and DGL, each written like the library's own example?

Each system has its own loader, layers and loop, with the settings that its documentation recommends (``hoptrain.benchmarks.trainings``: a function in
each of ``fit``, ``pyg`` and ``dgl``). The scripts of PyG and DGL also run with hoptrain's loader, by one changed import line, and with hoptrain's layers
too, by another.

Every training runs in a new process, and trainings of different systems alternate. First, short trainings try all numbers of workers and threads. Then
each system repeats its fastest setting; ratios are formed within a round. The time of a step is that of the median epoch over its number of steps; the
first epoch, which starts workers and compiles, is not counted. ``cpu_ms`` is the CPU time of all processes. All systems have the same seeds and the same
number of epochs. At the end each computes its accuracy on the same test nodes with its own sampler. ``is_equal`` is False if the accuracy is more than 3
percentage points below the best of the systems with the same initial weights; DGL's layers have others than PyG's and hoptrain's. ``bound_x`` is the step of
``hoptrain fit`` over an estimated lower bound (``hoptrain.benchmarks.trainings.bound``), for GraphSAGE on a CPU. After the last round, the benchmark counts
the bound's work and measures the machine's rates.

* In PyG and hoptrain.pyg each hop expands the nodes that the previous hop found; in DGL, hoptrain.dgl and hoptrain, all nodes found so far.
* GCN normalises by the degrees in the batch in PyG and DGL, by those in the graph in hoptrain.
* If tcmalloc is installed, the scripts of PyG and DGL use it with any loader, as both recommend.

To continue an interrupted benchmark, start it again with the same --out. It writes ``report.md``, ``report.html`` and a plot for each model there.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hoptrain.benchmarks.baselines.installed import tcmalloc
from hoptrain.benchmarks.common.grid import COMPLETED, Grid, run_grid
from hoptrain.benchmarks.common.harness import Result
from hoptrain.benchmarks.common.options import warn_if_busy
from hoptrain.benchmarks.trainings import report
from hoptrain.benchmarks.trainings.cell import ARCHS, DEVICES, FEATURES, SYSTEMS, Cell
from hoptrain.benchmarks.trainings.program import command_of
from hoptrain.benchmarks.trainings.table import Place, place_of, rows_of, summarize
from hoptrain.engine import InputError, load_dataset
from hoptrain.engine.machine import allowed_cores

if TYPE_CHECKING:
    from hoptrain.benchmarks.trainings.bound import Bound

FANOUTS: Mapping[str, tuple[int, ...]] = {
    "synthetic:products": (15, 10, 5),
    "synthetic:reddit": (25, 10),
    "synthetic:arxiv": (10, 10, 10),
}
"""Default data sets, with the fanouts that the libraries' examples use for them."""
_QUICK_FANOUTS = (10, 5)
LIMIT_S = 900.0
_TRIED_EPOCHS = 2
"""Number of timed epochs in a training that tries a setting."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add = parser.add_argument
    add("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), help="systems to run (default: all)")
    add("--graphs", nargs="+", metavar="NAME", help=f"data sets by name or path (default: {' '.join(FANOUTS)}; with --quick the first)")
    add("--scale", type=float, help="size of synthetic:NAME data sets relative to the original, in (0, 1] (default 0.2, with --quick 0.05)")
    add("--root", type=Path, metavar="DIR", help="folder that holds data sets")
    add(
        "--fanouts",
        type=int,
        nargs="+",
        metavar="N",
        help="neighbours per hop, one number for each layer (default: those of the libraries' examples, otherwise 15 10 5; with --quick 10 5)",
    )
    add("--batch-size", type=int, metavar="B", help="seeds of a step (default 1024, with --quick 512)")
    add("--arch", nargs="+", choices=ARCHS, help="architectures (default: all; with --quick sage)")
    add("--hidden", type=int, nargs="+", metavar="C", help="hidden channels (default 64 256; with --quick 64)")
    add(
        "--workers",
        type=int,
        nargs="+",
        metavar="W",
        help="numbers of loader processes to try (default: 0, 1, 2, 4 and so on up to the number of cores)",
    )
    add("--device", choices=DEVICES, default="cpu", help="device to train on (default cpu)")
    add("--features", nargs="+", choices=FEATURES, help="with --device cuda: memory that holds the features (default: device and pinned)")
    add(
        "--steps",
        type=int,
        metavar="N",
        help="maximum number of steps of an epoch (default 8; with --quick 16, since its batches are half as large)",
    )
    add("--epochs", type=int, metavar="N", help="timed epochs, after one warm-up epoch (default 10, with --quick 2)")
    add("--rounds", type=int, default=3, metavar="R", help="rounds, in each of which all systems train once (default 3)")
    add("--again", action="store_true", help="also repeat trainings that hung, failed or were skipped before")


def run(args: argparse.Namespace) -> Result:
    """Run the trainings that have no result yet, and write the report; see the module's docstring.

    Raises:
        InputError: --device is cuda but there is no GPU, or an option is out of range.
    """
    cells = cells_of(args)
    _check_device(args.device)
    warn_if_busy()
    folders = {(name, scale): _folder(name, scale, args.root) for name, scale in {(cell.dataset, cell.scale) for cell in cells}}
    preload = ["env", f"LD_PRELOAD={tcmalloc()}"] if tcmalloc() else []

    def command(cell: Cell) -> Sequence[str]:
        return [*(preload if cell.system != "fit" else []), *command_of(cell, folders[cell.dataset, cell.scale])]

    tried = [replace(cell, epochs=min(cell.epochs, _TRIED_EPOCHS)) for cell in cells]
    lines = run_grid(Grid(cells=tried, rounds=1, limit=LIMIT_S), command, args.out, again=args.again)
    best = best_settings(lines, cells)
    if best:
        lines += run_grid(Grid(cells=best, rounds=args.rounds, limit=LIMIT_S), command, args.out)
    lines = list(
        {(line["key"], line["round"]): line for line in lines}.values()
    )  # drops duplicates: a trial with the full number of epochs also counts as its setting's first round
    bounds = _bounds(best, folders)
    rows = rows_of(lines, bounds)
    report.write(args.out, lines, rows, bounds)
    return Result(records=rows, summary=summarize(rows), seeds=sorted({cell.seed for cell in cells}))


def cells_of(args: argparse.Namespace) -> list[Cell]:
    """Return the cells that the options select."""
    quick = args.quick
    names = args.graphs or (list(FANOUTS)[:1] if quick else list(FANOUTS))
    plain = {"batch_size": 512, "steps": 16, "epochs": 2} if quick else {"batch_size": 1024, "steps": 8, "epochs": 10}
    given = {name: getattr(args, name) for name in plain if getattr(args, name) is not None}
    common: dict[str, Any] = {"device": args.device, **plain, **given}
    features = args.features or (["device", "pinned"] if args.device == "cuda" else ["host"])
    archs, widths = args.arch or (["sage"] if quick else ARCHS), args.hidden or ([64] if quick else [64, 256])
    scale = args.scale or (0.05 if quick else 0.2)
    return [
        Cell(
            system=system,
            dataset=name,
            scale=scale if name.startswith("synthetic:") else 1.0,
            fanouts=tuple(args.fanouts or (_QUICK_FANOUTS if quick else FANOUTS.get(name, (15, 10, 5)))),
            arch=arch,
            hidden=hidden,
            features=place,
            workers=workers,
            threads=threads,
            **common,
        )
        for name, arch, hidden, place in product(names, archs, widths, features)
        for workers, threads in settings(args.workers, quick=quick)
        for system in args.systems
    ]


def settings(workers: Sequence[int] | None, *, quick: bool) -> list[tuple[int, int]]:
    """Return the settings to try, each a number of workers and a number of torch's threads.

    With workers, torch uses either all cores or only those that workers leave, at least one. With ``quick`` and default workers, each gets half of the cores.
    """
    cores = allowed_cores()
    if quick and not workers:
        half = max(1, cores // 2)
        return [(0, cores), (half, max(1, cores - half))]
    numbers = workers or [0, *(2**i for i in range(cores.bit_length()) if 2**i < cores), cores]
    pairs = [(number, threads) for number in numbers for threads in ((max(1, cores - number), cores) if number else (cores,))]
    return list(dict.fromkeys(pairs))


def best_settings(lines: Sequence[Mapping[str, Any]], cells: Sequence[Cell]) -> list[Cell]:
    """Return, for each system and training, the one of ``cells`` with the shortest step in ``lines``, which has one line per cell."""
    best: dict[tuple[Any, ...], tuple[float, int]] = {}
    for i, line in enumerate(lines):
        if line["outcome"] == COMPLETED:
            key = (line["cell"]["system"], *place_of(line["cell"]))
            best[key] = min(best.get(key, (float("inf"), i)), (float(line["found"]["step_s"]), i))
    return [cells[i] for _, i in best.values()]


def _bounds(best: Sequence[Cell], folders: Mapping[tuple[str, float], Path]) -> dict[Place, Bound]:
    """Return the lower bound of a step of each training that has one, at the setting of ``hoptrain fit`` among ``best``."""
    from hoptrain.benchmarks.trainings.bound import estimate

    bounded = [cell for cell in best if (cell.system, cell.arch, cell.device) == ("fit", "sage", "cpu")]
    return {place_of(asdict(cell)): estimate(cell, folders[cell.dataset, cell.scale]) for cell in bounded}


def _check_device(device: str) -> None:
    if device == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise InputError("--device cuda: torch finds no GPU; use --device cpu")


def _folder(name: str, scale: float, root: Path | None) -> Path:
    folder = load_dataset(name, root=root, scale=scale).path
    if folder is None:
        raise InputError(f"{name} has not been saved: trainings read it from files; convert it ('hoptrain data convert')")
    return folder
