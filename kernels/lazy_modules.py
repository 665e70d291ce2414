"""Lazy imports of modules that a library imports only to check that they exist, and that take longer to load than all of hoptrain."""

import sys
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType


@contextmanager
def lazy_import(name, **attributes):
    """Replace the module ``name`` by a placeholder for the imports within this context; afterwards the module counts as not imported.

    The placeholder has ``attributes``. Access to any other attribute, within the context or later, imports the real module and returns its attribute. So a
    library that does use the module still works; the import only happens later. Nothing is replaced if the module is already loaded, or its package is not
    installed.

    Args:
        name: Full name of the module.
        attributes: Attributes of the placeholder.
    """
    parent, _, leaf = name.rpartition(".")
    above = sys.modules.get(parent)
    if name in sys.modules or (not isinstance(above, _LazyModule) and find_spec(name.partition(".")[0]) is None):
        yield
        return
    lazy = sys.modules[name] = _LazyModule(name)
    vars(lazy).update(attributes)
    if isinstance(above, _LazyModule):
        setattr(above, leaf, lazy)
    try:
        yield
    finally:
        lazy.remove()


class _LazyModule(ModuleType):
    def remove(self):
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]

    def __getattr__(self, attribute):
        # such reads do not import the module: inspect reads __file__ of all modules
        if attribute.startswith("__") and attribute != "__path__":
            raise AttributeError(f"module {self.__name__!r} has no attribute {attribute!r}")
        self.remove()
        return getattr(import_module(self.__name__), attribute)
