"""``hoptrain explain NAME``: the cause and the cure of what a message could not tell in a line."""

from __future__ import annotations

import argparse
import shutil
import textwrap
from typing import Any

from hoptrain.engine.errors import EXPLAINED, check_choice


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the subcommand ``explain``."""
    parser = subparsers.add_parser("explain", help="tell more about a message that ends with its name", description=__doc__)
    parser.add_argument("name", nargs="?", help=f"what stands after 'hoptrain explain' in the message: {', '.join(EXPLAINED)}")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the entry, or the names that there are; returns 0.

    Raises:
        InputError: there is none of this name.
    """
    if args.name is None:
        print("\n".join(EXPLAINED))
        return 0
    check_choice("NAME", args.name, list(EXPLAINED))
    width = min(shutil.get_terminal_size().columns, 100)
    for title, text in zip(("Cause: ", "Cure: "), EXPLAINED[args.name], strict=True):
        print(textwrap.fill(title + text.replace("`", ""), width, break_long_words=False, break_on_hyphens=False))
    return 0
