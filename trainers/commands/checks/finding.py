"""The result of a check, and the exceptions that a GPU check raises if it fails or is skipped."""

from __future__ import annotations

import dataclasses
from typing import Literal

GIB = 1 << 30

Status = Literal["ok", "note", "wrong"]


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        name: name of the check.
        status: ``ok``; ``note`` for information that is no failure; ``wrong`` if something will fail.
        found: description of what was found.
        remedy: what to do; empty if there is nothing to do.
    """

    name: str
    status: Status
    found: str
    remedy: str = ""


class CheckFailed(Exception):
    """A failed check. The message is one line."""


class CheckSkipped(Exception):
    """A check that cannot run on this machine. The message is the reason, in one line."""
