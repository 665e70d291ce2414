"""Bytes of ordered and random accesses are counted, with and without a second-level cache."""

import numpy as np
import pytest

from hoptrain.benchmarks.traffic.count import Access, Count, Moved, distinct, sectors_of
from hoptrain.benchmarks.traffic.facts import Facts
from hoptrain.benchmarks.traffic.record import Launched
from hoptrain.kernels.cuda.thresholds import THRESHOLDS


def a_count(**arguments):
    sizes = {"zeros": np.zeros(4, np.int64), "edges0": np.array([5, 6, 7, 8])}
    names = {id(value): name for name, value in arguments.items() if name in sizes}
    return Count(Launched("kernel", (2, 4), 128, arguments), Facts(sizes=sizes, hops=(), num_edges=0), names, THRESHOLDS, 0)


def test_what_is_read_in_order_and_anywhere():
    count = a_count(rows=np.zeros((4, 100), np.int32), one=np.zeros(1000, np.int64))
    count.reads("rows", 10)
    count.writes("rows", 10, 0.5)
    count.fetches("rows", 7)
    count.scatters("one", 3, 5)
    read, written, fetched, scattered = count.accesses
    assert (read.ordered, read.is_write, read.sectors) == (40, False, 0)
    assert written.ordered == pytest.approx(40 * (1 - 0.5**8)), "eight entries share a sector"
    assert (fetched.sectors, fetched.span, fetched.copies) == (7, 400, 4)
    assert (scattered.sectors, scattered.span, scattered.copies, scattered.is_write) == (3 * 2, 8000, 1, True)


def test_totals_by_the_names_of_sizes():
    begin, end = np.zeros(4), np.zeros(4)
    count = a_count(zeros=begin, edges0=end)
    assert count.total("zeros", "edges0") == 5 + 6 + 7 + 8


def test_sectors():
    assert sectors_of(1, 4) == 1
    assert sectors_of(9, 4) == 2
    assert distinct(1, 50) == pytest.approx(1)
    assert distinct(10**6, 50) == pytest.approx(50)
    assert distinct(50, 50) == pytest.approx(50 * (1 - 0.98**50))
    rng = np.random.default_rng(0)
    assert distinct(300, 200) == pytest.approx(np.mean([len(set(rng.integers(0, 200, 300))) for _ in range(200)]), rel=0.01)


def test_a_cache_holds_the_tables_of_the_batches_that_run_at_once():
    table = Access("table", False, 0.0, 4000.0, 3200.0, 4)  # four batches, each with 1000 accesses to 100 sectors
    launch = Moved("look_up", (8, 4), 128, (table, Access("ids", True, 500.0)))
    assert launch.bytes() == (4000 * 32, 500)
    everywhere = 4 * distinct(1000, 100) * 32
    assert launch.bytes(4 * 3200, 1 << 20) == (pytest.approx(everywhere), 500)
    assert launch.bytes(2 * 3200, 1 << 20) == (4000 * 32, 500), "all four run at once, and do not fit"
    assert launch.bytes(2 * 3200, 1024) == (pytest.approx(everywhere), 500), "one runs, and the next one begins"
