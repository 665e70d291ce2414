"""What stays alive until a copy is done. The copies themselves need a device: test_transfer_cuda.py."""

from collections import deque
from contextlib import nullcontext
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from hoptrain.engine.arrays import to_bfloat16
from hoptrain.samplers.batch import transfer


class Event:
    def __init__(self, done):
        self.done = done

    def query(self):
        return self.done


def test_sources_of_copies_that_were_queued_stay_whatever_goes_wrong(monkeypatch):
    """On a device that is played."""
    beside, current, array = Mock(), Mock(), np.zeros(3)
    monkeypatch.setattr(transfer, "_under_way", deque())
    monkeypatch.setattr(transfer, "_copy_stream", lambda _: beside)
    monkeypatch.setattr(transfer, "as_tensor", lambda _: Mock())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: current)
    monkeypatch.setattr(torch.cuda, "stream", nullcontext)

    def copy_and_fail():
        with transfer.copies_to("cuda:0") as copy:
            copy(array)
            raise KeyError

    with pytest.raises(KeyError):
        copy_and_fail()
    current.wait_event.assert_called_once_with(beside.record_event())
    ((_, sources),) = transfer._under_way
    assert sources[0] is array


def test_sources_go_once_their_copies_are_done(monkeypatch):
    """In the order in which they were queued: a stream finishes them so."""
    events = [Event(True), Event(False), Event(True)]
    monkeypatch.setattr(transfer, "_under_way", deque((event, [np.zeros(1)]) for event in events))
    transfer.release_copied()
    assert [event for event, _ in transfer._under_way] == events[1:]
    events[1].done = True
    transfer.release_copied()
    assert not transfer._under_way


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
