"""``hoptrain explain NAME``: prints cause and remedy of an error in more detail than its one-line message."""

from __future__ import annotations

import argparse
import shutil
import textwrap
from typing import Any

from hoptrain.engine.errors import EXPLAINED, check_choice


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the subcommand ``explain``."""
    parser = subparsers.add_parser(
        "explain",
        help="explain an error whose message ends with [hoptrain explain NAME]",
        description="Print the cause and the remedy of an error. Messages with an explanation end with [hoptrain explain NAME].",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help=f"one of {', '.join(EXPLAINED)}; without it, all names are listed")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the explanation, or all names if none is given; return 0.

    Raises:
        InputError: no explanation has this name.
    """
    if args.name is None:
        print("\n".join(EXPLAINED))
        return 0
    check_choice("NAME", args.name, list(EXPLAINED))
    width = min(shutil.get_terminal_size().columns, 100)
    for title, text in zip(("Cause: ", "Cure: "), EXPLAINED[args.name], strict=True):
        print(textwrap.fill(title + text.replace("`", ""), width, break_long_words=False, break_on_hyphens=False))
    return 0
