"""Helpers of the CUDA tests of layer-wise and subgraph samplers."""

from dataclasses import replace

import numpy as np
from cuda_case import TESTED, to_host

from hoptrain.engine import Dataset
from hoptrain.engine.device import is_simulated
from hoptrain.samplers import SampleLoader, Workspace
from hoptrain.samplers.cuda.device_sampler import DeviceSampler

ADDRESS = {"seed": 2**64 - 3, "epoch": 2}


def workspace(thresholds=TESTED):
    made = Workspace(device="cuda")
    made.on_device.thresholds = thresholds
    return made


def contents(batch):
    """Return everything that a mini-batch holds, with dtypes."""
    facts = batch.num_seeds, batch.num_step_seeds, batch.seed, batch.epoch, batch.batch, batch.nested
    blocks = [(block.num_src, block.num_dst, block.num_edges) for block in batch.blocks]
    return facts, blocks, {name: (array.dtype, array.tolist()) for name, array in ((n, to_host(a)) for n, a in batch.arrays().items())}


def check_bulks(sampler, graph, bulks, space=None):
    """Check several bulks in one workspace, with buffers larger than later bulks need; return the batches of the last one."""
    space = space or workspace()
    for first, units in enumerate(bulks):
        units = [np.asarray(some) for some in units]
        address = ADDRESS | {"first_batch": 7 + first}
        expected = [contents(batch) for batch in sampler.sample_bulk(graph, units, **address)]
        assert [contents(batch) for batch in sampler.sample_bulk(graph, units, workspace=space, **address)] == expected
    return expected


def check_bulk_of_16(sampler, graph, units):
    """Check a bulk of 16 batches, with few threads in the simulator, where sixteen blocks are slow."""
    thresholds = replace(TESTED, block=2) if is_simulated() else TESTED
    check_bulks(sampler, graph, [units * 16 if len(units) == 1 else units], workspace(thresholds))


def start_with_capacity_1(monkeypatch):
    """Let every guessed capacity start at 1, so that work has to be queued again."""
    capacity = DeviceSampler.capacity
    monkeypatch.setattr(DeviceSampler, "capacity", lambda self, size, guess: capacity(self, size, 1))


def check_loader(graph, sampler, batch_size):
    """Check that an epoch, kept to its end, has the batches and rows of the CPU."""
    rng = np.random.default_rng(1)
    x, y = rng.random((graph.num_nodes, 3), dtype=np.float32), rng.integers(0, 3, graph.num_nodes)
    data = Dataset(name="small", graph=graph, x=x, y=y, splits={"train": np.arange(9)}, num_classes=3)
    expected = [contents(batch) for batch in SampleLoader(data, sampler, batch_size=batch_size, seed=5)]
    loader = SampleLoader(data, sampler, batch_size=batch_size, seed=5, device="cuda", bulk=2)
    loader.task.workspace.on_device.thresholds = TESTED
    batches = list(loader)
    assert len(batches) > 2
    assert [contents(batch) for batch in batches] == expected
    for batch in batches:
        np.testing.assert_array_equal(to_host(batch.x), x[to_host(batch.node_ids)])
        np.testing.assert_array_equal(to_host(batch.y), y[to_host(batch.seeds)])
