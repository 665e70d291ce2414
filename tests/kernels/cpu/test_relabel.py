"""The relabelling table gives the local ids of a Python dictionary, in both of its layouts."""

import numpy as np
import pytest

from hoptrain.kernels.cpu.relabel import home, relabel
from hoptrain.samplers.buffers.workspace import RelabelTable


@pytest.fixture(params=["direct", "hashed"])
def table(request):
    return RelabelTable(direct_bytes=0 if request.param == "hashed" else None)


def relabelled(table, ids, num_graph_nodes, dtype):
    local, nodes = np.array(ids, dtype), np.full(len(ids) + 1, -1, dtype)
    table.start(num_graph_nodes, len(ids))
    count = relabel(local, 0, len(ids), table.view(), nodes, 0)
    return local.tolist(), nodes[:count].tolist()


def expected(ids):
    nodes = list(dict.fromkeys(ids))
    return [nodes.index(v) for v in ids], nodes


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_order_of_first_appearance(table, dtype):
    source = np.random.default_rng(1)
    for size in (0, 1, 2, 31, 32, 33, 60, 500):
        ids = source.integers(0, 90, size).tolist()
        assert relabelled(table, ids, 90, dtype) == expected(ids)


def test_stamps_that_run_out_clear_the_table(table):
    source = np.random.default_rng(2)
    table.start(1 << 20, 1 << 20)  # 20 bits for a local id leave 12 for the stamp: 4095 batches
    assert table.view().id_bits == 20
    stamps = set()
    for _ in range(4200):
        ids = [*source.integers(0, 1 << 20, 6).tolist(), 5, 6, 5]
        assert relabelled(table, ids, 1 << 20, np.int32) == expected(ids)
        stamps.add(int(table.view().stamp))
    assert len(stamps) == 4095
    assert 0 not in stamps


def test_more_nodes_than_local_ids_have_bits_widen_them_in_mid_batch(table):
    nodes = np.zeros(100, np.int32)
    nodes[:2] = [8, 3]
    table.start(1000, 2)
    assert table.view().id_bits == 1
    assert table.enter(nodes, 2) == -1
    table.reserve(nodes, 2, 50)
    assert table.view().id_bits == 6
    ids = np.array([3, 7, 8, 7, *range(100, 130)], np.int32)
    assert relabel(ids, 0, len(ids), table.view(), nodes, 2) == 33
    assert ids[:4].tolist() == [1, 2, 0, 2]


def test_a_hash_table_that_grows_in_mid_batch_keeps_its_entries():
    table, nodes = RelabelTable(direct_bytes=0), np.zeros(500, np.int64)
    nodes[:4] = [70, 10**11, 3, 9]
    table.start(10**12, 4)
    assert table.enter(nodes, 4) == -1
    before = table.view().slot_bits
    table.reserve(nodes, 4, 400)
    assert table.view().slot_bits > before
    ids = np.array([9, 8, 10**11, 8, *range(100, 300)])
    assert relabel(ids, 0, len(ids), table.view(), nodes, 4) == 205
    assert ids[:6].tolist() == [3, 4, 1, 4, 5, 6]


def test_colliding_nodes_keep_apart():
    table = RelabelTable(direct_bytes=0)
    table.start(10**6, 10)
    bits = table.view().slot_bits
    same = [v for v in range(3000) if home(v, bits) == home(7, bits)][:10]
    assert len(same) == 10
    ids = same + same[::-1]
    assert relabelled(table, ids, 10**6, np.int64) == expected(ids)


def test_a_node_entered_twice_is_found(table):
    table.start(50, 5)
    assert table.enter(np.array([4, 9, 2, 9, 4], np.int32), 5) == 3


def test_one_table_serves_graphs_of_any_size(table):
    for num_graph_nodes in (100, 10, 1000, 1, 33):
        for _ in range(3):
            ids = [0, num_graph_nodes - 1, 0]
            assert relabelled(table, ids, num_graph_nodes, np.int32) == expected(ids)
