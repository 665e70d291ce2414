"""Modules that a library imports only to look whether they are there, and that take longer than all of ours."""

import sys
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType


@contextmanager
def put_off(name, **attributes):
    """Let the imports in this block find a stand-in of the module ``name``; behind the block it is as if nobody had imported it yet.

    The stand-in has ``attributes``. Whoever asks it for another, then or later, gets that of the module itself, imported by then: so a library that comes to
    use the module loses time and nothing else. Where the module is loaded already, or its package is not installed, the imports find just that.
    """
    parent, _, leaf = name.rpartition(".")
    above = sys.modules.get(parent)
    if name in sys.modules or (not isinstance(above, _StandIn) and find_spec(name.partition(".")[0]) is None):
        yield
        return
    stand_in = sys.modules[name] = _StandIn(name)
    vars(stand_in).update(attributes)
    if isinstance(above, _StandIn):
        setattr(above, leaf, stand_in)
    try:
        yield
    finally:
        stand_in.leave()


class _StandIn(ModuleType):
    def leave(self):
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]

    def __getattr__(self, attribute):
        if attribute.startswith("__") and attribute != "__path__":  # inspect asks every module that there is for its file
            raise AttributeError(f"module {self.__name__!r} has no attribute {attribute!r}")
        self.leave()
        return getattr(import_module(self.__name__), attribute)
