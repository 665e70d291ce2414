"""Hit rates of a cache of the most read rows are counted correctly."""

import numpy as np
import pytest
from cases.mistakes import refused

from hoptrain.benchmarks.traffic.hits import hit_rates
from hoptrain.engine import Schedule
from hoptrain.samplers import NeighborSampler, SampleLoader
from hoptrain.trainers.cli import main


def test_rates_are_those_of_the_loaders_batches(dataset):
    sampler, schedule = NeighborSampler([3, 2]), Schedule(items=dataset.splits["train"], batch_size=20, seed=0)
    loader = SampleLoader(dataset, sampler, batch_size=20, seed=0)
    reads = [np.concatenate([batch.node_ids for batch in loader]) for _ in range(2)]
    hot = np.argsort(-np.bincount(reads[0], minlength=200), kind="stable")
    found = list(hit_rates(dataset, sampler, schedule, [0.1, 0.5, 1]))
    assert [(row["rows_kept"], row["batches"]) for row in found] == [(0.1, 6), (0.5, 6), (1, 6)]
    for row, number in zip(found, (20, 100, 200), strict=True):
        assert [row["counted"], row["next"]] == pytest.approx([np.isin(ids, hot[:number]).mean() for ids in reads])


def test_a_share_that_there_is_not(dataset):
    with refused("gpu_cache is 2:", "bytes share rows", "give 2GiB 0.1"):
        list(hit_rates(dataset, NeighborSampler([2]), Schedule(items=np.arange(3), batch_size=2, seed=0), [2]))


def test_the_command(dataset, tmp_path, capsys):
    dataset.save(tmp_path / "data")
    options = ["--graph", str(tmp_path / "data"), "--cache-shares", "0.1", "--batch-size", "20", "--fanouts", "3", "--out", str(tmp_path)]
    assert main(["bench", "bulk-host", *options]) == 0
    assert main(["bench", "bulk-host", *options, "--bulks", "2"]) == 2
    assert "--bulks [2] with --cache-shares: that option only counts reads; leave one of them out" in capsys.readouterr().err
