"""Source arrays stay alive until their copy to a GPU is done. `test_transfer_cuda.py` tests the copies themselves on a device."""

import gc
import weakref
from contextlib import nullcontext, suppress
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from hoptrain.engine.arrays import to_bfloat16
from hoptrain.samplers.batch import transfer


class Event:
    done = False

    def query(self):
        return self.done


@pytest.fixture
def streams(monkeypatch):
    """Return stubs of torch's current stream and of the copy stream, which records an event after each copy."""
    current, beside = Mock(), Mock()
    monkeypatch.setattr(transfer, "as_tensor", lambda _: Mock())
    monkeypatch.setattr(torch.cuda, "Stream", lambda _: beside)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: current)
    monkeypatch.setattr(torch.cuda, "stream", nullcontext)
    return current, beside


def copied(beside, device, error=None):
    """Copy an array; return the event that follows the copy, and a weak reference to the array."""
    beside.record_event.return_value = event = Event()
    array = np.zeros(3)
    with suppress(KeyError), transfer.copies_to(device) as copy:
        copy(array)
        if error is not None:
            raise error
    return event, weakref.ref(array)


def test_sources_of_copies_that_were_queued_stay_whatever_goes_wrong(streams):
    current, beside = streams
    event, array = copied(beside, "cuda:100", KeyError())
    current.wait_event.assert_called_once_with(event)
    transfer.release_copied()
    gc.collect()
    assert array() is not None
    event.done = True
    transfer.release_copied()
    assert array() is None


def test_sources_go_once_their_copies_are_done(streams):
    events, arrays = zip(*(copied(streams[1], "cuda:101") for _ in range(3)), strict=True)
    events[0].done = events[2].done = True
    transfer.release_copied()
    assert [array() is None for array in arrays] == [True, False, False]
    events[1].done = True
    transfer.release_copied()
    assert [array() is None for array in arrays] == [True, True, True]


def test_to_the_cpu_nothing_is_copied():
    array = np.arange(4)
    with transfer.copies_to("cpu") as copy:
        tensor = copy(array)
    array[0] = 9
    assert tensor.tolist() == [9, 1, 2, 3]


def test_bfloat16():
    with transfer.copies_to("cpu") as copy:
        tensor = copy(to_bfloat16(np.array([1.5, -2], np.float32)))
    assert (tensor.dtype, tensor.tolist()) == (torch.bfloat16, [1.5, -2])
