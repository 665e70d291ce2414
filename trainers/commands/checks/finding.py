"""The result of a check, and the exceptions by which a GPU check ends."""

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
        status: ``ok``; ``note`` if nothing fails but something is good to know; ``wrong`` if something will fail.
        found: description of what was found.
        remedy: what to do; empty if nothing is to be done.
    """

    name: str
    status: Status
    found: str
    remedy: str = ""


class CheckFailed(Exception):
    """A failed check. The message is one line."""


class CheckSkipped(Exception):
    """A check that cannot run on this machine. The message is the reason, in one line."""
