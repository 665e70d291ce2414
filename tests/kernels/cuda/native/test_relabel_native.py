"""Relabelling in CUDA C++: the local ids and nodes of the Numba kernels and of a plain loop, whatever the order of the threads."""

import numpy as np
import pytest
from cpp.machines import Host, Interpreter, on_each_machine
from cuda_case import _quick_simulator, launch, needs_cuda, to_device, to_host  # noqa: F401
from ptx.launch import Fault

from hoptrain.kernels.cuda import native
from hoptrain.kernels.cuda.relabel import clear_table, enter_nodes, hash_of, relabel

pytestmark = needs_cuda
GRID, BLOCK = 3, 64


class Relabelling:
    """Tables of ``size`` places for some batches, with the seeds entered."""

    def __init__(self, machine, seeds, size, room):
        self.machine, self.size, self.room, self.num_batches = machine, size, room, len(seeds)
        self.table = machine.array(np.zeros((len(seeds), size)), np.uint64)
        self.nodes = machine.array(np.full((len(seeds), room), -5), np.int32)
        self.count = machine.array([len(row) for row in seeds], np.int64)
        self.launch("clear_places", self.table, size)
        self.launch("enter_places", padded(machine, seeds, room), room, self.count, self.table, size, self.nodes, room)

    def launch(self, kernel, *arguments):
        self.machine.run("relabel", kernel, (GRID, self.num_batches), (BLOCK,), arguments)

    def hop(self, neighbors, begin=None):
        """Relabel rows of vertices from ``begin`` on; returns the rows and the nodes afterwards, as lists."""
        machine, table, width = self.machine, self.table, max(1, *(len(row) for row in neighbors))
        rows, begins = padded(machine, neighbors, width), begin or [0] * len(neighbors)
        begin, end = machine.array(begins, np.int64), machine.array([len(row) for row in neighbors], np.int64)
        slots = machine.array(np.zeros((len(neighbors), width)), np.int32)
        ranks = machine.array(np.zeros((len(neighbors), width + 1)), np.int32)
        self.launch("insert_places", rows, width, begin, end, self.room, table, self.size, slots)
        self.launch("mark_places", begin, end, self.room, table, self.size, slots, width, ranks)
        for b, (first, last) in enumerate(zip(begins, end, strict=True)):  # the scan is another kernel's
            flags = ranks[b, first:last].tolist()
            ranks[b, first : last + 1] = self.count[b] + np.concatenate([[0], np.cumsum(flags)])
            self.count[b] = ranks[b, last]
        self.launch("append_places", rows, width, begin, end, slots, ranks, table, self.size, self.nodes, self.room)
        self.launch("look_up_places", begin, end, table, self.size, slots, width, rows)
        local = [rows[b, : len(row)].tolist() for b, row in enumerate(neighbors)]
        return local, [self.nodes[b, : self.count[b]].tolist() for b in range(len(neighbors))]


def padded(machine, rows, width):
    return machine.array([list(row) + [0] * (width - len(row)) for row in rows], np.int32)


def expected(nodes, neighbors):
    nodes = list(dict.fromkeys([*nodes, *neighbors]))
    return [nodes.index(v) for v in neighbors], nodes


@on_each_machine
def test_two_hops_of_two_batches(machine):
    rng = np.random.default_rng(0)
    seeds = [[7, 3, 11], [2**31 - 1]]
    table, nodes = Relabelling(machine, seeds, 1024, 600), seeds
    for _ in range(2):
        neighbors = [rng.integers(0, 300, 500).tolist(), rng.integers(2**31 - 20, 2**31, 90).tolist()]
        want = [expected(known, row) for known, row in zip(nodes, neighbors, strict=True)]
        nodes = [known for _, known in want]
        assert table.hop(neighbors) == ([row for row, _ in want], nodes)


@on_each_machine
@pytest.mark.parametrize("full", [False, True])
def test_collisions(machine, full):
    """Vertices that all belong into the last place of the table, so that probing wraps around; with ``full`` no place stays empty."""
    size = 8
    same = [v for v in range(4000) if hash_of(v) & (size - 1) == size - 1][: size if full else size - 1]
    neighbors = same[::-1] * 20
    found = Relabelling(machine, [same[:2]], size, 200).hop([neighbors])
    assert found == ([expected(same[:2], neighbors)[0]], [expected(same[:2], neighbors)[1]])


@on_each_machine
def test_edges_before_the_begin_and_a_batch_without_edges(machine):
    table = Relabelling(machine, [[4, 9], [6]], 32, 16)
    assert table.hop([[70, 70, 9, 8, 4, 8], []], begin=[2, 0]) == ([[70, 70, 1, 2, 0, 2], []], [[4, 9, 8], [6]])


@on_each_machine
def test_numba_s_kernels_give_the_same(machine):
    seeds, width, size, room = [5, 9, 2], 40, 64, 48
    neighbors = np.random.default_rng(4).integers(0, 30, width)
    numba_s = launch(1)
    keys, values = to_device(np.zeros((1, size)), np.int32), to_device(np.zeros((1, size)), np.int32)
    nodes, rows, after = to_device(np.zeros((1, room)), np.int32), to_device([neighbors], np.int32), to_device([0])
    clear_table(numba_s, keys, values)
    numba_s.rows(enter_nodes, room, to_device([seeds], np.int32), to_device([3]), keys, values, nodes)
    scratch = to_device(np.zeros((1, width)), np.int32), to_device(np.zeros((1, width + 1)), np.int32), to_device(np.zeros((1, width)))
    relabel(numba_s, rows, nodes, width, to_device([0]), to_device([width]), room, (keys, values), scratch, to_device([3]), after)
    local, found = Relabelling(machine, [seeds], size, room).hop([neighbors.tolist()])
    assert local == to_host(rows).tolist()
    assert found == [to_host(nodes)[0, : to_host(after)[0]].tolist()]


def test_numba_s_table_hashes_alike():
    """So that a vertex has the same place in both."""
    table = Relabelling(Host(), [[123456]], 4096, 4).table
    assert np.flatnonzero(table[0] != np.uint64(2**64 - 1)).tolist() == [hash_of(123456) & 4095]
    assert table[0, hash_of(123456) & 4095] == 123456 << 32


@pytest.mark.parametrize(
    ("good", "bad", "fault"),
    [
        ("atomicMin(row + slot, mine)", "row[slot] = mine", "insert_places: race: write after write"),
        ("found = atomicCAS(row + slot, EMPTY, mine)", "row[slot] = mine", "race: write after write"),
        ("slot = (slot + 1) & (size - 1)", "slot = slot + 1", "out of bounds"),
        ("EACH(e, begin[b], end[b]) local", "EACH(e, begin[b], end[b] + 1) local", "look_up_places: "),
    ],
)
def test_faults_in_the_source_are_found(good, bad, fault):
    """A small table, crowded, with more edges than it has places."""
    text = native.source("relabel")
    assert text.count(good) == 1
    seeds, neighbors = [[3, 4]], [np.random.default_rng(0).integers(0, 30, 190).tolist()]
    with pytest.raises(AssertionError, match=fault):
        Relabelling(Interpreter("sm_80", text.replace(good, bad)), seeds, 32, 40).hop(neighbors)


def test_a_slot_beyond_the_table_is_found():
    machine = Interpreter("sm_80")
    table, begin, end = machine.array(np.zeros((1, 8)), np.uint64), machine.array([0], np.int64), machine.array([3], np.int64)
    slots, local = machine.array([[0, 8, 1]], np.int32), machine.array([[0, 0, 0]], np.int32)
    with pytest.raises(Fault, match="look_up_places: out of bounds"):
        machine.run("relabel", "look_up_places", (1, 1), (32,), (begin, end, table, 8, slots, 3, local))
