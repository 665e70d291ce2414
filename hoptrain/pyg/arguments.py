"""The arguments of torch's ``DataLoader``: what becomes of them here."""

from __future__ import annotations

import warnings
from typing import Any

from hoptrain.engine import InputError

_WITHOUT_MEANING = ("worker_init_fn", "multiprocessing_context", "pin_memory_device")
"""What hoptrain's workers, which run no torch, have no use for."""


def honoured(kwargs: dict[str, Any], *, filter_per_worker: bool | None = None) -> dict[str, Any]:
    """Those that torch is to get; of others that have no meaning here a warning tells.

    Raises:
        InputError: one that would change results if it were ignored.
    """
    if kwargs.get("custom_cls") is not None:
        raise InputError(
            "custom_cls is given: it is the class of batches from remote stores, which these loaders do not read; leave it out"
        )
    if kwargs.get("batch_size", 1) is None and kwargs.get("batch_sampler") is None:
        raise InputError("batch_size is None: a batch has seeds; give their number, or a batch_sampler")
    if kwargs.get("in_order") is False:
        raise InputError("in_order is False: batches come in their order, which makes a run repeatable; leave it out")
    ignored = [name for name in _WITHOUT_MEANING if kwargs.get(name)] + ["filter_per_worker"] * bool(filter_per_worker)
    if ignored:
        warnings.warn(f"without meaning here: {', '.join(ignored)}; workers run no torch, and gather x themselves", stacklevel=4)
    return {name: value for name, value in kwargs.items() if name not in (*_WITHOUT_MEANING, "collate_fn", "dataset")}
