"""Slots of the ring: layout, growth, and leases that end with the last view."""

import _thread
import gc
import os
import time

import numpy as np
import pytest
import torch

from hoptrain.engine.queue.ring import Lease, Slot, carve, total_bytes
from hoptrain.engine.queue.shared_memory import anonymous_file

SPECS = [
    ("a", np.dtype(np.int32), (3,)),
    ("b", np.dtype(np.float64), (2, 5)),
    ("c", np.dtype(np.uint8), (0, 4)),
    ("d", np.dtype(np.int64), (1,)),
]


def test_carved_arrays_are_aligned_disjoint_and_fit():
    buffer = np.zeros(total_bytes(SPECS), np.uint8)
    views = carve(buffer, SPECS)
    for i, (name, dtype, shape) in enumerate(SPECS):
        assert views[name].dtype == dtype
        assert views[name].shape == shape
        assert (views[name].ctypes.data - buffer.ctypes.data) % 64 == 0
        views[name][...] = i + 1
    assert [view.sum() for view in views.values()] == [3, 20, 0, 4]


def test_a_slot_grows_for_both_sides():
    fd = anonymous_file("test")
    writer, reader = Slot(fd), Slot(os.dup(fd))
    for size in (100, 5 << 20, 1000):
        writer.writable(size)[:size] = size % 251
        assert (reader.view(size)[:size] == size % 251).all()
    capacity = os.fstat(fd).st_size
    writer.writable(5 << 20)
    assert os.fstat(fd).st_size == capacity, "a slot that is large enough is left as it is"
    os.close(fd)
    os.close(reader.fd)


@pytest.mark.parametrize("keep", ["view", "view of a view", "tensor"])
def test_a_lease_ends_with_its_last_array(keep):
    returned = []
    views = carve(np.asarray(Lease(np.zeros(total_bytes(SPECS), np.uint8), lambda: returned.append(1))), SPECS)
    kept = {"view": views["b"], "view of a view": views["b"][1:, ::2].T, "tensor": torch.from_numpy(views["b"])[1:]}[keep]
    del views
    gc.collect()
    assert not returned
    assert float(kept.sum()) == 0
    del kept
    gc.collect()
    assert returned == [1]


def test_a_ctrl_c_while_a_lease_ends_is_raised():
    def let_go():
        del [Lease(np.zeros(1, np.uint8), _thread.interrupt_main)][0]
        time.sleep(0)  # lets another thread run

    with pytest.raises(KeyboardInterrupt):
        let_go()


def test_each_mapping_of_a_slot_is_announced():
    sizes = []
    slot = Slot(anonymous_file("test"), lambda mapping: sizes.append(len(mapping)))
    slot.writable(100)
    slot.view(100)
    slot.writable(3 << 20)
    assert sizes == [2 << 20, 4 << 20]
