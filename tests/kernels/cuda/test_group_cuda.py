"""Requests grouped by node: each request is in the group of its node, and each node is in the class for its work."""

from itertools import chain

import numpy as np
import pytest
from cuda_case import SMALL, TESTED, launch, needs_cuda, to_device, to_host

from hoptrain.kernels.cuda.draw import DISTINCT, REPLACE, WEIGHTED, num_units, unit_size
from hoptrain.kernels.cuda.group import CLASSES, MEMBERS, NUM_CLASSES, NUM_COUNTERS, TRANSITS, Groups, class_of, group_requests
from hoptrain.kernels.cuda.sample_parallel import lane_bits_of
from hoptrain.kernels.cuda.thresholds import COPY_UNIT
from hoptrain.kernels.cuda.transit_parallel import staging_pays

pytestmark = needs_cuda


def group(degrees, rows, low, fanout, mode, alias=None):
    """Group ``rows`` of nodes, numbered from ``low``; return the groups as {node: requests}, their classes, and the tables."""
    num_batches, width = len(rows), max(len(row) for row in rows)
    indptr = np.concatenate([[0], np.cumsum(degrees)])
    most = min(len(degrees), num_batches * width)
    groups = Groups(
        counters=to_device(np.full(NUM_COUNTERS, 77)),
        group_size=to_device(np.zeros(len(degrees)), np.int32),
        transit_of=to_device(np.full(len(degrees), -9), np.int32),
        transits=to_device(np.zeros(most), np.int32),
        sizes=to_device(np.zeros(most), np.int32),
        starts=to_device(np.zeros(most)),
        classes=to_device(np.zeros((NUM_CLASSES, most)), np.int32),
        ranks=to_device(np.zeros((num_batches, width)), np.int32),
        members=to_device(np.zeros(num_batches * width)),
    )
    graph = to_device(indptr), None, None, to_device(np.zeros(indptr[-1]) if alias is None else alias, np.int32)
    nodes = to_device([list(row) + [0] * (width - len(row)) for row in rows], np.int32)
    requests = nodes, to_device(low), to_device([len(row) for row in rows])
    group_requests(launch(num_batches), graph, requests, width, (fanout, mode, None), groups)
    counters = to_host(groups.counters)
    starts, sizes, members = (to_host(a) for a in (groups.starts, groups.sizes, groups.members))
    found = {}
    for t, node in enumerate(to_host(groups.transits)[: counters[TRANSITS]].tolist()):
        assert node not in found
        found[node] = sorted(divmod(m, 1 << 40) for m in members[starts[t] : starts[t] + sizes[t]].tolist())
    assert counters[MEMBERS] == sum(map(len, found.values()))
    classes = [
        sorted(to_host(groups.transits)[to_host(groups.classes)[kind, : counters[CLASSES + kind]]].tolist()) for kind in range(NUM_CLASSES)
    ]
    assert sorted(chain.from_iterable(classes)) == sorted(found)
    return found, classes, groups


def expected_groups(rows, low, gives):
    found = {}
    for b, row in enumerate(rows):
        for i in range(low[b], len(row)):
            if gives(row[i]):
                found.setdefault(row[i], []).append((b, i))
    return found


def test_every_request_is_in_its_group_once():
    rng = np.random.default_rng(0)
    rows = [rng.permutation(30)[:n].tolist() for n in (20, 1, 30, 7)]
    low, degrees = [0, 0, 5, 6], rng.integers(0, 5, 30)
    found, _, groups = group(degrees, rows, low, 2, REPLACE)
    assert found == expected_groups(rows, low, lambda v: degrees[v] > 0)
    assert not to_host(groups.group_size).any(), "the counts are cleared for the next grouping"


def test_one_node_in_every_batch():
    found, _, _ = group([3], [[0]] * 40, [0] * 40, 2, DISTINCT)
    assert found == {0: [(b, 0) for b in range(40)]}


def test_a_column_without_weight_makes_no_transit():
    found, _, _ = group([2, 2], [[0, 1], [1]], [0, 0], 2, WEIGHTED, alias=[-1, -1, 0, 1])
    assert found == {1: [(0, 1), (1, 0)]}


def test_classes_at_their_borders():
    """Nodes whose work is at the border of a class get the right class; if all edges are taken, the work in a batch is the degree."""
    degrees = [border + more for border in (-1, TESTED.thread_work, TESTED.warp_work, TESTED.block_work) for more in (0, 1)][1:]
    _, classes, _ = group(degrees, [list(range(7))], [0], -1, DISTINCT)
    assert classes == [[1], [2, 3], [4, 5], [6]]


def test_work_counts_requests_and_units():
    borders = 4, 128, 8192
    for border, below in zip(borders, range(3), strict=True):
        assert [class_of.py_func(border + d, *borders) for d in (-1, 0, 1)] == [below, below, below + 1]


@pytest.mark.parametrize(
    ("degree", "fanout", "mode", "size", "units"),
    [
        (0, 5, DISTINCT, COPY_UNIT, 0),
        (5, 5, DISTINCT, COPY_UNIT, 1),
        (6, 5, DISTINCT, 5, 1),
        (COPY_UNIT, 100, DISTINCT, COPY_UNIT, 1),
        (COPY_UNIT + 1, 100, DISTINCT, COPY_UNIT, 2),
        (7, -1, DISTINCT, 1, 7),
        (7, -1, WEIGHTED, 1, 7),
        (2, 8, REPLACE, 4, 2),
        (2, 9, REPLACE, 4, 3),
        (2, 9, WEIGHTED, 2, 5),
        (0, 9, WEIGHTED, COPY_UNIT, 0),
    ],
)
def test_units(degree, fanout, mode, size, units):
    assert (unit_size(degree, fanout, mode), num_units(degree, fanout, mode)) == (size, units)


@pytest.mark.parametrize(
    ("fanout", "mode", "bits"), [(-1, DISTINCT, 2), (5, DISTINCT, 0), (40, DISTINCT, 1), (9, REPLACE, 2), (8, REPLACE, 1), (3, WEIGHTED, 1)]
)
def test_lanes_of_a_request(fanout, mode, bits):
    assert lane_bits_of(fanout, mode, SMALL) == bits


def test_staging_pays_where_it_moves_fewer_bytes():
    def pays(units, degree, fanout, capacity=1000):
        return staging_pays(units, degree, fanout, DISTINCT, capacity, 4, 32)

    assert not pays(1, 40, 5)  # 5 sectors = 160 bytes = the list
    assert pays(1, 39, 5)
    assert pays(2, 79, 5)
    assert not pays(2, 79, 5, capacity=78)
    assert not pays(1, 5, 5), "one request that takes all reads the list once either way"
    assert pays(2, 5, 5)
    assert not pays(50, 50, -1)
    assert pays(51, 50, -1)
