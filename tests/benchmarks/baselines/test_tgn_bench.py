"""The TGN benchmark runs hoptrain and PyG's example, and evaluates both with the same metrics."""

import argparse

import numpy as np
import pytest

from hoptrain.benchmarks.baselines.tgn import run_events

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning warns about so small a run


@pytest.mark.promise
def test_a_quick_run(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "temporal_jodie_wikipedia.npz", src=rng.integers(0, 30, 2500), dst=rng.integers(30, 40, 2500), t=np.arange(2500))
    result = run_events(argparse.Namespace(root=str(tmp_path), quick=True, seeds=5, epochs=5))
    assert [row["system"] for row in result.records] == ["hoptrain", "PyG"]
    assert all(0 < row[score] < 1 for row in result.records for score in ("ap", "auc", "mrr"))
    assert result.summary["PyG_ap_mean"] == result.records[1]["ap"]
