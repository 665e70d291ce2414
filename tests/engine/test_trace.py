"""The trace file is valid JSON after any failure, and an unwritable path is rejected."""

import json
import os
from dataclasses import replace
from pathlib import Path

from cases.mistakes import refused

from hoptrain.engine.timeline import BatchTimes
from hoptrain.engine.trace import TraceFile, check_trace_path, trace_path

TIMES = BatchTimes(epoch=3, batch=5, pid=7, sample=(1.0, 2.0), gather=(2.0, 2.5), wait=(2.25, 3), copy=(3, 4), train=(4, 6), num_ready=2)


def test_a_batch_is_five_spans_and_a_count(tmp_path):
    trace = TraceFile(tmp_path / "out.json", rank=1)
    trace.add(TIMES)
    trace.close()
    trace.close()
    events = json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    assert {event["pid"] for event in events} == {os.getpid()}
    rows = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    spans = {event["name"]: (rows[event["tid"]], event["ts"], event["dur"], event["args"]) for event in events if event["ph"] == "X"}
    where = {"epoch": 3, "batch": 5}
    assert spans == {
        "sample": ("sampler (pid 7)", 1e6, 1e6, where),
        "gather": ("sampler (pid 7)", 2e6, 5e5, where),
        "wait": ("wait", 2.25e6, 7.5e5, where),
        "copy": ("copy", 3e6, 1e6, where),
        "train": ("train", 4e6, 2e6, where),
    }
    assert [(event["name"], event["ts"], event["args"]) for event in events if event["ph"] == "C"] == [("queue", 3e6, {"ready": 2})]
    assert [event["args"]["name"] for event in events if event["name"] == "process_name"] == ["rank 1"]


def test_a_span_ends_where_the_next_one_begins(tmp_path):
    trace = TraceFile(tmp_path / "out.json")
    instants = [2464.5107318 + step / 7e5 for step in range(1000)]
    for begin, middle, end in zip(instants, instants[1:], instants[2:], strict=False):
        trace.add(replace(TIMES, sample=(begin, middle), gather=(middle, end)))
    trace.close()
    events = json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    samples, gathers = ([event for event in events if event["name"] == stage] for stage in ("sample", "gather"))
    assert len(samples) == len(gathers) == 998
    for sample, gather in zip(samples, gathers, strict=True):
        assert sample["ts"] + sample["dur"] == gather["ts"]


def test_batches_that_a_process_makes_at_once_have_rows_of_their_own(tmp_path):
    spans = [((1.0, 2.0), (2.0, 2.5)), ((1.1, 2.1), (2.1, 2.2)), ((2.3, 3.0), (3.0, 3.5)), ((2.6, 3.1), (3.1, 3.2))]
    trace = TraceFile(tmp_path / "t.json")
    for sample, gather in spans:
        trace.add(replace(TIMES, sample=sample, gather=gather))
    trace.close()
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    rows = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert [rows[event["tid"]] for event in events if event["name"] == "sample"] == [
        "sampler (pid 7)", "sampler (pid 7, 2)", "sampler (pid 7, 2)", "sampler (pid 7)",
    ]  # fmt: skip


def test_a_file_without_batches_is_valid(tmp_path):
    TraceFile(tmp_path / "out.json").close()
    assert json.loads((tmp_path / "out.json").read_text())["traceEvents"]


def test_a_full_disk_ends_the_trace_only(caplog):
    trace = TraceFile(Path("/dev/full"))
    for _ in range(100):
        trace.add(TIMES)
    trace.close()
    assert caplog.text.count("the timeline is incomplete, because its file cannot be written: [Errno 28]") == 1


def test_ranks_write_files_of_their_own():
    assert trace_path(Path("a/out.json"), 0, 1) == Path("a/out.json")
    assert trace_path(Path("a/out.json"), 3, 4) == Path("a/out.rank3.json")


def test_a_path_that_cannot_be_written_is_refused(tmp_path):
    for path, reason in ((tmp_path / "nowhere" / "out.json", "No such file"), (tmp_path, "Is a directory")):
        for refuse in (check_trace_path, TraceFile):
            with refused(str(path), f"timeline cannot written {reason}", "name file folder existing"):
                refuse(path)


def test_a_look_at_the_path_changes_nothing(tmp_path):
    check_trace_path(tmp_path / "new.json")
    assert not (tmp_path / "new.json").exists()
    (tmp_path / "old.json").write_text("old")
    check_trace_path(tmp_path / "old.json")
    assert (tmp_path / "old.json").read_text() == "old"
