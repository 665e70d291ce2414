"""Many more processes than cores: 4 ranks with 2 workers each, and an all-reduce after every batch.

``make test-faults`` starts 8 workers per rank and runs 2,000 steps.
"""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from hoptrain.samplers import NeighborSampler, SampleLoader

RANKS = 4
WORKERS, STEPS = (8, 2000) if int(os.environ.get("HOPTRAIN_FAULTS", "2")) >= 50 else (2, 60)
LIMIT_S = 800 if STEPS == 2000 else 250
RANK = """
    import json, sys
    from datetime import timedelta
    import torch
    from torch import distributed
    from hoptrain.engine import Dataset
    from hoptrain.samplers import NeighborSampler, SampleLoader
    folder, rank, ranks, workers, steps = sys.argv[1], *map(int, sys.argv[2:])
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=ranks, timeout=timedelta(seconds=240)
    )
    loader = SampleLoader(Dataset.open(f"{folder}/data"), NeighborSampler([3, 3]), batch_size=1, num_workers=workers, seed=3)
    mine, everyones = [], torch.zeros(1, dtype=torch.int64)
    while len(mine) < steps:
        for batch in loader:
            mine.append(int(batch.node_ids.sum()))
            total = torch.tensor([mine[-1]])
            distributed.all_reduce(total)
            everyones += total
            if len(mine) == steps:
                break
    loader.close()
    print(json.dumps([mine, int(everyones)]))
"""


def undisturbed(dataset, rank):
    loader = SampleLoader(dataset, NeighborSampler([3, 3]), batch_size=1, num_workers=0, seed=3, rank=rank, world_size=RANKS)
    found = []
    while len(found) < STEPS:
        found += [int(batch.node_ids.sum()) for batch in loader]
    return found[:STEPS]


@pytest.mark.timeout(LIMIT_S + 30)
def test_four_ranks_with_many_workers_on_few_cores(dataset, tmp_path):
    dataset.save(tmp_path / "data")
    command = [sys.executable, "-c", textwrap.dedent(RANK), tmp_path]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [*command, *map(str, (rank, RANKS, WORKERS, STEPS))],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[3],
            env=environment,
        )
        for rank in range(RANKS)
    ]
    try:
        results = [rank.communicate(timeout=LIMIT_S) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
    assert [rank.returncode for rank in ranks] == [0] * RANKS, results
    found = [json.loads(out) for out, _ in results]
    expected = [undisturbed(dataset, rank) for rank in range(RANKS)]
    assert [mine for mine, _ in found] == expected
    assert {everyones for _, everyones in found} == {sum(map(sum, expected))}
