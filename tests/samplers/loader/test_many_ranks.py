"""Many more processes than cores: 4 ranks with 2 workers each, and an all-reduce after every batch.

``make test-faults`` starts 8 workers per rank and runs 2,000 steps.
"""

import json
import os
import textwrap

import pytest
from ranks import outputs_of
from ranks.forked import Forked

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
@pytest.mark.usefixtures("forkserver")
def test_four_ranks_with_many_workers_on_few_cores(dataset, tmp_path):
    dataset.save(tmp_path / "data")
    program = textwrap.dedent(RANK)
    results = outputs_of([Forked(program, tmp_path, rank, RANKS, WORKERS, STEPS) for rank in range(RANKS)], LIMIT_S)
    found = [json.loads(out) for out, _ in results]
    expected = [undisturbed(dataset, rank) for rank in range(RANKS)]
    assert [mine for mine, _ in found] == expected
    assert {everyones for _, everyones in found} == {sum(map(sum, expected))}
