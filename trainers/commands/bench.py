"""``hoptrain bench NAME``: runs one benchmark, prints its table, and writes its ``results.json`` and ``results.csv``.

A benchmark is a module or package in ``hoptrain.benchmarks`` that defines ``run``. Only the chosen benchmark is imported.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import pkgutil
import re
import shlex
import textwrap
from pathlib import Path
from shutil import get_terminal_size
from typing import Any

from hoptrain.trainers.commands.arguments import Parser
from hoptrain.trainers.commands.table import table

PACKAGE = "hoptrain.benchmarks"
_WIDTH = 120
"""Maximum width of a table in characters."""


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the subcommand ``bench``. Options after NAME belong to the benchmark, and are parsed after it has been imported."""
    width = max(60, get_terminal_size().columns - 2)
    lines = [
        textwrap.fill(question, width, initial_indent=f"  {name:<18}", subsequent_indent=" " * 20) for name, question in questions().items()
    ]
    parser = subparsers.add_parser(
        "bench",
        help="run a benchmark",
        description="Run one benchmark, print its table, and write results.json and results.csv.\n'hoptrain bench NAME --help' shows its options.",
        epilog="\n".join(["benchmarks, with the question that each answers:", *lines]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("benchmark", metavar="NAME", help="a benchmark from the list below")
    parser.add_argument(
        "options", nargs=argparse.REMAINDER, metavar="...", help="--quick, --out DIR, and the options of the benchmark itself"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the benchmark named by the arguments; return 0.

    Raises:
        InputError: the benchmark does not exist, an option is unknown to it, or its results cannot be written.
    """
    # Imported here, so that other commands do not wait for the import.
    from hoptrain.benchmarks.common.harness import commit, load, write_results
    from hoptrain.engine import InputError
    from hoptrain.engine.errors import did_you_mean

    known = questions()
    if args.benchmark not in known:
        hint = did_you_mean(args.benchmark, list(known)) or "see 'hoptrain bench --help'"
        raise InputError(f"{args.benchmark!r} is no benchmark: it must be one of {', '.join(known) or 'none'}; {hint}")
    module = importlib.import_module(f"{PACKAGE}.{args.benchmark.replace('-', '_')}")
    options = option_parser(args.benchmark, known[args.benchmark], module).parse_args(args.options)
    revision, before = commit(), load()  # before the benchmark, since the working tree may change while it runs
    result = module.run(options)
    command = shlex.join(["hoptrain", "bench", args.benchmark, *args.options])
    # Printed before the files are written, so that a full disk does not lose the results of a long run.
    print(table(result.records, min(_WIDTH, get_terminal_size(fallback=(_WIDTH, 0)).columns)))
    print()
    print(table([{"summary": name, "value": value} for name, value in result.summary.items()]))
    path = write_results(options.out, args.benchmark, result, quick=options.quick, command=command, revision=revision, load=before)
    print(f"\nwritten to {path} and {path.with_suffix('.csv').name}")
    return 0


def questions() -> dict[str, str]:
    """Return the question of each benchmark, by name: the first line of its docstring, read without importing it."""
    found = {}
    for name, path in sorted(_sources().items()):
        # searched as text: parsing all files would take longer than the rest of the command's start
        text = path.read_text(encoding="utf-8")
        if re.search(r"^def run\(", text, re.MULTILINE):
            question = re.match('"""(.*)', text)
            found[name.replace("_", "-")] = question[1].removesuffix('"""') if question else ""
    return found


def _sources() -> dict[str, Path]:
    """Return the source file of each module and package of ``PACKAGE``, by name."""
    spec = importlib.util.find_spec(PACKAGE)
    folders = list(spec.submodule_search_locations or []) if spec else []
    modules = [(Path(folder) / module.name, module) for folder in folders for module in pkgutil.iter_modules([folder])]
    return {module.name: path / "__init__.py" if module.ispkg else path.with_suffix(".py") for path, module in modules}


def option_parser(name: str, question: str, module: Any) -> argparse.ArgumentParser:
    """Return a parser for the options that all benchmarks have, and those that this benchmark's module adds."""
    parser = Parser(prog=f"hoptrain bench {name}", description=question)
    parser.add_argument("--quick", action="store_true", help="run at a small scale, in a few minutes at most")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs", "bench", name),
        metavar="DIR",
        help="folder to write results.json and results.csv to (default: %(default)s)",
    )
    if hasattr(module, "add_arguments"):
        module.add_arguments(parser)
    return parser
