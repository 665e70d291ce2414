"""A pytest plugin that runs CUDA tests on numba-cuda's and torch's real host code, with a device emulated in host memory (``device/``).

``make test-host-layer`` builds the libraries and uses it: ``-p host_layer.played_device``. The interpreter in ``ptx`` runs hoptrain's
kernels, and the CPU's kernels compute what torch's would (``torch_kernels``). A test fails on calls that CUDA would reject: calls during a capture, unknown
addresses.
"""

import os

os.environ["NUMBA_ENABLE_CUDASIM"] = "0"
os.environ["HOPTRAIN_TEST_GPU"] = "1"
os.environ.setdefault("HOST_LAYER_DEVICES", "2")

import pytest
import torch

from host_layer import kernels
from host_layer.record import recorded
from host_layer.torch_kernels import TorchKernels


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    config.addinivalue_line("markers", "answers_with_errors: the test provokes errors of the driver and looks at them itself")
    kernels.install()
    torch.cat = joined


def joined(tensors, *args, cat=torch.cat, **options):
    """Join vectors on the device, such as the arrays of a batch, by copies of memory, which tests count apart from kernels."""
    if args or options or not all(tensor.is_cuda and tensor.dim() == 1 for tensor in tensors):
        return cat(tensors, *args, **options)
    out = tensors[0].new_empty(sum(map(len, tensors)))
    for part, tensor in zip(out.split([len(tensor) for tensor in tensors]), tensors, strict=True):
        part.copy_(tensor)
    return out


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Run the test, and then raise the errors of its kernels and driver calls."""
    kernels.FAILED.clear()
    with recorded() as record, TorchKernels():
        result = yield
    assert not kernels.FAILED, kernels.FAILED
    expected = item.get_closest_marker("answers_with_errors")
    assert not record.mistakes or expected, record.mistakes
    return result
