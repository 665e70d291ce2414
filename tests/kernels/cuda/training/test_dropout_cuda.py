"""Dropout by Numba's kernels is bit-identical to the CPU's kernels, forward and backward."""

import numpy as np
import pytest
from cases.dropout import DROPPED, SEED, SIZES, elements, expected_drop, expected_gradient
from cuda_case import launch, needs_cuda, to_device, to_host

from hoptrain.kernels.cuda.training.dropout import drop, pass_gradient

pytestmark = needs_cuda


def check(dtype, size, *, clip):
    x, zeros = elements(size, dtype), np.zeros(size)
    out = to_device(zeros, dtype)
    drop(launch(1), to_device(x, dtype), out, SEED, DROPPED, clip=clip)
    expected = expected_drop(x, clip=clip)
    assert to_host(out).tobytes() == expected.tobytes()
    if clip:
        gradient, by_x = elements(size, dtype, seed=1)[::-1].copy(), to_device(zeros, dtype)
        pass_gradient(launch(1), to_device(gradient, dtype), out, by_x, DROPPED)
        assert to_host(by_x).tobytes() == expected_gradient(gradient, expected).tobytes()


def test_relu_and_dropout():
    check(np.float32, 1100, clip=True)


@pytest.mark.long
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("clip", [False, True], ids=["dropout", "with relu"])
def test_each_dtype_and_size(dtype, size, clip):
    check(dtype, size, clip=clip)
