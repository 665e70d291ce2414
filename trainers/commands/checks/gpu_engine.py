"""What ``hoptrain doctor --gpu`` looks at of hoptrain's own: memory that goes to the training, the queue's pages, and whole bulks."""

from __future__ import annotations

import warnings

import numpy as np
import torch

from hoptrain.engine import Graph
from hoptrain.engine.device import DeviceStream, is_simulated, page_lock, to_host
from hoptrain.engine.queue.shared_memory import anonymous_file, reserve
from hoptrain.kernels.cuda.rows import fill_rows
from hoptrain.kernels.cuda.thresholds import THRESHOLDS, Thresholds
from hoptrain.samplers import NeighborSampler, Workspace
from hoptrain.trainers.commands.checks.finding import Wrong
from hoptrain.trainers.commands.checks.gpu_numba import expect_equal
from hoptrain.trainers.commands.checks.gpu_torch import busy, needs_torch

_STEPS, _WIDTH = 20, 1 << 20


def memory_of_torch() -> str:
    """Rows that the sampler has handed over are not written again while a training that runs behind still has to read them."""
    needs_torch()
    stream = DeviceStream()
    sums = []
    for step in range(_STEPS):
        rows = stream.tensor((1, _WIDTH), np.int64)
        fill_rows[(64, 1), 256, stream.numba, 0](stream.lend(rows), step)
        stream.hand_to_torch(rows)
        busy()
        sums.append(rows.sum())
        del rows  # as a loop drops its batch, while the sum is still to come
    expect_equal("sums of rows that were dropped at once", torch.stack(sums).cpu().numpy(), _WIDTH * np.arange(_STEPS))
    return "rows stay as they are until the training has read them"


def locked_pages() -> str:
    """Pages of a file without a name, as the queue has them, are locked, and the GPU copies from them."""
    needs_torch()
    pages = np.frombuffer(reserve(anonymous_file("hoptrain-doctor"), 1 << 20), np.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        page_lock(pages)
    tensor = torch.from_numpy(pages)
    if not tensor.is_pinned():
        raise Wrong("CUDA has registered the queue's pages, but torch does not take them for locked")
    pages[...] = np.arange(len(pages)) % 251
    copied = tensor.to("cuda", non_blocking=True)
    torch.cuda.synchronize()
    expect_equal("a copy from locked pages", copied.cpu().numpy(), pages)
    return "the queue's pages are locked, and the GPU copies from them"


def sampling() -> str:
    """Bulks of both schedules are the CPU's to the bit."""
    small = is_simulated()  # which runs every thread of CUDA as one of Python's
    vertices, edges, batches, batch_size = (60, 400, 2, 4) if small else (5_000, 200_000, 4, 256)
    rng = np.random.default_rng(0)
    hubs = (vertices * rng.random(edges) ** 3).astype(np.int64)
    graph = Graph.from_edges(rng.integers(0, vertices, edges), hubs, vertices)
    seeds = [rng.permutation(vertices)[:batch_size] for _ in range(batches)]
    sampler = NeighborSampler([3, 2] if small else [15, 10, 5])
    by_cpu = sampler.sample_bulk(graph, seeds)
    expected = [batch.arrays() for batch in by_cpu]
    for schedule in ("sample", "transit"):
        workspace = Workspace(device="cuda", kernel=schedule)
        workspace.on_device.thresholds = Thresholds(block=4, max_blocks=2) if small else THRESHOLDS
        for number, batch in enumerate(sampler.sample_bulk(graph, seeds, workspace=workspace)):
            found = {name: to_host(array) for name, array in batch.arrays().items()}
            if found.keys() != expected[number].keys():
                raise Wrong(f"schedule {schedule}, batch {number} has the arrays {sorted(found)} for {sorted(expected[number])}")
            for name, array in found.items():
                expect_equal(f"schedule {schedule}, batch {number}, {name}", array, expected[number][name])
    num_edges = sum(batch.num_edges for batch in by_cpu)
    return f"{batches} batches of {num_edges:,} edges together, by both schedules, are the CPU's to the bit"
