import numba
import numpy as np
import pytest

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.machine_code import kept_in


def test_setting_is_put_back_after_a_failure(monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", "users-own")
    with pytest.raises(ZeroDivisionError, match="a-folder"), kept_in("a-folder"):
        raise ZeroDivisionError(numba.config.CACHE_DIR)
    assert numba.config.CACHE_DIR == "users-own"


def test_kernels_check_no_bounds_and_divide_as_in_c():
    @cpu_kernel
    def divide(a, b):
        return a // b

    assert divide(np.uint64(5), np.uint64(0)) == 0
    assert not divide.targetoptions["boundscheck"]
    assert divide.targetoptions["nogil"]
