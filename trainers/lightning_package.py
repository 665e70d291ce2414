"""Make ``pytorch_lightning`` and ``lightning.pytorch`` the same package in a process, so that a program can use either with hoptrain.

The distribution ``lightning`` contains a copy of both packages of ``pytorch-lightning``, with its own classes. A trainer of one copy rejects modules,
data modules and callbacks of the other. hoptrain imports ``pytorch_lightning``, which may be an alias of ``lightning.pytorch``.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

COPIES = {"pytorch_lightning": "lightning.pytorch", "lightning_fabric": "lightning.fabric"}
"""Package in the distribution ``pytorch-lightning`` -> its copy in the distribution ``lightning``."""

_WRONG_ADVICE = (
    "The '.*_dataloader' does not have many workers",  # evaluation loaders yield a single batch, a list of nodes, so workers would not help
    "It is recommended to use `self.log",  # metrics are already reduced over ranks when they are logged; times are those of rank 0
    "Couldn't infer the batch indices",  # predictions are in the order of nodes, not by batch
    "`isinstance\\(treespec, LeafSpec\\)`",  # concerns Lightning, not the user
)
"""Regular expressions of Lightning's warnings that do not apply to hoptrain's loaders and tasks."""


def unite_packages() -> None:
    """Make one of the two copies an alias of the copy that is already imported, or else of ``pytorch_lightning``.

    Raises:
        InputError: both copies are imported already.
    """
    if any(isinstance(finder, _Aliases) for finder in sys.meta_path):
        return
    for name, copy in COPIES.items():
        if name in sys.modules and copy in sys.modules:
            from hoptrain.engine.errors import InputError  # imported here, since `hoptrain doctor` must work without the engine

            raise InputError(
                f"{name} and {copy} are both imported: they are two copies whose classes cannot be mixed, and hoptrain's belong to one; "
                "import only one of them, or import hoptrain.trainers before both, which makes them one"
            )
    is_copy_used = any(copy in sys.modules for copy in COPIES.values())
    sys.meta_path.insert(0, _Aliases(COPIES if is_copy_used else {copy: name for name, copy in COPIES.items()}))


def ignore_wrong_advice() -> None:
    """Suppress Lightning's warnings that do not apply to hoptrain's loaders and tasks."""
    for message in _WRONG_ADVICE:
        warnings.filterwarnings("ignore", message=message)


class _Aliases(MetaPathFinder, Loader):
    """An importer that returns the modules of one package under the names of another package.

    Args:
        packages: maps the requested package to the package that is returned.
    """

    def __init__(self, packages: Mapping[str, str]) -> None:
        self._packages = packages

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        for alias, package in self._packages.items():
            if fullname == alias or fullname.startswith(f"{alias}."):
                found = find_spec(package + fullname.removeprefix(alias))
                return None if found is None else ModuleSpec(fullname, self, loader_state=found)
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return import_module(spec.loader_state.name)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__ = module.__spec__.loader_state  # restores the attribute, which the import under the alias has replaced
