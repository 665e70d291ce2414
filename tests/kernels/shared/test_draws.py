import numpy as np
import pytest
from reference.neighbor import bounded as naive_bounded
from scipy.stats import chisquare

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.shared.draws import bounded
from hoptrain.kernels.shared.philox import four_words

FUNCTIONS = pytest.mark.parametrize("function", [bounded, bounded.py_func], ids=["compiled", "interpreted"])


@FUNCTIONS
@pytest.mark.parametrize("n", [1, 2, 3, 64, 1000, (1 << 31) + 1, (1 << 32) - 1])
def test_range_and_value(function, n):
    for word in (0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF):
        value = function(np.uint64(word), np.uint64(n))
        assert value == naive_bounded(word, n)
        assert 0 <= value < n
    assert function(np.uint64(0), np.uint64(n)) == 0
    assert function(np.uint64(0xFFFFFFFF), np.uint64(n)) == n - 1


@FUNCTIONS
def test_result_is_signed(function):
    assert isinstance(function(np.uint64(5), np.uint64(7)), int | np.int64)


@cpu_kernel
def many(n, out):
    for i in range(len(out)):
        out[i] = bounded(four_words(np.uint64(3), np.uint64(0), np.uint64(0), np.uint64(0), np.uint64(i), np.uint64(0))[i % 4], n)


@pytest.mark.parametrize("n", [2, 7, 10, 64, 100])
def test_uniform(n):
    out = np.empty(200_000, np.int64)
    many(np.uint64(n), out)
    assert chisquare(np.bincount(out, minlength=n)).pvalue > 1e-4
