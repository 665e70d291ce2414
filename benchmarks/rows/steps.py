"""Training steps of GraphSAGE, with features that are gathered for each batch and with features that the first layer reads from the table."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, repeat
from typing import TYPE_CHECKING

import numpy as np

from hoptrain.benchmarks.common import options
from hoptrain.engine import Dataset
from hoptrain.engine.arrays import Array
from hoptrain.engine.machine import keep_freed_memory

if TYPE_CHECKING:
    from hoptrain.samplers import MiniBatch


def step_times(data: Dataset, fanouts: Sequence[int], batch_size: int, hidden: int, rounds: int) -> Array:
    """Return the milliseconds (2, rounds) of CPU time of a step, gathered and from the table: sampling, model, loss and Adam, with torch's threads.

    Rounds alternate the ways. A round of a way has two steps, since two threads make two batches at once; its first two rounds are not returned.
    """
    keep_freed_memory()
    steps = [training(data, fanouts, batch_size, hidden, from_table) for from_table in (False, True)]
    times = np.empty((2, rounds + 2))
    for i in range(rounds + 2):
        for way in (0, 1) if i % 2 else (1, 0):
            begin = time.process_time()
            steps[way]()
            steps[way]()
            times[way, i] = 1e3 * (time.process_time() - begin) / 2
    return times[:, 2:]


def training(data: Dataset, fanouts: Sequence[int], batch_size: int, hidden: int, from_table: bool) -> Callable[[], float]:
    """Return a function that makes the next step of a training and returns its loss."""
    import torch
    import torch.nn.functional as F

    from hoptrain.samplers import NeighborSampler, SampleLoader
    from hoptrain.trainers.models.gnn import GNN

    torch.manual_seed(options.SEED)
    model, degrees = (
        GNN("sage", data.num_features, hidden, data.num_classes, len(fanouts)),
        torch.from_numpy(data.graph.in_degrees(np.float32)),
    )
    optimizer = torch.optim.Adam(model.parameters())
    sampler, threads = NeighborSampler(fanouts), torch.get_num_threads()
    loader = SampleLoader(data, sampler, batch_size=batch_size, seed=options.SEED, threads=threads)
    if from_table:
        loader.gather_on_read()
    batches: Iterator[MiniBatch] = chain.from_iterable(repeat(loader))

    def step() -> float:
        batch = next(batches).to("cpu")
        x = getattr(batch, "table_rows", None) or batch.x
        loss = F.cross_entropy(model(x, batch.blocks, degrees[batch.node_ids.long()]), batch.y.long())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss.item()

    return step
