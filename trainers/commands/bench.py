"""``hoptrain bench NAME``: run one benchmark, print its table, write its ``results.json``.

The benchmarks are found by looking: every module of ``hoptrain.benchmarks``, or folder, that defines ``run``. Only the chosen one is imported.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import pkgutil
import re
import shlex
import sys
from pathlib import Path
from shutil import get_terminal_size
from typing import Any

from hoptrain.trainers.commands.arguments import Parser
from hoptrain.trainers.commands.table import table

PACKAGE = "hoptrain.benchmarks"


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the subcommand ``bench``. The options behind NAME belong to the benchmark and are parsed once it is known."""
    lines = [f"  {name:<18}{question}" for name, question in questions().items()]
    parser = subparsers.add_parser(
        "bench",
        help="measure something and write down the numbers",
        description="Run one benchmark. 'hoptrain bench NAME --help' shows its options.",
        epilog="\n".join(["benchmarks:", *lines]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("benchmark", metavar="NAME", help="one of the benchmarks below")
    parser.add_argument("options", nargs=argparse.REMAINDER, metavar="...", help="--quick, --out DIR and the benchmark's own options")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the benchmark named by the arguments; returns 0.

    Raises:
        InputError: no such benchmark, options it does not have, or results that cannot be written.
    """
    # Here, so that other commands do not wait for what only a benchmark needs.
    from hoptrain.benchmarks.common.harness import commit, write_results
    from hoptrain.engine import InputError
    from hoptrain.engine.errors import did_you_mean

    known = questions()
    if args.benchmark not in known:
        hint = did_you_mean(args.benchmark, list(known)) or f"choose one of {', '.join(known) or 'none'}"
        raise InputError(f"there is no benchmark {args.benchmark!r}: {hint}")
    module = importlib.import_module(f"{PACKAGE}.{args.benchmark.replace('-', '_')}")
    options = option_parser(args.benchmark, known[args.benchmark], module).parse_args(args.options)
    revision = commit()  # before the run: the tree may change while a long one goes on
    result = module.run(options)
    command = shlex.join(["hoptrain", "bench", args.benchmark, *args.options])
    print(
        table(result.records, get_terminal_size(fallback=(sys.maxsize, 0)).columns)
    )  # before the file: a long run is not lost to a full disk
    print()
    print(table([{"summary": name, "value": value} for name, value in result.summary.items()]))
    path = write_results(options.out, args.benchmark, result, quick=options.quick, command=command, revision=revision)
    print(f"\nwritten to {path}")
    return 0


def questions() -> dict[str, str]:
    """The question of every benchmark by name: the first line of its docstring, read without importing it."""
    found = {}
    for name, path in sorted(_sources().items()):
        text = path.read_text(encoding="utf-8")  # parsing all of them would take longer than the rest of the command's start
        if re.search(r"^def run\(", text, re.MULTILINE):
            question = re.match('"""(.*)', text)
            found[name.replace("_", "-")] = question[1].removesuffix('"""') if question else ""
    return found


def _sources() -> dict[str, Path]:
    """Modules and folders by name."""
    spec = importlib.util.find_spec(PACKAGE)
    folders = list(spec.submodule_search_locations or []) if spec else []
    modules = [(Path(folder) / module.name, module) for folder in folders for module in pkgutil.iter_modules([folder])]
    return {module.name: path / "__init__.py" if module.ispkg else path.with_suffix(".py") for path, module in modules}


def option_parser(name: str, question: str, module: Any) -> argparse.ArgumentParser:
    """The parser of the options every benchmark has, and of those that its module adds."""
    parser = Parser(prog=f"hoptrain bench {name}", description=question)
    parser.add_argument("--quick", action="store_true", help="a glance: less than a minute, on a small scale")
    parser.add_argument("--out", type=Path, default=Path("runs", "bench", name), metavar="DIR", help="folder of results.json (%(default)s)")
    if hasattr(module, "add_arguments"):
        module.add_arguments(parser)
    return parser
