"""The import of DGL. All other code imports DGL by ``import_dgl``."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from hoptrain.engine import InputError


def import_dgl() -> Any:
    """Import DGL so that it works with the installed version of torch, and return it.

    DGL's last wheels contain a compiled ``dgl.graphbolt`` for torch up to 2.4 and fail to import with any later version. hoptrain does not use
    GraphBolt, so it is replaced by an empty module.

    Raises:
        InputError: DGL is not installed, or its import fails.
    """
    if "dgl" not in sys.modules:
        sys.modules.setdefault("dgl.graphbolt", ModuleType("dgl.graphbolt"))
    try:
        import dgl
    except ImportError as error:
        raise InputError(f"DGL cannot be imported ({error}): install it with 'pip install hoptrain[dgl]', or use conv: pyg") from error
    return dgl
