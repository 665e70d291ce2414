"""Rows of other machines: values equal the stored ones, messages are minimal, and mismatching machines are reported."""

import os
import re
import subprocess
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from cases.mistakes import refused
from hypothesis import given, settings
from hypothesis import strategies as st
from ranks import in_threads, meetings

from hoptrain.engine import Dataset, Graph, InputError
from hoptrain.engine.partition import rows as rows_module
from hoptrain.engine.partition.comm_process_exchange import CommProcessExchange, carry
from hoptrain.engine.partition.exchange import LocalExchange
from hoptrain.engine.partition.folder import open_partition, part_folder, write_partition
from hoptrain.engine.partition.rank_rows import RankRows
from hoptrain.engine.partition.rounds import WindowRows
from hoptrain.engine.partition.rows import PartitionedFeatures, open_partitioned
from hoptrain.engine.partition.runs import LeftRunError, RunExchange
from hoptrain.engine.queue.message_slot import SharedMessageSlot
from hoptrain.engine.storage.shared_rows import CachedTable, SharedRows

NUMBER, ROW_BYTES, ID_BYTES, HEAD_BYTES = 60, 12, 4, 8


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    graph = Graph.from_edges(*rng.integers(0, NUMBER, (2, 300)), NUMBER)
    return Dataset(name="made", graph=graph, x=rng.random((NUMBER, 3), dtype=np.float32), y=rng.integers(0, 2, NUMBER))


@pytest.fixture(scope="module")
def parts(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    for number in (1, 2, 3):
        write_partition(data, folder / str(number), number, "range")
    return folder


def machines_of(parts, number, ranks_each=1):
    """Return the features of each machine after the machines agreed on their partitions."""
    found = []
    for machine in range(number):
        for _ in range(ranks_each):
            rows = PartitionedFeatures(open_partition(parts / str(number)))
            rows.settle([[m * ranks_each + i for i in range(ranks_each)] for m in range(number)], machine)
            found.append(rows)
    return found


WINDOWS = st.lists(st.lists(st.lists(st.integers(0, NUMBER - 1), unique=True), min_size=3, max_size=3), min_size=1, max_size=4)


@given(windows=WINDOWS, number=st.sampled_from([2, 3]))
@settings(max_examples=25)
def test_rows_come_in_the_fewest_bytes(parts, data, windows, number):
    machines, exchanges = machines_of(parts, number), LocalExchange.among(number)
    wanted = [[np.array(sorted(window[machine]), np.int32) for window in windows] for machine in range(number)]

    def run(machine):
        exchange, rows = RunExchange(exchanges[machine]), machines[machine]
        rounds = WindowRows(rows, exchange)
        asked = [*wanted[machine], np.empty(0, np.int32)]
        for window, later in enumerate(asked):
            rounds.next(later)
            ids = rows.elsewhere(asked[window - 1] if window else asked[-1])
            found = np.empty((len(ids), ROW_BYTES), np.uint8)
            rows.read(ids, np.arange(len(ids)), found)
            assert np.array_equal(found.view(np.float32), data.x[ids])
        return exchange.num_sent, exchange.num_rounds, rounds.num_fetched

    results = in_threads([lambda machine=machine: run(machine) for machine in range(number)])
    owner = open_partition(parts / str(number)).owner
    foreign = sum(int((owner(ids) != machine).sum()) for machine in range(number) for ids in wanted[machine] if len(ids))
    rounds = len(windows) + 1
    assert sum(sent for sent, _, _ in results) == foreign * (ROW_BYTES + ID_BYTES) + rounds * number * (number - 1) * HEAD_BYTES
    assert [made for _, made, _ in results] == [rounds] * number
    assert sum(fetched for _, _, fetched in results) == foreign


def test_a_machine_of_an_earlier_run_is_named(parts):
    machines, exchanges = machines_of(parts, 2), LocalExchange.among(2)
    wanted = np.arange(NUMBER, dtype=np.int32)

    def begun(machine, run):
        exchange = RunExchange(exchanges[machine])
        exchange.run = run
        return exchange, WindowRows(machines[machine], exchange)

    def behind():
        exchange, rounds = begun(0, 1)
        rounds.next(wanted)
        with pytest.raises(LeftRunError):
            rounds.next(wanted)
        exchange.run = 2
        rounds.begin()
        rounds.next(wanted)
        rounds.next(wanted[:0])
        return exchange.num_rounds, rounds.num_fetched

    def ahead():
        exchange, rounds = begun(1, 1)
        rounds.next(wanted)
        exchange.run = 2
        rounds.begin()
        rounds.next(wanted)
        rounds.next(wanted[:0])
        return exchange.num_rounds, rounds.num_fetched

    assert in_threads([behind, ahead]) == [(4, NUMBER // 2)] * 2


@pytest.mark.parametrize("ranks_each", [1, 2])
def test_ranks_take_rows_together_as_often_as_each_needs(parts, data, ranks_each):
    machines, exchanges = machines_of(parts, 2, ranks_each), LocalExchange.among(2 * ranks_each)
    pieces = [[[5, 3, 59, 3], [0, 59]], [[]], [list(range(NUMBER))], [[7], [8], [9]]]

    def run(rank):
        own = RankRows(machines[rank], exchanges[rank])
        for piece in pieces[rank]:
            ids = np.array(piece, np.int64)
            assert np.array_equal(own.take(ids).view(np.float32).reshape(-1, 3), data.x[ids])
        own.finish()
        return True

    assert all(in_threads([lambda rank=rank: run(rank) for rank in range(2 * ranks_each)]))


def test_a_communication_process_exchanges_for_another_process():
    made, locals_ = [], LocalExchange.among(2)
    for local in locals_:
        letters, answers = SharedMessageSlot.make(), SharedMessageSlot.make()
        threading.Thread(target=carry, args=(letters, answers, local), daemon=True).start()
        made.append((letters, CommProcessExchange(local.rank, 2, letters, answers, pid=1, patience_s=20)))

    def run(rank):
        own = made[rank][1]
        sizes = [3, 100_000, 0]
        for size in sizes:
            got = own.exchange([np.full(size * (p != rank), 10 * rank + p, np.uint8) for p in range(2)])
            assert np.array_equal(got[1 - rank], np.full(size, 10 * (1 - rank) + rank, np.uint8))
            assert len(got[rank]) == 0
        return True

    assert in_threads([lambda rank=rank: run(rank) for rank in range(2)]) == [True, True]
    locals_[0].abort()
    with refused("another machine", "ended not reason time", "own output"):
        made[0][1].exchange([np.empty(0, np.uint8)] * 2)
    made[1][0].put(-1, [np.empty(0, np.uint8)] * 2)  # also ends the other thread


def test_a_communication_process_that_does_not_answer_is_named():
    letters, answers, nothing = SharedMessageSlot.make(), SharedMessageSlot.make(), [np.empty(0, np.uint8)] * 2
    with refused("0.2 s", "rows other machines makes progress", "hoptrain explain rows"):
        CommProcessExchange(0, 2, letters, answers, os.getpid(), 0.2).exchange(nothing)
    with subprocess.Popen(["sleep", "60"]) as process:
        process.kill()
        with refused("process", "exchanges rows machines killed", "hoptrain explain rows"):
            CommProcessExchange(0, 2, letters, answers, process.pid, 20.0).exchange(nothing)


def test_one_machine_with_all_parts_asks_nobody(parts, data):
    found = open_partitioned(parts / "3")
    ids = np.array([5, 59, 5, 0])
    assert np.array_equal(found.x.take(ids), data.x[ids])
    assert found.num_features == 3


def reported_by(parts, monkeypatch, folders, machines):
    """Return each rank's machine, its ranks, and its partition, or its error; rank r has ``folders[r]`` on ``machines[r]``."""
    local = threading.local()
    monkeypatch.setattr(rows_module, "machine", lambda: local.machine)
    monkeypatch.setattr(rows_module, "socket", SimpleNamespace(gethostname=lambda: f"host{local.machine}"))
    rows = [PartitionedFeatures(open_partition(folder)) for folder in folders]

    def meet(rank, meeting):
        local.machine = machines[rank]
        try:
            rows[rank].meet(meeting)
        except InputError as error:
            return str(error)
        own = rows[rank].own
        return rows[rank].machine, rows[rank].ranks, sorted(rows[rank].files) if own is None else (own.first, own.end)

    met = meetings(len(folders))
    return in_threads([lambda rank=rank, meeting=meeting: meet(rank, meeting) for rank, meeting in enumerate(met)])


def test_machines_have_the_parts_of_their_numbers(parts, monkeypatch):
    assert reported_by(parts, monkeypatch, [parts / "2"] * 4, ["b", "a", "b", "a"]) == [
        (0, [[0, 2], [1, 3]], (0, 30)), (1, [[0, 2], [1, 3]], (30, 60)), (0, [[0, 2], [1, 3]], (0, 30)), (1, [[0, 2], [1, 3]], (30, 60)),
    ]  # fmt: skip
    assert reported_by(parts, monkeypatch, [parts / "3"] * 2, ["a", "a"]) == [(0, [[0, 1]], [0, 1, 2])] * 2


def folder_with(parts, kept, path):
    """Return a folder with two partitions, of which only those in ``kept`` are present."""
    path.mkdir()
    for entry in (parts / "2").iterdir():
        if entry not in [part_folder(parts / "2", part) for part in {0, 1} - set(kept)]:
            (path / entry.name).symlink_to(entry)
    return path


def test_machines_that_do_not_fit_are_named(parts, monkeypatch, tmp_path):
    three, two = parts / "3", parts / "2"
    assert set(reported_by(parts, monkeypatch, [three] * 2, "ab")) == {
        f"{three} has 3 partitions, but the run 2 machines: each machine has one of them; start 3 machines, or partition the data again with "
        "'hoptrain data partition --parts 2'"
    }
    [found] = set(reported_by(parts, monkeypatch, [two, three], "ab"))
    assert found.startswith("rank 1 on hostb has a partition count of 3, but rank 0 on hosta 2: all machines need the same")
    first, second = folder_with(parts, [0], tmp_path / "0"), folder_with(parts, [1], tmp_path / "1")
    assert reported_by(parts, monkeypatch, [first, second], "ab") == [(0, [[0], [1]], (0, 30)), (1, [[0], [1]], (30, 60))]
    for message in reported_by(parts, monkeypatch, [second, first], "ab"):
        assert re.fullmatch("rank 0 on hosta has no part-0 in .*: it is machine 0 of 2; copy it there", message)
    for message in reported_by(parts, monkeypatch, [second] * 2, "aa"):
        assert re.search("has no part-0 .*: a single machine needs all partitions", message)
    with refused(str(tmp_path / "none"), "no partition's folder machine needs", "part-0 to part-1 copy"):
        PartitionedFeatures(open_partition(folder_with(parts, [], tmp_path / "none")))
    monkeypatch.setattr(rows_module, "version", lambda name: threading.current_thread().name)
    assert "has hoptrain 1, but rank 0 on hosta 0" in reported_by(parts, monkeypatch, [two] * 2, "ab")[0]


def test_what_takes_slots_of_a_cache(parts):
    alone, (first, second) = PartitionedFeatures(open_partition(parts / "2")), machines_of(parts, 2)
    ids = np.array([0, 7, 29, 30, 59], np.int32)
    for rows, taken in ((alone, ids), (first, ids[3:]), (second, ids[:3])):
        assert rows.elsewhere(ids).tolist() == taken.tolist()
    assert [rows.num_elsewhere for rows in (alone, first, second)] == [60, 30, 30]
    shared = SharedRows.make([CachedTable(NUMBER, ROW_BYTES, 4, 1 << 20)], 1)
    shared.slot_of(0)[:] = -1
    shared.slot_of(0)[[3, 5]] = [2, 1]
    shared.put(0, np.array([3, 5]), np.array([2, 1]))
    found = np.empty(5, np.int32)
    shared.find(0, np.array([30, 3, 59, 5, 31]), found, second.own)
    assert found.tolist() == [-1, 2, -30, 1, -2]
    with refused("node 4", "batch not rows read", "prefetch_steps 0 fix sampler"):
        shared.find(0, np.array([30, 4]), found[:2], second.own)


def test_a_part_that_is_cut_off_is_named(data, tmp_path):
    write_partition(data, tmp_path / "2", 2, "range")
    rows, own = machines_of(tmp_path, 2)[0], np.arange(5)
    assert rows.of_own(own).shape == (5, ROW_BYTES)
    file = part_folder(tmp_path / "2", 0) / "x.npy"
    os.truncate(file, 200)
    with refused("200 bytes", "part-0/x.npy had 488 cut", "copy"):
        rows.of_own(own)


def test_rows_that_nobody_fetched_are_named(parts):
    rows = machines_of(parts, 2)[0]
    with refused("node 59", f"row another machine fetched {parts / '2'}"):
        rows.read(np.array([59]), np.arange(1), np.empty((1, ROW_BYTES), np.uint8))
    with refused(str(parts / "2"), "2 machines rows NodeDataModule", "NodeDataModule(partitions"):
        rows.links  # noqa: B018
