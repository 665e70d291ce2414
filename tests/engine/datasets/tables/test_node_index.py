"""Nodes are numbered in the order of their ids, however the ids are divided into pieces."""

import numpy as np
import pytest

from hoptrain.engine.datasets.tables.nodes import NodeIndex


@pytest.mark.parametrize("top", [50, 10**12])
def test_whole_numbers_in_their_order(top):
    generator = np.random.default_rng(top)
    pieces = [generator.integers(-top, top, 100) for _ in range(20)]
    index = NodeIndex()
    codes = [index.codes(piece) for piece in pieces]
    numbers = index.close()
    known, expected = np.unique(np.concatenate(pieces), return_inverse=True)
    assert np.array_equal(np.concatenate([numbers(each) for each in codes]), expected)
    assert np.array_equal(index.ids(), known)
    assert len(index) == len(known)
    assert index.codes(np.array([known[3], top + 1])).tolist() == [3, -1]


def test_names_in_their_order():
    index = NodeIndex(is_number=False)
    codes = [index.codes(np.array(piece, object)) for piece in (["bob", "zoe", "bob"], ["ann", "zoe"])]
    numbers = index.close()
    assert [numbers(each).tolist() for each in codes] == [[1, 2, 1], [0, 2]]
    assert index.ids().tolist() == ["ann", "bob", "zoe"]


def test_ids_that_are_numbers_already():
    index = NodeIndex()
    index.codes(np.array([2, 0, 1]))
    assert index.close() is None
    assert index.ids() is None


def test_of_a_table_in_the_order_of_its_rows():
    index = NodeIndex(np.array(["7", "3", "12"], object), source="x.csv")
    assert index.is_number
    assert index.codes(np.array([3, 7, 5])).tolist() == [1, 0, -1]
    assert NodeIndex(np.array(["7", "03"], object)).codes(np.array(["03", "3"], object)).tolist() == [1, -1]
    assert index.rule() == "no node of x.csv has this id"
