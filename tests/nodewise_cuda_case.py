"""Helpers of the tests of node-wise samplers on CUDA: each mini-batch is bit-identical to the CPU's."""

from cuda_case import TESTED, to_host

from hoptrain.samplers import Workspace

ADDRESS = {"seed": 2**63 + 7, "epoch": 3, "first_batch": 2**32 - 100}


def on_cuda(kernel="auto"):
    workspace = Workspace(device="cuda", kernel=kernel)
    workspace.on_device.thresholds = TESTED
    return workspace


def contents(batch):
    """Return everything that a mini-batch holds, with dtypes, except for times."""
    facts = batch.num_seeds, batch.seed, batch.epoch, batch.batch, batch.num_step_seeds, batch.nested, [b.num_src for b in batch.blocks]
    arrays = batch.arrays() | {f"indptr of block {i}": block.indptr for i, block in enumerate(batch.blocks)}
    return facts, {name: (to_host(array).dtype, to_host(array).tolist()) for name, array in arrays.items()}


def check_equal(sampler, graph, bulk, workspace):
    """Check that a bulk on the device equals the CPU's batches, and return the batches."""
    found = [contents(batch) for batch in sampler.sample_bulk(graph, bulk, workspace=workspace, **ADDRESS)]
    expected = sampler.sample_bulk(graph, bulk, **ADDRESS)
    assert found == [contents(batch) for batch in expected]
    return expected
