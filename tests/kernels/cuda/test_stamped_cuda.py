"""Relabelling with tables that are not cleared between bulks: tables with an entry for every node, and packed tables."""

import numpy as np
import pytest
from cuda_case import TESTED, launch, needs_cuda, to_device, to_host

from hoptrain.kernels.cuda.relabel import hash_of
from hoptrain.kernels.cuda.stamped import EMPTY, PackedFields, StampedTable, enter, find_repeated_stamped, relabel_stamped
from hoptrain.kernels.shared.temporal import key_in

pytestmark = needs_cuda
NUM_NODES = 60
on_both = pytest.mark.parametrize("size", [None, 64], ids=["direct", "packed"])


class Tables:
    """Tables for some batches and trees; packed ones have ``size`` words."""

    def __init__(self, num_batches, capacity, size=None, dtype=np.int32, most_probes=None, trees=1):
        self.launch, self.capacity, self.dtype, self.start, self.size = launch(num_batches), capacity, dtype, EMPTY, size
        self.entries = to_device(np.full((num_batches, 2 * size * trees if size else NUM_NODES), EMPTY), np.int32)
        self.most_probes = most_probes or size

    def begin(self, seeds, span):
        """Begin a bulk with numbers below ``span``; return the position of each batch's first repeated seed, or 99 without one."""
        self.start -= span
        self.unplaced = to_device([0] * len(seeds))
        packed = self.size and PackedFields(self.entries.view(np.int64), self.size.bit_length() - 1, span, self.most_probes, self.unplaced)
        self.table = StampedTable(to_device([self.start] * len(seeds)), self.entries, packed)
        self.nodes, self.num_nodes = to_device(np.full((len(seeds), self.capacity), -5), self.dtype), to_device([len(row) for row in seeds])
        source = to_device([list(row) + [0] * (self.capacity - len(row)) for row in seeds], self.dtype)
        places = to_device(np.full(len(seeds), 99))
        enter(self.launch, source, self.num_nodes, self.capacity, self.table, self.nodes)
        find_repeated_stamped(self.launch, self.nodes, self.num_nodes, self.capacity, self.table, places)
        return to_host(places).tolist()

    def hop(self, neighbors, begin=None):
        """Relabel rows of nodes from the position ``begin`` on; return the rows and all nodes after the hop, as lists."""
        width = max(1, *(len(row) for row in neighbors))
        rows = to_device([list(row) + [0] * (width - len(row)) for row in neighbors], self.dtype)
        sums, after = to_device(np.zeros((len(neighbors), width))), to_device([0] * len(neighbors))
        ends = to_device(begin or [0] * len(neighbors)), to_device([len(row) for row in neighbors])
        relabel_stamped(self.launch, rows, self.nodes, width, *ends, self.capacity, self.table, sums, self.num_nodes, after)
        self.num_nodes, counts = after, to_host(after)
        local = [to_host(rows)[b, : len(row)].tolist() for b, row in enumerate(neighbors)]
        return local, [to_host(self.nodes)[b, : counts[b]].tolist() for b in range(len(neighbors))]


def expected(nodes, neighbors):
    nodes = list(dict.fromkeys([*nodes, *neighbors]))
    return [nodes.index(v) for v in neighbors], nodes


@pytest.mark.parametrize(("size", "dtype"), [(None, np.int32), (None, np.int64), (64, np.int32)])
def test_three_bulks_of_two_hops_of_two_batches(size, dtype):
    """Local ids are right in three bulks, since a bulk ignores the entries of earlier bulks."""
    rng, tables = np.random.default_rng(0), Tables(2, 40, size, dtype)
    for _ in range(3):
        nodes = [rng.permutation(NUM_NODES)[:3].tolist(), [0]]
        assert tables.begin(nodes, 64) == [99, 99]
        for _ in range(2):
            neighbors = [rng.integers(0, NUM_NODES, 20).tolist(), rng.integers(0, 15, 9).tolist()]
            local, found = tables.hop(neighbors)
            want = [expected(known, row) for known, row in zip(nodes, neighbors, strict=True)]
            assert local == [row for row, _ in want]
            assert found == [known for _, known in want]
            nodes = found
        assert to_host(tables.unplaced).tolist() == [0, 0]


@on_both
def test_numbers_up_to_the_end(size):
    """Local ids are right in the last bulk before the tables must be cleared, whose numbers start at 0."""
    tables = Tables(1, 8, size)
    tables.start = 8 + 4
    tables.begin([[7]], 8 + 4)
    assert tables.hop([[5, 7, 5, 1]]) == ([[1, 0, 1, 2]], [[7, 5, 1]])


@on_both
def test_edges_before_the_begin_stay(size):
    tables = Tables(1, 16, size)
    tables.begin([[4, 9]], 32)
    assert tables.hop([[50, 50, 9, 8, 4, 8]], begin=[2]) == ([[50, 50, 1, 2, 0, 2]], [[4, 9, 8]])


@on_both
def test_no_edges_and_only_known_nodes(size):
    tables = Tables(2, 16, size)
    tables.begin([[4, 9], [6]], 32)
    assert tables.hop([[9, 9, 4], []]) == ([[1, 1, 0], []], [[4, 9], [6]])


def test_keys_of_trees():
    """Local ids are right if several trees contain the same nodes, in three bulks of two hops."""
    rng, tables = np.random.default_rng(0), Tables(2, 96, 16, np.int64, trees=3)
    for _ in range(3):
        seeds = [[key_in(tree, node) for tree, node in enumerate(rng.integers(0, 99, 3).tolist())] for _ in range(2)]
        assert tables.begin(seeds, 256) == [99, 99]
        nodes = seeds
        for _ in range(2):
            neighbors = [[int(key_in(rng.integers(0, 3), node)) for node in rng.integers(2**31 - 6, 2**31, 20)] for _ in range(2)]
            local, found = tables.hop(neighbors)
            for b in range(2):
                assert (local[b], found[b]) == expected(nodes[b], neighbors[b])
            nodes = found
    assert to_host(tables.unplaced).tolist() == [0, 0]


def test_a_tree_has_no_place_in_the_part_of_another():
    tables = Tables(1, 20, 8, np.int64, most_probes=8, trees=2)
    assert tables.begin([[key_in(0, 1), key_in(1, 1)]], 64) == [99]
    tables.hop([[int(key_in(1, node)) for node in range(7)]])
    assert to_host(tables.unplaced).tolist() == [0]
    tables.hop([[int(key_in(1, node)) for node in range(9)]])
    assert to_host(tables.unplaced).tolist() == [1]


@on_both
def test_more_edges_than_threads(size):
    number = TESTED.block * TESTED.resident_blocks * 3 if TESTED.resident_blocks < 8 else 3000
    neighbors, tables = np.random.default_rng(3).integers(0, 50, number).tolist(), Tables(1, 64, size)
    tables.begin([[1]], 64 + number)
    local, nodes = tables.hop([neighbors])
    assert (local[0], nodes[0]) == expected([1], neighbors)


@on_both
def test_a_repeated_seed_is_found_at_its_second_place(size):
    assert Tables(3, 4, size).begin([[5, 6, 5, 6], [1, 2], [3, 3]], 8) == [2, 99, 1]


@pytest.mark.parametrize("full", [False, True])
def test_collisions(full):
    """Local ids are right if all nodes hash to the last word, so that probing wraps around; with ``full`` no word stays free."""
    size = 8
    same = [v for v in range(2**31 - 4000, 2**31) if hash_of(v) & (size - 1) == size - 1][: size if full else size - 1]
    tables = Tables(1, size, size)
    for _ in range(2):  # all words that are free in the second bulk were used before
        tables.begin([same[:2]], 64)
        neighbors = [same[::-1] * 2]
        local, nodes = tables.hop(neighbors)
        assert (local[0], nodes[0]) == expected(same[:2], neighbors[0])
    assert to_host(tables.unplaced).tolist() == [0]


@pytest.mark.parametrize(("size", "most_probes"), [(8, 8), (64, 1)])
def test_too_small_a_table_says_so_and_stays_in_bounds(size, most_probes):
    """Only the batch whose nodes do not fit into its table reports the overflow, and its local ids stay in bounds."""
    same = [v for v in range(5, 4000) if hash_of(v) & (size - 1) == 9 % size][:30]
    tables, neighbors = Tables(2, 40, size, most_probes=most_probes), [same, [3, 4]]
    assert tables.begin([[3, 4], [3, 4]], 128) == [99, 99]
    for _ in range(2):
        local, nodes = tables.hop(neighbors)
        assert to_host(tables.unplaced).tolist() == [1, 0]
        assert set(local[0]) <= set(range(len(nodes[0])))
        assert set(nodes[0]) <= {3, 4, *neighbors[0]}
        assert (local[1], nodes[1]) == ([0, 1], [3, 4])


def test_seeds_that_find_no_word_are_not_called_repeated():
    tables = Tables(1, 12, 8)
    assert tables.begin([list(range(12))], 32) == [99]
    assert to_host(tables.unplaced).tolist() == [1]
