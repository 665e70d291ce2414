"""The argument parser of ``data``, ``bench`` and the other commands without Lightning. For ``fit`` see ``hoptrain.trainers.commands.parser``."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from hoptrain.engine import InputError
from hoptrain.engine.errors import did_you_mean


class Parser(argparse.ArgumentParser):
    """A parser that raises ``InputError`` instead of exiting, and accepts no abbreviated options, as ``fit`` does."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})

    def error(self, message: str) -> NoReturn:
        """Raise ``InputError`` with argparse's message and, for an unknown option, the nearest valid name."""
        hint = ""
        if choice := re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message):
            names = choice[2].replace("'", "")
            message, hint = f"{choice[1]!r} is unknown: it must be one of {names}", did_you_mean(choice[1], names.split(", "))
        elif unknown := re.match(r"unrecognized arguments: (--\S+)", message):
            hint = did_you_mean(unknown[1], sorted(set(_options(self))))
        hint = hint or f"see '{self.prog} --help'"
        raise InputError(f"{message}; {hint}")


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the option strings of a parser and of its subcommands."""
    for action in parser._actions:
        yield from action.option_strings
        for inner in action.choices.values() if isinstance(action, argparse._SubParsersAction) else ():
            yield from _options(inner)
