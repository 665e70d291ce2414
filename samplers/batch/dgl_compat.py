"""The only place that imports DGL."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from hoptrain.engine import InputError


def import_dgl() -> Any:
    """DGL, imported so that it works beside the torch that is installed.

    DGL's last wheels carry a compiled ``dgl.graphbolt`` for torch up to 2.4 and fail to import with any later one. hoptrain does not use
    GraphBolt, so an empty module takes its place.

    Raises:
        InputError: DGL is not installed, or cannot be imported all the same.
    """
    if "dgl" not in sys.modules:
        sys.modules.setdefault("dgl.graphbolt", ModuleType("dgl.graphbolt"))
    try:
        import dgl
    except ImportError as error:
        raise InputError(f"DGL cannot be imported ({error}): install it with 'pip install hoptrain[dgl]', or use conv: pyg") from error
    return dgl
