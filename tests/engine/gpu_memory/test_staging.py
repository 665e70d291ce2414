"""Copies from a device by a sampler process: in the simulator, on a device, and on the PTX interpreter, which detects early reads."""

import numpy as np
import pytest
from cuda_case import needs_cuda, to_device

from hoptrain.engine.gpu_memory.device_stream import DeviceStream
from hoptrain.engine.gpu_memory.staging import Staging

pytestmark = needs_cuda


class Counting(DeviceStream):
    waits = 0

    def synchronize(self):
        self.waits += 1
        super().synchronize()


def some(rng, sizes):
    """Return host arrays of several types and shapes, and the same arrays, every second of them on the device."""
    arrays = [
        rng.integers(0, 99, size).astype(dtype) for size, dtype in zip(sizes, (np.int64, np.float32, np.int32, np.uint8), strict=True)
    ]
    return arrays, [array if i % 2 else to_device(array, array.dtype) for i, array in enumerate(arrays)]


def test_all_are_waited_for_once():
    """Each call copies all device arrays and waits for the device once, whether sizes shrink or grow between calls."""
    rng, stream = np.random.default_rng(0), Counting()
    staging = Staging(stream)
    for number, sizes in enumerate([(300, 7, (5, 4), 3), (2, 1, 1, 1), (4000, 7, (50, 4), 3), (1, 2, 0, 0)]):
        expected, arrays = some(rng, sizes)
        found = staging.fetch(arrays)
        assert stream.waits == number + 1
        for one, other in zip(found, expected, strict=True):
            assert (type(one), one.dtype, one.shape) == (np.ndarray, other.dtype, other.shape)
            np.testing.assert_array_equal(one, other)
        assert all(one is other for one, other in zip(found[1::2], arrays[1::2], strict=True)), "what is on the host stays where it is"


def test_nothing_is_waited_for_where_all_is_on_the_host():
    stream = Counting()
    arrays = [np.arange(3)]
    assert Staging(stream).fetch(arrays)[0] is arrays[0]
    assert stream.waits == 0


@pytest.mark.parametrize("size", [0, 5])
def test_views_of_rows(size):
    """Prefixes of a matrix's rows, as batches have them, are copied correctly from the device."""
    matrix = np.arange(30, dtype=np.int64).reshape(3, 10)
    (found,) = Staging(DeviceStream()).fetch([to_device(matrix)[1, :size]])
    assert found.tolist() == matrix[1, :size].tolist()
