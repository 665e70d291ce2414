"""Relabelling from tables with an entry for every vertex, bulk after bulk without clearing them."""

import numpy as np
import pytest
from cuda_case import TESTED, _quick_simulator, launch, needs_cuda, to_device, to_host  # noqa: F401

from hoptrain.kernels.cuda.direct import EMPTY, enter_direct, find_repeated_direct, relabel_direct

pytestmark = needs_cuda
VERTICES = 60


class Tables:
    """Tables for some batches."""

    def __init__(self, num_batches, room, dtype=np.int32):
        self.launch, self.room, self.dtype, self.start = launch(num_batches), room, dtype, EMPTY
        self.entries = to_device(np.full((num_batches, VERTICES), EMPTY), np.int32)

    def begin(self, seeds, span):
        """A bulk with numbers below ``span``; returns the place of each batch's first repeated seed, or 99."""
        self.start -= span
        self.table = to_device([self.start] * len(seeds)), self.entries
        self.nodes, self.num_nodes = to_device(np.full((len(seeds), self.room), -5), self.dtype), to_device([len(row) for row in seeds])
        source = to_device([list(row) + [0] * (self.room - len(row)) for row in seeds], self.dtype)
        places = to_device(np.full(len(seeds), 99))
        self.launch.rows(enter_direct, self.room, source, self.num_nodes, *self.table, self.nodes)
        self.launch.rows(find_repeated_direct, self.room, source, self.num_nodes, *self.table, places)
        return to_host(places).tolist()

    def hop(self, neighbors, begin=None):
        """Relabel rows of vertices from ``begin`` on; returns the rows and the nodes afterwards, as lists."""
        width = max(1, *(len(row) for row in neighbors))
        rows = to_device([list(row) + [0] * (width - len(row)) for row in neighbors], self.dtype)
        sums, after = to_device(np.zeros((len(neighbors), width))), to_device([0] * len(neighbors))
        ends = to_device(begin or [0] * len(neighbors)), to_device([len(row) for row in neighbors])
        relabel_direct(self.launch, rows, self.nodes, width, *ends, self.room, self.table, sums, self.num_nodes, after)
        self.num_nodes, counts = after, to_host(after)
        local = [to_host(rows)[b, : len(row)].tolist() for b, row in enumerate(neighbors)]
        return local, [to_host(self.nodes)[b, : counts[b]].tolist() for b in range(len(neighbors))]


def expected(nodes, neighbors):
    nodes = list(dict.fromkeys([*nodes, *neighbors]))
    return [nodes.index(v) for v in neighbors], nodes


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_three_bulks_of_two_hops_of_two_batches(dtype):
    """What a bulk leaves in the tables is nothing to the next one."""
    rng, tables = np.random.default_rng(0), Tables(2, 40, dtype)
    for _ in range(3):
        nodes = [rng.permutation(VERTICES)[:3].tolist(), [0]]
        assert tables.begin(nodes, 64) == [99, 99]
        for _ in range(2):
            neighbors = [rng.integers(0, VERTICES, 20).tolist(), rng.integers(0, 15, 9).tolist()]
            local, found = tables.hop(neighbors)
            want = [expected(known, row) for known, row in zip(nodes, neighbors, strict=True)]
            assert local == [row for row, _ in want]
            assert found == [known for _, known in want]
            nodes = found


def test_numbers_up_to_the_end():
    """The last bulk before the tables have to be filled anew starts at 0."""
    tables = Tables(1, 8)
    tables.start = 8 + 4
    tables.begin([[7]], 8 + 4)
    assert tables.hop([[5, 7, 5, 1]]) == ([[1, 0, 1, 2]], [[7, 5, 1]])


def test_edges_before_the_begin_stay():
    tables = Tables(1, 16)
    tables.begin([[4, 9]], 32)
    assert tables.hop([[50, 50, 9, 8, 4, 8]], begin=[2]) == ([[50, 50, 1, 2, 0, 2]], [[4, 9, 8]])


def test_no_edges_and_only_known_vertices():
    tables = Tables(2, 16)
    tables.begin([[4, 9], [6]], 32)
    assert tables.hop([[9, 9, 4], []]) == ([[1, 1, 0], []], [[4, 9], [6]])


def test_more_edges_than_threads():
    number = TESTED.block * TESTED.resident_blocks * 3 if TESTED.resident_blocks < 8 else 3000
    neighbors, tables = np.random.default_rng(3).integers(0, 50, number).tolist(), Tables(1, 64)
    tables.begin([[1]], 64 + number)
    local, nodes = tables.hop([neighbors])
    assert (local[0], nodes[0]) == expected([1], neighbors)


def test_a_repeated_seed_is_found_at_its_second_place():
    assert Tables(3, 4).begin([[5, 6, 5, 6], [1, 2], [3, 3]], 8) == [2, 99, 1]
