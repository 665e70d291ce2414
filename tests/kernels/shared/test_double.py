"""Double precision emulated with integers equals the processor's."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hoptrain.kernels.shared.double import double_of, double_of_single, over, plus, single_of, times

integers = st.integers(1, 2**64 - 1) | st.integers(1, 1000) | st.integers(1, 63).map(lambda bit: (1 << bit) + 1)


def value(number):
    return math.ldexp(float(number[0]), number[1])


def bits(x):
    return int(np.float32(x).view(np.uint32))


@settings(max_examples=150)
@given(a=integers, b=integers, c=integers)
@example(a=2**53 + 1, b=2**53 + 3, c=2**54 - 1)
@example(a=3 * 2**52 - 1, b=2**53 - 1, c=2**53 - 1)
@example(a=2**24 + 1, b=2**24 + 3, c=2**25 - 1)
def test_equal_to_float64(a, b, c):
    x, y, z = (double_of(np.uint64(n)) for n in (a, b, c))
    for number, n in ((x, a), (y, b), (z, c)):
        assert value(number) == float(np.float64(np.uint64(n)))
        assert int(number[0]).bit_length() == 53
        assert single_of(*number) == bits(float(np.uint64(n)))
    quotient = over(*x, *y)
    assert value(quotient) == float(a) / float(b)
    assert value(times(*x, *z)) == float(a) * float(c)
    assert value(times(*quotient, *z)) == float(a) / float(b) * float(c)
    assert value(plus(*quotient, *z)) == float(a) / float(b) + float(c) == value(plus(*z, *quotient))
    assert single_of(*quotient) == bits(float(a) / float(b))
    assert value(double_of_single(single_of(*quotient))) == float(np.float32(float(a) / float(b)))


@pytest.mark.parametrize("denominator", [3, 7, 2**52 + 1, 2**53 - 1])
def test_sums_of_singles(denominator):
    rng = np.random.default_rng(denominator)
    singles = (rng.integers(1, 1 << 40, 200) / denominator).astype(np.float32)
    total, expected = double_of_single(bits(singles[0])), 0.0 + float(singles[0])
    for x in singles[1:]:
        total, expected = plus(*total, *double_of_single(bits(x))), expected + float(x)
    assert value(total) == expected
