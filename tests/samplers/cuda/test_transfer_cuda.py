"""Copies from pinned queue slots to a real device."""

import numpy as np
import pytest
import torch
from cases.mistakes import refused

from hoptrain.engine.device import torch_on_device
from hoptrain.samplers import NeighborSampler, SampleLoader
from hoptrain.samplers.batch import transfer

needs_device = pytest.mark.skipif(torch_on_device() is None, reason="torch has no CUDA device here, or it is simulated")


def loader_of(dataset, **options):
    return SampleLoader(dataset, NeighborSampler([3, 2]), batch_size=10, seed=5, **options)


@needs_device
@pytest.mark.parametrize("options", [{"num_workers": 2, "pin_memory": True}, {"num_workers": 1}, {}, {"device": "cuda"}], ids=str)
def test_batches_on_a_device(dataset, options):
    """Batches arrive on a busy device as on the CPU; the work keeps the device busy, so that a missing wait would show."""
    loader = loader_of(dataset, **options)
    busy = torch.rand(4000, 4000, device="cuda")
    found = []
    for batch in loader:
        busy = busy @ busy
        found.append(batch.to("cuda"))
    loader.close()
    for batch, expected in zip(found, loader_of(dataset), strict=True):
        for name, array in (expected.arrays() | {"x": expected.x, "y": expected.y}).items():
            tensor = (batch.arrays() | {"x": batch.x, "y": batch.y})[name]
            assert tensor.device.type == "cuda"
            assert np.array_equal(tensor.cpu().numpy(), array), name
    torch.cuda.synchronize()
    transfer.release_copied()
    assert not transfer._under_way


@needs_device
def test_a_batch_that_is_let_go_of_is_read_to_the_end(dataset):
    """Memory of a dropped batch is not given to later batches while the training, which the host runs ahead of, still reads it."""
    busy, sums = torch.rand(4000, 4000, device="cuda"), []
    for batch in loader_of(dataset, device="cuda"):
        for _ in range(10):
            busy = busy @ busy
        sums.append(batch.x.double().sum())
        del batch
    expected = [batch.x.astype(np.float64).sum() for batch in loader_of(dataset)]
    assert np.allclose([float(one) for one in sums], expected, rtol=1e-12)


@pytest.mark.skipif(torch_on_device() is not None, reason="there is a device")
def test_memory_is_pinned_for_a_gpu_only(dataset):
    with refused("pin_memory", "torch must CUDA device pinned", "leave out"):
        loader_of(dataset, pin_memory=True)
