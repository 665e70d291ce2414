"""The fewest rows that machines must send equal the minimum over all choices of rows to keep."""

from itertools import combinations

import numpy as np
import pytest

from hoptrain.benchmarks.machines.optimum import WINDOW, fewest, windows


def least(accesses, num_slots):
    """Return the fewest fetched rows over all choices of rows that are kept from each access to the next."""
    best = {(): 0}
    for rows in accesses:
        later = {}
        for kept, brought in best.items():
            total, candidates = brought + len(set(rows) - set(kept)), sorted({*rows, *kept})
            for size in range(min(num_slots, len(candidates)) + 1):
                for choice in combinations(candidates, size):
                    later[choice] = min(total, later.get(choice, total))
        best = later
    return min(best.values())


@pytest.mark.parametrize("num_slots", [0, 1, 2, 3, 6])
@pytest.mark.parametrize("seed", range(4))
def test_no_way_to_keep_rows_brings_fewer(seed, num_slots):
    draw = np.random.default_rng(seed)
    accesses = [np.flatnonzero(draw.random(6) < 0.4) for _ in range(7)]
    assert fewest(accesses, num_slots) == least([rows.tolist() for rows in accesses], num_slots)


def test_windows_end_with_their_epoch():
    steps = [np.array([step, 90]) for step in range(2 * (WINDOW + 1))]
    found = windows(steps, WINDOW + 1)
    assert [rows.tolist() for rows in found] == [
        [*range(WINDOW), 90], [WINDOW, 90], [*range(WINDOW + 1, 2 * WINDOW + 1), 90], [2 * WINDOW + 1, 90]
    ]  # fmt: skip
