"""``hoptrain bench pipeline`` computes the right figures from made-up measurements, and measures one real launch."""

import os
from importlib.util import find_spec

import pytest

from hoptrain.benchmarks import pipeline
from hoptrain.benchmarks.common import pictures
from hoptrain.benchmarks.pipelines.forward import Flow
from hoptrain.benchmarks.pipelines.ranks import WHOLE, Launch, Track, study
from hoptrain.trainers.pipeline import run_ranks


def track(*seconds, busy=0.5, peak=100.0):
    steps = len(seconds)
    return Track(
        seconds=list(seconds),
        pipe_seconds=[1.0] * steps,
        busy_s=[busy] * steps,
        losses=[2.0, 1.0],
        waste=0.25,
        gradient_error=1e-15,
        peak_mb=peak,
    )


def test_rows_and_summary():
    launch = Launch(stages=2, data=1, chunks=(5,), images=10, rounds=3)
    first = {WHOLE: track(8, 8, 8), ("chunked", 5): track(4, 6, 4), ("piped", 5): track(2, 3, 2, busy=0.75, peak=60.0)}
    second = {WHOLE: Track(), ("chunked", 5): Track(), ("piped", 5): track(2.5, 2, 1, busy=0.95, peak=50.0)}
    (row,) = pipeline.records_of(launch, [first, second])
    assert (row["stages"], row["chunks"], row["processes"], row["step_ms"]) == (2, 5, 2, 2500)
    assert (row["speedup"], row["speedup_whole_batch"]) == (2, 3.2), "by the slower process of each round"
    assert row["bound"] == pytest.approx(10 / 6)
    assert (row["bubble"], row["bubble_ideal"]) == (pytest.approx(0.15), 1 / 6)
    assert (row["peak_mb"], row["peak_mb_by_stage"], row["waste"]) == (60, "60 50", 0.25)
    assert (row["loss_first"], row["loss_last"]) == (2, 1), "of one copy, not of each stage"

    alone = pipeline.records_of(Launch(stages=1, data=1, chunks=(5,), images=10, rounds=3), [first])
    assert [row["system"] for row in alone] == [pipeline.ALONE, pipeline.OURS]
    summary = pipeline.summarize([*alone, row])
    assert (summary["speedup_2_stages"], summary["its_chunks"], summary["max_gradient_error"]) == (2, 5, 1e-15)
    assert summary["memory_of_a_stage_of_2"] == 1, "60 of 60"


def test_a_row_of_prediction():
    """In a record of prediction, times are those of the slower process of each round, and the difference is the last stage's."""
    launch = Launch(stages=2, data=1, chunks=(5,), images=10, rounds=2)
    first = Flow(piped_s=[1, 2], alone_s=[4, 4], piped_latency_s=[0.5, 0.5], alone_latency_s=[0.2, 0.2])
    last = Flow(piped_s=[2, 2], alone_s=[0, 0], piped_latency_s=[0.6, 0.6], alone_latency_s=[0, 0], difference=1e-6)
    row = pipeline.forward_record(launch, 5, [first, last])
    assert (row["speedup"], row["images_per_s"], row["images_per_s_alone"]) == (2, 40, 20)
    assert (row["latency_ms"], row["latency_ms_alone"], row["largest_difference"]) == (600, 200, 1e-6)
    assert pipeline.summarize_forward([row])["forward_latency_ratio"] == pytest.approx(3)


def test_bound():
    assert pipeline.bound(2, 5, 1) == pytest.approx(2 * 5 / 6)
    assert pipeline.bound(4, 10, 2) == pytest.approx(2 * 4 * 10 / 13)


@pytest.mark.skipif(find_spec("matplotlib") is None, reason="matplotlib is not installed: pip install hoptrain[bench]")
def test_picture(tmp_path):
    launch = Launch(stages=2, data=1, chunks=(5,), images=10, rounds=3)
    tracks = {WHOLE: track(8, 8), ("chunked", 5): track(4, 6), ("piped", 5): track(2, 3)}
    pictures.write(
        tmp_path / "a.png",
        pipeline.picture,
        [*pipeline.records_of(launch, [tracks, tracks]), {"system": pipeline.PAPER, **pipeline.PAPER_ROWS[0]}],
    )
    assert (tmp_path / "a.png").stat().st_size > 10_000


def test_two_real_stages():
    """The gradients and losses of a ViG in a pipeline equal those of the whole batch."""
    results = run_ranks(study, 2, Launch(stages=2, data=1, chunks=(3,), images=6, rounds=1), deadline_s=100.0)
    for result in results:
        assert 0 < result["piped", 3].gradient_error < 1e-10
        assert result["piped", 3].losses == pytest.approx(results[0][WHOLE].losses, rel=1e-4)
        assert result["piped", 3].waste == 0
    assert not results[1][WHOLE].losses, "without a pipeline the others wait"
    if os.path.exists("/proc/self/clear_refs"):
        assert all(result["piped", 3].peak_mb > 0 for result in results)
