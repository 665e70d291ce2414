"""The address of a hop's random numbers, as the kernels take it."""

from typing import Any, NamedTuple


class HopAddress(NamedTuple):
    """The address of a hop's random words. All fields are ``uint64``."""

    seed: Any
    epoch: Any
    batch: Any
    hop: Any
