"""``hoptrain configs``: lists the configurations that ship with hoptrain, and finds them by name for ``--config``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hoptrain.engine import InputError
from hoptrain.engine.errors import did_you_mean

FOLDER = Path(__file__).parents[2] / "configs"


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the subcommand ``configs``."""
    parser = subparsers.add_parser(
        "configs",
        help="list the configurations that --config takes by name",
        description="List the configurations that ship with hoptrain. Give a name to --config, as in: hoptrain fit --config cora_gat",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the name of each configuration and the first line of its file; return 0."""
    for name, path in known().items():
        print(f"{name:<22}{path.read_text(encoding='utf-8').partition(chr(10))[0].removeprefix('# ')}")
    print(f"\nTrain one with, for example: hoptrain fit --config quickstart\nEach file states its requirements: {FOLDER}")
    return 0


def known() -> dict[str, Path]:
    """Return the path of each shipped configuration, by name."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.yaml"))}


def with_paths(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with each configuration name after ``--config`` replaced by its path. A file of that name takes precedence.

    Raises:
        InputError: a value of ``--config`` is neither a file nor the name of a configuration.
    """
    found = []
    for before, argument in zip(["", *arguments], arguments, strict=False):
        option, is_joined, name = argument.partition("=") if argument.startswith("--config=") else ("", "", argument)
        is_value = is_joined or before in ("--config", "-c")
        path = known().get(name) if is_value and not Path(name).is_file() else None
        if is_value and path is None and not Path(name).is_file() and "/" not in name and "." not in name:
            hint = did_you_mean(name, list(known())) or "give a file, or a name that 'hoptrain configs' lists"
            raise InputError(f"--config {name}: no file and no configuration has this name; {hint}")
        found.append(argument if path is None else f"{option}{is_joined}{path}")
    return found
