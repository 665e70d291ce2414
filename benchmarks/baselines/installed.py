"""The installed baselines. Nothing here imports torch, or a baseline that is not asked for."""

from __future__ import annotations

from ctypes.util import find_library
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from hoptrain.engine import InputError
from hoptrain.samplers.batch.dgl_compat import import_dgl


def require(package: str) -> None:
    """Look for a package without importing it.

    Raises:
        InputError: it is not installed.
    """
    if find_spec(package) is None:
        raise InputError("not installed")


def call(baseline: str, function: str, *arguments: Any) -> Any:
    """Call a function of a peer's file, which is imported only now: most import torch, for which ``--help`` need not wait."""
    return getattr(import_module(f"hoptrain.benchmarks.baselines.{baseline}"), function)(*arguments)


def dgl() -> Any:
    """DGL, imported.

    Raises:
        InputError: it is not installed or cannot be imported.
    """
    require("dgl")
    return import_dgl()


def tcmalloc() -> str | None:
    """The name by which the dynamic linker knows tcmalloc, if it is installed."""
    return find_library("tcmalloc_minimal") or find_library("tcmalloc")
