"""A module that is put off: the block finds a stand-in, everybody else the module itself."""

import sys
from importlib import import_module

import numpy as np
import pytest
from numba import njit

from hoptrain.kernels.put_off import put_off


@pytest.fixture(autouse=True)
def _package(tmp_path, monkeypatch):
    """A package ``thick`` with a module ``slow``, which nobody has imported yet."""
    (tmp_path / "thick").mkdir()
    (tmp_path / "thick" / "__init__.py").write_text("")
    (tmp_path / "thick" / "slow.py").write_text("colour, weight = 'red', 5\n")
    (tmp_path / "careless.py").write_text("import thick.slow\nfound = hasattr(thick, 'slow')\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in ("careless", "thick", "thick.slow"):
        sys.modules.pop(name, None)


def test_behind_the_block_the_module_is_not_loaded_and_can_be():
    with put_off("thick.slow", colour="none"):
        import_module("careless")
        assert sys.modules["thick.slow"].colour == "none"
        assert not hasattr(sys.modules["thick.slow"], "__file__")
    assert "thick.slow" not in sys.modules
    assert import_module("thick.slow").colour == "red"


def test_who_asks_the_stand_in_for_more_gets_it_from_the_module():
    with put_off("thick.slow", colour="none"):
        from thick.slow import colour, weight
    assert (colour, weight) == ("none", 5)
    assert sys.modules["thick.slow"].colour == "red"


def test_a_stand_in_that_was_kept_asks_the_module_later():
    with put_off("thick.slow"):
        early = import_module("thick.slow")
    assert "thick.slow" not in sys.modules
    assert early.weight == 5


def test_a_loaded_module_stays_as_it_is_and_one_that_is_not_there_is_missed():
    import_module("thick.slow")
    with put_off("thick.slow", colour="none"):
        assert import_module("thick.slow").colour == "red"
    assert "thick.slow" in sys.modules
    with put_off("no_such_package.slow"), pytest.raises(ModuleNotFoundError):
        import_module("no_such_package.slow")


def test_an_import_that_fails_leaves_no_stand_in():
    with pytest.raises(ModuleNotFoundError), put_off("thick.slow"):
        import_module("no_such_package")
    assert "thick.slow" not in sys.modules


def test_numba_still_finds_blas():
    import_module("hoptrain.kernels.cpu")  # by which Numba's look for it was put off
    a = np.array([[2.0, 1.0], [0.0, 3.0]])
    assert np.array_equal(njit(lambda a, b: np.dot(a, b))(a, a), np.dot(a, a))
