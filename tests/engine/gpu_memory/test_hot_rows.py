"""The most frequently read rows equal those of a plain sort, and a cache has the right number of rows."""

import numpy as np
import pytest
from cases.mistakes import Mistake, each_of
from hypothesis import given
from hypothesis import strategies as st

from hoptrain.engine.gpu_memory.hot_rows import hottest, num_cached, slots_of


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40), st.data())
def test_the_hottest_are_those_that_sorting_puts_first(counts, data):
    counts = np.array(counts, np.int32)
    number = data.draw(st.integers(0, len(counts)))
    by_count_then_id = sorted(range(len(counts)), key=lambda row: (-counts[row], row))
    assert hottest(counts, number).tolist() == sorted(by_count_then_id[:number])


def test_slots_are_places_among_the_hot():
    slots = slots_of(np.array([5, 0, 3]), 7)
    assert (slots.dtype, slots.tolist()) == (np.int32, [1, -1, -1, 2, -1, 0, -1])


@pytest.mark.parametrize(
    ("size", "number"),
    [(0.1, 100), ("0.25", 250), (1, 1000), ("1", 1000), ("1KiB", 10), ("2 KB", 20), ("150B", 1), ("1GiB", 1000), ("0.5MiB", 1000)],
)
def test_sizes(size, number):
    assert num_cached(size, 1000, 100) == number


MISTAKES = {
    **{
        f"a size of {size!r}": Mistake(
            lambda size=size: num_cached(size, 1000, 100),
            value=f"gpu_cache is {size}",
            rule="bytes 2GiB share rows",
            remedy="0.1 GiB",
        )
        for size in (0, -0.5, 1.5, 2048, "2048", "many", "GiB", "1.2.3", "2XB", "2gib", float("nan"))
    },
    **{
        f"{size} without space for a row": Mistake(
            lambda size=size: num_cached(size, 1000, 100),
            value=str(size),
            rule="gpu_cache 1,000 rows 100 hold",
            remedy="give more leave out",
        )
        for size in ("99B", 0.0001)
    },
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
