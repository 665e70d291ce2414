"""Relabelling: local ids in order of first appearance, from a hash table with collisions and few free entries."""

import numpy as np
import pytest
from cuda_case import TESTED, launch, needs_cuda, to_device, to_host

from hoptrain.kernels.cuda.relabel import clear_table, enter_nodes, find_repeated, hash_of, relabel

pytestmark = needs_cuda


class Relabelling:
    """Hash tables of ``size`` entries for some batches; at first they contain the seeds."""

    def __init__(self, seeds, size, capacity, dtype=np.int32):
        num_batches, self.capacity, self.dtype = len(seeds), capacity, dtype
        self.launch = launch(num_batches)
        self.nodes = to_device(np.full((num_batches, capacity), -5), dtype)
        self.keys, self.values = to_device(np.zeros((num_batches, size)), dtype), to_device(np.zeros((num_batches, size)), np.int32)
        clear_table(self.launch, self.keys, self.values)
        self.num_nodes = to_device([len(row) for row in seeds])
        padded = [list(row) + [0] * (capacity - len(row)) for row in seeds]
        self.seeds = to_device(padded, dtype)
        self.launch.rows(enter_nodes, capacity, self.seeds, self.num_nodes, self.keys, self.values, self.nodes)

    def repeated(self):
        places = to_device(np.full(len(self.num_nodes), 99))
        self.launch.rows(find_repeated, self.capacity, self.seeds, self.num_nodes, self.keys, self.values, places)
        return to_host(places).tolist()

    def hop(self, neighbors, begin=None):
        """Relabel rows of nodes from the position ``begin`` on; return the rows and all nodes after the hop, as lists."""
        begin = begin or [0] * len(neighbors)
        width = max(len(row) for row in neighbors)
        rows = to_device([list(row) + [0] * (width - len(row)) for row in neighbors], self.dtype)
        slots, ranks = to_device(np.zeros((len(neighbors), width)), np.int32), to_device(np.zeros((len(neighbors), width + 1)), np.int32)
        sums, after = to_device(np.zeros((len(neighbors), width))), to_device([0] * len(neighbors))
        end = to_device([len(row) for row in neighbors])
        relabel(
            self.launch, rows, self.nodes, width, to_device(begin), end, self.capacity, (self.keys, self.values), (slots, ranks, sums),
            self.num_nodes, after,
        )  # fmt: skip
        self.num_nodes = after
        counts = to_host(after)
        local = [to_host(rows)[b, : len(row)].tolist() for b, row in enumerate(neighbors)]
        return local, [to_host(self.nodes)[b, : counts[b]].tolist() for b in range(len(neighbors))]


def expected(nodes, neighbors):
    nodes = list(dict.fromkeys([*nodes, *neighbors]))
    return [nodes.index(v) for v in neighbors], nodes


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_two_hops_of_two_batches(dtype):
    rng = np.random.default_rng(0)
    seeds = [[7, 3, 11], [0]]
    table = Relabelling(seeds, 64, 32, dtype)
    nodes = seeds
    for _ in range(2):
        neighbors = [rng.integers(0, 15, 20).tolist(), rng.integers(0, 15, 9).tolist()]
        local, found = table.hop(neighbors)
        want = [expected(known, row) for known, row in zip(nodes, neighbors, strict=True)]
        assert local == [row for row, _ in want]
        assert found == [known for _, known in want]
        nodes = found


def test_ids_beyond_32_bits():
    big = 2**39
    table = Relabelling([[big, 5]], 16, 8, np.int64)
    local, nodes = table.hop([[big + 1, big, 5, big + 1, big + 2**32 + 1]])
    assert local == [[2, 0, 1, 2, 3]]
    assert nodes == [[big, 5, big + 1, big + 2**32 + 1]]


@pytest.mark.parametrize("full", [False, True])
def test_collisions(full):
    """Relabelling is right if all nodes hash to the last entry, so that probing wraps around; with ``full`` no entry stays free."""
    size = 8
    same = [v for v in range(4000) if hash_of(v) & (size - 1) == size - 1][: size if full else size - 1]
    table = Relabelling([same[:2]], size, size)
    neighbors = [same[::-1] * 2]
    local, nodes = table.hop(neighbors)
    assert (local[0], nodes[0]) == expected(same[:2], neighbors[0])


def test_edges_before_the_begin_stay():
    table = Relabelling([[4, 9]], 32, 16)
    local, nodes = table.hop([[70, 70, 9, 8, 4, 8]], begin=[2])
    assert local == [[70, 70, 1, 2, 0, 2]]
    assert nodes == [[4, 9, 8]]


def test_no_edges_and_only_known_nodes():
    table = Relabelling([[4, 9], [6]], 32, 16)
    local, nodes = table.hop([[9, 9, 4], []])
    assert local == [[1, 1, 0], []]
    assert nodes == [[4, 9], [6]]


def test_more_edges_than_threads():
    neighbors = np.random.default_rng(3).integers(0, 50, TESTED.block * TESTED.max_blocks * 3).tolist()
    local, nodes = Relabelling([[1]], 128, 64).hop([neighbors])
    assert (local[0], nodes[0]) == expected([1], neighbors)


def test_a_repeated_seed_is_found_at_its_second_place():
    assert Relabelling([[5, 6, 5, 6], [1, 2], [3, 3]], 16, 4).repeated() == [2, 99, 1]
