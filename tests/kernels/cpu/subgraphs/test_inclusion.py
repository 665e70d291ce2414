"""Inclusion probabilities equal exact fractions to the last digits, even if they are tiny."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hoptrain.kernels.cpu.subgraphs import inclusion

rates = st.floats(1e-18, 0.3)


def exact(draws, a, b, both, whole):
    a, b, both, whole = map(Fraction, (a, b, both, whole))
    return whole**draws - (whole - a) ** draws - (whole - b) ** draws + (whole - a - b + both) ** draws


@settings(max_examples=200)
@given(draws=st.integers(1, 300), a=rates, b=rates, share=st.sampled_from([0.0, 1e-9, 0.5, 1.0]), whole=st.sampled_from([1.0, 0.75]))
def test_both_hit(draws, a, b, share, whole):
    both = min(a, b) * share
    expected = float(exact(draws, a, b, both, whole))
    assert inclusion.both_hit(draws, a, b, both, whole) == pytest.approx(expected, rel=1e-13 * (1 + draws / 100), abs=0)


@settings(max_examples=100)
@given(draws=st.integers(1, 300), rate=rates | st.just(1.0) | st.just(0.0))
def test_hit(draws, rate):
    assert inclusion.hit(draws, rate, 1.0) == pytest.approx(float(1 - (1 - Fraction(rate)) ** draws), rel=1e-13 * (1 + draws / 100), abs=0)


def test_many_draws():
    """No inclusion probability is below 0 or above 1, even if draws are certain or nearly certain."""
    for draws in (1, 2, 3, 2**20 + 7, 2**31 - 1):
        assert inclusion.hit(draws, 1.0, 1.0) == 1
        assert inclusion.both_hit(draws, 1.0, 1.0, 0.0, 1.0) == 1
        assert inclusion.both_hit(draws, 0.0, 0.5, 0.0, 1.0) == 0
    assert inclusion.hit(2**31 - 1, 1e-9, 1.0) == pytest.approx(1 - np.exp(-2.147483647), rel=1e-6)


def test_masses_are_those_of_the_table():
    """``table_masses`` adds up each node's mass.

    One entry of the alias table is always kept, one never, and one half of the time.
    """
    masses = np.empty(3, np.int64)
    inclusion.table_masses(np.array([2**32 - 1, 0, 2**31], np.uint32), np.array([0, 2, 0], np.int32), masses)
    assert masses.tolist() == [2**32 + 2**31, 0, 2**32 + 2**31]
