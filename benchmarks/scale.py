"""How does training scale with ranks, workers and batch sizes, fed by hoptrain's, PyG's and DGL's loaders?

With a grid of other sampling algorithms (configs/bench/end_to_end.yaml) it shows what another sampler changes in the same training, as "The Case for
Sampling on Very Large Graphs" (Serafini & Guan 2021) asks. Without workers the share of sampling in an epoch is the paper's Table 2; the ratio to the best
peer is its Table 3.

Every cell of the grid runs in processes of its own, with a time limit, in turns with all others, round after round; ``hoptrain.benchmarks.study.run``
says what a cell does, ``hoptrain.benchmarks.study.peer_feeds`` how each loader is set up. Systems differ in their loader alone: model, optimiser, loop and
evaluation are the same code. Stopped and started again with the same --out, the study goes on where it was. The report lies beside the results, as
Markdown and as one HTML page.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hoptrain.benchmarks import report
from hoptrain.benchmarks.baselines.installed import tcmalloc
from hoptrain.benchmarks.common.grid import Grid, parse_grid, read_grid, run_grid
from hoptrain.benchmarks.common.harness import Result
from hoptrain.benchmarks.common.options import warn_if_busy
from hoptrain.benchmarks.study.cell import SYSTEMS, Cell
from hoptrain.benchmarks.study.run import command_of
from hoptrain.benchmarks.study.table import rows_of, summarize
from hoptrain.engine import InputError, load_dataset

GLANCE: dict[str, Any] = {
    "rounds": 3,
    "limit": 60,
    "all": {"dataset": "synthetic:reddit", "scale": 0.02, "hidden": 16, "batch_size": 512, "epochs": 1},
    "grids": [{"system": ["hoptrain", "pyg", "dgl"], "workers": [2]}],
}
"""Grid of ``--quick`` if none is named."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this benchmark."""
    add = parser.add_argument
    add(
        "--config",
        type=Path,
        metavar="FILE",
        help="the grid, see configs/bench; with --quick three rounds of it, or a small one of its own",
    )
    add("--systems", nargs="+", choices=SYSTEMS, default=SYSTEMS, help="systems to run (default: all)")
    add("--again", action="store_true", help="run once more what hung, failed or was skipped before")
    add("--root", type=Path, metavar="DIR", help="folder that holds data sets")


def run(args: argparse.Namespace) -> Result:
    """Run what is left of the grid, and write the report; see the module's docstring.

    Raises:
        InputError: no grid, or one that cannot be run.
    """
    grid = read(args)
    warn_if_busy()
    places = dict.fromkeys((cell.dataset, cell.scale) for cell in grid.cells)
    folders = {(name, scale): load_dataset(name, root=args.root, scale=scale).path for name, scale in places}

    def command(cell: Cell) -> Sequence[str]:
        folder = folders[cell.dataset, cell.scale]
        if folder is None:
            raise InputError(f"{cell.dataset} has not been saved: ranks and workers share its files; convert it ('hoptrain data convert')")
        preload = ["env", f"LD_PRELOAD={tcmalloc()}"] if cell.allocator == "tcmalloc" and tcmalloc() else []
        return [*preload, *command_of(cell, folder)]

    lines = run_grid(grid, command, args.out, again=args.again)
    report.write(args.out)
    rows = rows_of(lines)
    return Result(records=rows, summary=summarize(rows), seeds=sorted({cell.seed for cell in grid.cells}))


def read(args: argparse.Namespace) -> Grid[Cell]:
    """Return the grid that the options name, or with ``--quick`` alone ``GLANCE``.

    Raises:
        InputError: no grid is named, or it is not one.
    """
    if args.config is None and not args.quick:
        raise InputError("no grid is named: give --config FILE, one of configs/bench for instance, or --quick")
    grid = parse_grid(GLANCE, Cell, "--quick") if args.config is None else read_grid(args.config, Cell)
    return Grid(
        cells=[cell for cell in grid.cells if cell.system in args.systems], rounds=3 if args.quick else grid.rounds, limit=grid.limit
    )
