"""Access to the installed baselines. This module imports neither torch nor baselines that are not used."""

from __future__ import annotations

from ctypes.util import find_library
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from hoptrain.engine import InputError
from hoptrain.samplers.batch.dgl_compat import import_dgl


def require(package: str) -> None:
    """Check that a package is installed, without importing it.

    Raises:
        InputError: the package is not installed.
    """
    if find_spec(package) is None:
        raise InputError("not installed")


def call(baseline: str, function: str, *arguments: Any) -> Any:
    """Import a baseline's module and call one of its functions. The import is delayed since most of them import torch, which would slow down ``--help``."""
    return getattr(import_module(f"hoptrain.benchmarks.baselines.{baseline}"), function)(*arguments)


def dgl() -> Any:
    """Import and return DGL.

    Raises:
        InputError: DGL is not installed or cannot be imported.
    """
    require("dgl")
    return import_dgl()


def tcmalloc() -> str | None:
    """Return the name of the tcmalloc library for the dynamic linker, or None if it is not installed."""
    return find_library("tcmalloc_minimal") or find_library("tcmalloc")
