"""The result of a check."""

from __future__ import annotations

import dataclasses
from typing import Literal

GIB = 1 << 30

Status = Literal["ok", "note", "wrong"]


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        name: what was looked at.
        status: ``ok``; ``note``, fine as it is but good to know; ``wrong``, something will fail.
        found: what is there.
        remedy: what to do, if there is anything to do.
    """

    name: str
    status: Status
    found: str
    remedy: str = ""


class Wrong(Exception):
    """What a check found wrong, in one line."""


class NotHere(Exception):
    """Why a check cannot be made on this machine, in one line."""
