import numpy as np
import pytest
from reference.neighbor import permutation as naive_permutation
from scipy.stats import chisquare

from hoptrain.kernels.cpu.shuffle import permutation


@pytest.mark.parametrize("n", [0, 1, 2, 10, 1000, 100_000])
def test_is_a_permutation(n):
    order = permutation(n, 5, 1)
    assert order.dtype == np.int64
    assert np.array_equal(np.sort(order), np.arange(n))


def test_pinned():
    assert permutation(8, 42, 3).tolist() == naive_permutation(8, 42, 3) == [1, 4, 3, 6, 5, 7, 0, 2]


@pytest.mark.parametrize(("seed", "epoch"), [(0, 0), (2**64 - 1, 0), (2**40, 2**20 - 1)])
def test_against_the_reference(seed, epoch):
    assert permutation(300, seed, epoch).tolist() == naive_permutation(300, seed, epoch)


def test_differs_by_seed_and_by_epoch():
    orders = {tuple(permutation(100, seed, epoch)) for seed in (0, 1, 2**32, 2**63) for epoch in (0, 1, 2, 2**20 - 1)}
    assert len(orders) == 16


def test_same_every_time():
    assert np.array_equal(permutation(1000, 7, 7), permutation(1000, 7, 7))


def test_every_order_equally_likely():
    counts = {}
    for epoch in range(4800):
        order = tuple(permutation(4, 9, epoch).tolist())
        counts[order] = counts.get(order, 0) + 1
    assert len(counts) == 24
    assert chisquare(list(counts.values())).pvalue > 1e-4
