"""The address of random numbers as the loops take it."""

from typing import Any, NamedTuple


class HopAddress(NamedTuple):
    """Where a hop's random words come from; all ``uint64``."""

    seed: Any
    epoch: Any
    batch: Any
    hop: Any
