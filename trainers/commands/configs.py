"""The configurations that come with hoptrain, which --config takes by name."""

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
    parser = subparsers.add_parser("configs", help="list the configurations that --config takes by name", description=__doc__)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print each name with the first line of its file; returns 0."""
    for name, path in known().items():
        print(f"{name:<22}{path.read_text(encoding='utf-8').partition(chr(10))[0].removeprefix('# ')}")
    print(f"\nFor instance: hoptrain fit --config quickstart. The files say what each needs, in {FOLDER}")
    return 0


def known() -> dict[str, Path]:
    """The configurations for training, by name."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.yaml"))}


def with_paths(arguments: Sequence[str]) -> list[str]:
    """The arguments with the path of each configuration that is given by name; where there is a file called so, it is meant.

    Raises:
        InputError: a name that is neither.
    """
    found = []
    for before, argument in zip(["", *arguments], arguments, strict=False):
        option, is_joined, name = argument.partition("=") if argument.startswith("--config=") else ("", "", argument)
        is_value = is_joined or before in ("--config", "-c")
        path = known().get(name) if is_value and not Path(name).is_file() else None
        if is_value and path is None and not Path(name).is_file() and "/" not in name and "." not in name:
            hint = did_you_mean(name, list(known())) or "'hoptrain configs' lists those that there are"
            raise InputError(f"--config {name}: no file and no configuration has this name; {hint}")
        found.append(argument if path is None else f"{option}{is_joined}{path}")
    return found
