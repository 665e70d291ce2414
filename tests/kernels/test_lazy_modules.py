"""Lazy imports: code within the context gets a placeholder, and all other code gets the module itself."""

import sys
from importlib import import_module

import numpy as np
import pytest
from numba import njit

from hoptrain.kernels.lazy_modules import lazy_import


@pytest.fixture(autouse=True)
def _package(tmp_path, monkeypatch):
    """Write a package ``thick`` with a module ``slow`` that is not imported yet."""
    (tmp_path / "thick").mkdir()
    (tmp_path / "thick" / "__init__.py").write_text("")
    (tmp_path / "thick" / "slow.py").write_text("colour, weight = 'red', 5\n")
    (tmp_path / "careless.py").write_text("import thick.slow\nfound = hasattr(thick, 'slow')\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in ("careless", "thick", "thick.slow"):
        sys.modules.pop(name, None)


def test_after_the_context_the_module_is_not_loaded_and_can_be():
    with lazy_import("thick.slow", colour="none"):
        import_module("careless")
        assert sys.modules["thick.slow"].colour == "none"
        assert not hasattr(sys.modules["thick.slow"], "__file__")
    assert "thick.slow" not in sys.modules
    assert import_module("thick.slow").colour == "red"


def test_other_attributes_come_from_the_module():
    with lazy_import("thick.slow", colour="none"):
        from thick.slow import colour, weight
    assert (colour, weight) == ("none", 5)
    assert sys.modules["thick.slow"].colour == "red"


def test_a_kept_placeholder_loads_the_module_later():
    with lazy_import("thick.slow"):
        early = import_module("thick.slow")
    assert "thick.slow" not in sys.modules
    assert early.weight == 5


def test_a_loaded_module_is_not_replaced_and_a_missing_one_is_not_found():
    import_module("thick.slow")
    with lazy_import("thick.slow", colour="none"):
        assert import_module("thick.slow").colour == "red"
    assert "thick.slow" in sys.modules
    with lazy_import("no_such_package.slow"), pytest.raises(ModuleNotFoundError):
        import_module("no_such_package.slow")


def test_a_failed_import_leaves_no_placeholder():
    with pytest.raises(ModuleNotFoundError), lazy_import("thick.slow"):
        import_module("no_such_package")
    assert "thick.slow" not in sys.modules


def test_numba_still_finds_blas():
    import_module("hoptrain.kernels.cpu")  # replaces BLAS by a placeholder while Numba checks for it
    a = np.array([[2.0, 1.0], [0.0, 3.0]])
    assert np.array_equal(njit(lambda a, b: np.dot(a, b))(a, a), np.dot(a, a))
