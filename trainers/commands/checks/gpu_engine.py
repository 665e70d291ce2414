"""Checks of ``hoptrain doctor --gpu`` for hoptrain's own code: memory passed to torch, pinned pages of the queue, and sampling of several batches at once."""

from __future__ import annotations

import os
import warnings

import numpy as np
import torch
from numba import cuda

from hoptrain.engine import Graph
from hoptrain.engine.device import is_simulated, pin_pages
from hoptrain.engine.gpu_memory.device_store import DeviceRows
from hoptrain.engine.gpu_memory.device_stream import DeviceStream, to_host
from hoptrain.engine.gpu_memory.one_copy import pages_of
from hoptrain.engine.gpu_memory.registered import registered
from hoptrain.engine.queue.shared_memory import anonymous_file, reserve
from hoptrain.kernels.cuda import native
from hoptrain.kernels.cuda.rows import fill_rows
from hoptrain.kernels.cuda.thresholds import Thresholds
from hoptrain.samplers import MiniBatch, NeighborSampler, Workspace
from hoptrain.samplers.cuda.cost_model import SCHEDULES
from hoptrain.trainers.commands.checks.finding import CheckFailed
from hoptrain.trainers.commands.checks.gpu_numba import NUMBERS, copy, expect_equal
from hoptrain.trainers.commands.checks.gpu_torch import busy, needs_torch
from hoptrain.trainers.commands.checks.packages import CUPY, version_of

STEPS, WIDTH = 20, 1 << 20
"""Number of rows that the memory check allocates and frees while torch still reads them, and number of values in each row."""
_SMALL = Thresholds(block=4, max_blocks=2)
"""Small thread blocks for the simulator, which runs each CUDA thread as a Python thread."""


def memory_of_torch() -> str:
    """Check that rows passed to torch are not overwritten while queued work of torch still has to read them."""
    needs_torch()
    stream = DeviceStream()
    sums = []
    for step in range(STEPS):
        rows = stream.tensor((1, WIDTH), np.int64)
        fill_rows[(64, 1), 256, stream.numba, 0](stream.lend(rows), step)
        stream.hand_to_torch(rows)
        busy()
        sums.append(rows.sum())
        del rows  # dropped before the sum has run, as a training loop drops its batch
    expect_equal("sums of rows that were dropped early", torch.stack(sums).cpu().numpy(), WIDTH * np.arange(STEPS))
    return "rows keep their values until torch has read them"


def gather() -> str:
    """Check that rows are gathered from device memory, pinned memory and both, and report which kernels gather."""
    stream, table = DeviceStream(), np.arange(200 * 25, dtype=np.float32).reshape(200, 25)
    ids = np.random.default_rng(0).integers(0, len(table), 60)
    for placement, hot in (("device", None), ("pinned", None), ("pinned", ids[:20])):
        thresholds = _SMALL if is_simulated() else None
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # if CuPy does not work, hoptrain warns and uses Numba's kernels
            store = DeviceRows(table, stream, placement=placement, hot=None if hot is None else np.unique(hot), thresholds=thresholds)
        rows = store.gather_here(cuda.to_device(ids))
        stream.synchronize()
        expect_equal(f"rows of a table, {placement}{'' if hot is None else ' with hot rows on the device'}", to_host(rows), table[ids])
    reason = native.reason_against()
    if reason is None:
        return f"by CUDA C++, {version_of(*CUPY) or 'CuPy of unknown version'}"
    return f"by Numba's kernels: {reason}"


def locked_pages() -> str:
    """Check that the anonymous shared memory of the queue can be pinned, and that the GPU copies from it."""
    needs_torch()
    pages = np.frombuffer(reserve(anonymous_file("hoptrain-doctor"), 1 << 20), np.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pin_pages(pages)
    tensor = torch.from_numpy(pages)
    if not tensor.is_pinned():
        raise CheckFailed("CUDA has registered the queue's pages, but torch does not recognise them as pinned")
    pages[...] = np.arange(len(pages)) % 251
    copied = tensor.to("cuda", non_blocking=True)
    torch.cuda.synchronize()
    expect_equal("a copy from pinned pages", copied.cpu().numpy(), pages)
    return "the queue's pages are pinned, and the GPU copies from them"


def shared_pages() -> str:
    """Check that a kernel reads host memory that ranks share, registered read-only if the driver supports it."""
    fd = anonymous_file("hoptrain-doctor")
    np.frombuffer(reserve(fd, NUMBERS.nbytes), NUMBERS.dtype)[:] = NUMBERS[0]
    source = registered(pages_of(fd, NUMBERS))
    os.close(fd)
    if source is None:
        raise CheckFailed("the driver cannot register anonymous shared memory (memfd)")
    target = cuda.device_array(NUMBERS.shape, NUMBERS.dtype)
    copy(source, target)
    expect_equal("registered pages read by a kernel", target.copy_to_host(), NUMBERS)
    return "a kernel reads host memory that ranks share"


def graph_capture() -> str:
    """Check that a copy from pinned memory and a kernel launch are captured in a CUDA graph, and replayed."""
    needs_torch()
    stream = DeviceStream()
    pinned = cuda.pinned_array(NUMBERS.shape, NUMBERS.dtype)
    source, target = (stream.empty(NUMBERS.shape, NUMBERS.dtype) for _ in range(2))

    def work() -> None:
        source.copy_to_device(pinned, stream=stream.numba)
        copy(source, target, stream.numba)

    pinned[...] = 0
    work()  # compiles the kernel now, since nothing can be compiled or loaded during a capture
    stream.synchronize()
    pinned[...] = NUMBERS
    replay = stream.capture(work)
    stream.synchronize()
    expect_equal("a launch that was captured and must not have run", target.copy_to_host(), 0 * NUMBERS)
    if replay is None:
        raise CheckFailed("nothing was captured")
    pinned[...] = NUMBERS + 1
    replay()
    stream.synchronize()
    expect_equal("a replay of a CUDA graph", target.copy_to_host(), NUMBERS + 1)
    return "a copy and a kernel launch are captured, and their replay reads new values"


def sampling() -> str:
    """Check that batches sampled by both GPU schedules are bit-identical to the CPU's. After the first bulk, kernels are captured and replayed."""
    small = is_simulated()
    nodes, edges, bulks, batches, batch_size = (60, 400, 2, 2, 4) if small else (4_000, 100_000, 4, 4, 128)
    rng = np.random.default_rng(0)
    hubs = (nodes * rng.random(edges) ** 3).astype(np.int64)
    graph = Graph.from_edges(rng.integers(0, nodes, edges), hubs, nodes)
    sampler = NeighborSampler([3, 2] if small else [15, 10, 5])
    spaces = {schedule: Workspace(device="cuda", kernel=schedule) for schedule in SCHEDULES}
    num_edges = 0
    for bulk in range(bulks):
        seeds = [rng.permutation(nodes)[:batch_size] for _ in range(batches)]
        expected = [*sampler.sample_bulk(graph, seeds, first_batch=bulk * batches)]
        num_edges += sum(batch.num_edges for batch in expected)
        for schedule, workspace in spaces.items():
            workspace.on_device.thresholds = _SMALL if small else None
            found = sampler.sample_bulk(graph, seeds, first_batch=bulk * batches, workspace=workspace)
            for number, (batch, other) in enumerate(zip(found, expected, strict=True)):
                _expect_same(f"schedule {schedule}, bulk {bulk}, batch {number}", batch, other)
    return f"{bulks} bulks of {batches} batches, {num_edges:,} edges, by both schedules, are bit-identical to the CPU's"


def _expect_same(what: str, batch: MiniBatch, expected: MiniBatch) -> None:
    arrays = {name: to_host(array) for name, array in batch.arrays().items()}
    right = expected.arrays()
    if arrays.keys() != right.keys():
        raise CheckFailed(f"{what} has the arrays {sorted(arrays)} instead of {sorted(right)}")
    for name, array in arrays.items():
        expect_equal(f"{what}, {name}", array, right[name])
