"""Ranks agree on the GPUs that share hot rows, even if a GPU fails. Host memory replaces GPU memory."""

import ctypes
import gc
import sys
import threading
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from cuda_case import needs_cuda
from numba import cuda
from ranks import in_threads, meetings

from hoptrain.engine.gpu_memory import peers
from hoptrain.engine.gpu_memory.peers import group_of, lend, peer_group, reachable, shared_out

ALL = [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("reached", "groups"),
    [
        ([ALL] * 4, [ALL] * 4),
        ([[rank] for rank in ALL], [[rank] for rank in ALL]),
        ([[0, 1], [0, 1], [2, 3], [2, 3]], [[0, 1], [0, 1], [2, 3], [2, 3]]),  # two islands
        ([[0, 1, 2], [0, 1], [0, 2], [3]], [[0], [1], [2], [3]]),  # 1 and 2 do not reach each other
        ([[0, 1], [1], [2, 3], [2, 3]], [[0], [1], [2, 3], [2, 3]]),  # 0 reaches 1, but not vice versa
    ],
)
def test_groups_are_those_who_all_reach_one_another(reached, groups):
    assert [group_of(rank, reached) for rank in ALL] == groups


def test_a_group_is_of_one_machine(monkeypatch):
    """Ranks 0 and 1 share rows; not rank 2, whose GPU has rank 1's name but is on another machine, nor rank 3, whose GPU is unreachable."""
    ranks = meetings(4)
    monkeypatch.setattr(peers, "gpu_name", lambda: "abbc"[int(threading.current_thread().name)])
    monkeypatch.setattr(peers, "machine", lambda: threading.current_thread().name == "2")
    monkeypatch.setattr(peers, "reachable", lambda gpus: [gpu != "c" for gpu in gpus] if len(gpus) == 3 else [True])
    found = in_threads([lambda rank=rank: peer_group(rank) for rank in ranks])
    assert found == [[0, 1], [0, 1], [2], [3]]


@needs_cuda
def test_what_a_gpu_reaches(monkeypatch):
    """A GPU reaches its own memory, and the memory of visible GPUs for which the driver allows peer access."""
    own = SimpleNamespace(device=SimpleNamespace(uuid="a"), can_access_peer=lambda number: number == 1)
    seen = [SimpleNamespace(uuid=name, id=number) for number, name in enumerate("abc")]
    monkeypatch.setattr(peers, "is_simulated", lambda: False)
    monkeypatch.setattr(cuda, "current_context", lambda: own)
    monkeypatch.setattr(cuda, "gpus", seen)
    assert reachable(["a", "b", "c", "d"]) == [True, True, False, False]


@needs_cuda
def test_a_handle_travels_as_text(monkeypatch):
    """A handle is text with the driver's 64 bytes for an allocation, and the offset of the array within it."""

    class Handle:
        def __init__(self):
            self.memory = (ctypes.c_char * 64)()

        def getPtr(self):
            return ctypes.addressof(self.memory)

    given, opened = Handle(), {}
    given.memory.raw = bytes(range(64))

    class IpcHandle:
        def __init__(self, base, handle, size, offset):
            opened.update(base=base, bytes=handle.memory.raw, size=size, offset=offset)

        def open_array(self, context, shape, dtype, strides):
            opened.update(context=context, shape=shape, dtype=dtype, strides=strides)
            return "an array"

    driver = SimpleNamespace(
        device_extents=lambda array: (1024, 4096),
        driver=SimpleNamespace(cuIpcGetMemHandle=lambda base: given if base == 1024 else None),
        IpcHandle=IpcHandle,
        binding=SimpleNamespace(CUipcMemHandle=Handle),
    )

    class Array:
        device_ctypes_pointer = ctypes.c_void_p(1536)

    monkeypatch.setitem(sys.modules, "numba.cuda.cudadrv.driver", driver)
    monkeypatch.setattr(cuda, "device_array", lambda shape, dtype: Array())
    monkeypatch.setattr(cuda, "current_context", lambda: "the context")
    lent, handle = lend((5, 3), np.uint32)
    assert isinstance(lent, Array)
    stays = weakref.ref(lent)
    del lent
    gc.collect()
    assert stays() is not None, "for as long as the process lives"
    assert peers.borrow(handle, (5, 3), np.uint32) == "an array"
    assert opened == {
        "base": None, "bytes": bytes(range(64)), "size": 60, "offset": 512, "context": "the context", "shape": (5, 3), "dtype": np.uint32,
        "strides": (12, 4),
    }  # fmt: skip


class Lent:
    """A shared array that its owner fills."""

    def __init__(self, shape, dtype):
        self.array = np.zeros(shape, dtype)

    def copy_to_device(self, array):
        self.array[...] = array


@pytest.fixture
def of_the_host(monkeypatch):
    """Replace GPU memory by memory of this process, and handles by numbers; return the set of names of operations that shall fail."""
    lent, refused = [], set()

    def lend(shape, dtype):
        if "lend" in refused:
            raise RuntimeError("no memory")
        lent.append(Lent(shape, dtype))
        return lent[-1], str(len(lent) - 1)

    def borrow(handle, shape, dtype):
        if "borrow" in refused:
            refused.clear()  # only one of the ranks fails
            raise RuntimeError("no access")
        found = lent[int(handle)]
        assert (found.array.shape, found.array.dtype) == (shape, dtype)
        return found

    monkeypatch.setattr(peers, "lend", lend)
    monkeypatch.setattr(peers, "borrow", borrow)
    return refused


ROWS, HOT = np.arange(60, dtype=np.uint32).reshape(20, 3), np.array([3, 4, 7, 11, 19])


def share_out(groups, hot=HOT):
    ranks = meetings(len(groups))
    return in_threads(
        [lambda rank=rank, group=group: shared_out(ROWS, hot, rank, group) for rank, group in zip(ranks, groups, strict=True)]
    )


def test_slots_are_assigned_round_robin(of_the_host):
    first, second, alone = share_out([[0, 1], [0, 1], [2]])
    assert alone is None
    for parts in (first, second):
        for slot, node in enumerate(HOT):
            assert parts[slot % 2].array[slot // 2].tolist() == ROWS[node].tolist()
    assert all(mine is theirs for mine, theirs in zip(first, second, strict=True))


@pytest.mark.parametrize(("refused", "reason"), [("lend", "no memory"), ("borrow", "no access")])
def test_where_one_cannot_all_of_its_group_keep_their_own(of_the_host, caplog, refused, reason):
    of_the_host.add(refused)
    assert share_out([[0, 1], [0, 1], [2]]) == [None] * 3
    assert f"GPUs cannot share their hot rows ({reason}): each keeps its own" in caplog.text


@pytest.mark.parametrize("other", [(ROWS, HOT[::-1]), (ROWS + 1, HOT)])
def test_ranks_with_other_rows_share_nothing(of_the_host, caplog, other):
    ranks = meetings(2)
    tables = [(ROWS, HOT), other]
    assert (
        in_threads([lambda rank=rank, table=table: shared_out(*table, rank, [0, 1]) for rank, table in zip(ranks, tables, strict=True)])
        == [None] * 2
    )
    assert caplog.text.count("GPUs cannot share their hot rows (they are not the same on all ranks): each keeps its own") == 2


def test_fewer_hot_rows_than_ranks_are_not_shared(of_the_host):
    assert share_out([[0, 1], [0, 1]], HOT[:1]) == [None] * 2
