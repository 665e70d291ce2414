"""Two processes read one shared copy of an array, which one of the processes has filled."""

import threading

import numpy as np
import pytest
from ranks import in_threads, meetings, run_ranks

from hoptrain.engine import InputError
from hoptrain.engine.gpu_memory import one_copy as module
from hoptrain.engine.gpu_memory.device_store import as_words
from hoptrain.engine.gpu_memory.device_stream import to_host
from hoptrain.engine.gpu_memory.one_copy import one_copy

PROGRAM = """
    import numpy as np
    from hoptrain.engine.gpu_memory.device_stream import DeviceStream, to_host
    from hoptrain.engine.gpu_memory.device_store import DeviceGraph, DeviceRows
    from hoptrain.engine.gpu_memory import one_copy as module
    from hoptrain.engine.gpu_memory.meeting import meeting_of

    def pages(array):  # of the mapping that the array lies in: its file, and how much of the memory is charged to this process
        found, address = None, array.ctypes.data
        for line in open("/proc/self/smaps"):
            head = line.split()
            if "-" in head[0] and not head[0].endswith(":"):
                begin, end = (int(bound, 16) for bound in head[0].split("-"))
                found = [head[4], head[5:6]] if begin <= address < end else None
            elif found and head[0] in ("Rss:", "Pss:", "Shared_Clean:", "Shared_Dirty:"):
                found.append(int(head[1]))
                if head[0] == "Shared_Dirty:":
                    return found

    filled = []
    reserve = module.reserve
    module.reserve = lambda fd, size: filled.append(size) or reserve(fd, size)
    store = np.random.default_rng(0).random((5000, 100), dtype=np.float32)
    meeting = meeting_of(ranks)
    rows = DeviceRows(store, DeviceStream(), placement="pinned", meeting=meeting, what="x of the data set")
    own = DeviceRows(store + rank, DeviceStream(), placement="pinned", meeting=meeting)  # not the same on both
    on_device = DeviceRows(store, DeviceStream(), placement="device", meeting=meeting)
    graph = DeviceGraph({name: np.arange(20_000) for name in ("indptr", "indices", "threshold", "alias")}, "pinned", DeviceStream(), meeting)
    words = rows._source[0]._ary
    total = int(words.sum())  # so that every page is mapped here
    meeting.exchange("that all pages are mapped", True)
    ids = np.array([4999, 7, 7, 0])
    right = all(bool((table.gather(ids) == value).all()) for table, value in ((rows, store[ids]), (own, store[ids] + rank), (on_device, store[ids])))
    right &= to_host(graph.indices).tolist() == list(range(20_000))
    facts = {"pages": pages(words), "filled": filled, "total": total, "right": right, "writable": words.flags.writeable}
    meeting.exchange("that it has looked", True)
    print(json.dumps(facts))
"""


@pytest.mark.promise
@pytest.mark.usefixtures("forkserver")
def test_two_ranks_have_one_copy_in_memory(tmp_path):
    (first, second), (said, silent) = run_ranks(tmp_path, PROGRAM)
    inode, (path, *_), rss, pss, *shared = first["pages"]
    assert path.startswith("/memfd:hoptrain-copy")
    assert second["pages"][0] == inode != "0"
    assert rss >= 1950  # KiB, of 2,000,000 bytes
    assert rss // 2 - 8 <= pss <= rss // 2 + 8  # each of the two processes is charged half
    assert sum(shared) >= 1950
    assert (first["filled"], second["filled"]) == ([2_000_000, *[160_000] * 4], [])
    assert first["total"] == second["total"]
    assert (first["right"], second["right"], first["writable"], second["writable"]) == (True, True, False, False)
    assert said[0] == "x of the data set: 0.00 GiB of host memory, shared by the 2 ranks of this machine"
    assert (len(said), silent) == (5, [])


def ask_all(ranks, array, **options):
    """Return each rank's copy, or the error that it raised."""

    def ask(rank):
        def call():
            try:
                return one_copy(array, "x", rank, **options)
            except InputError as error:
                return str(error)

        return call

    return in_threads([ask(rank) for rank in ranks])


LARGE = np.arange(20_000)


def test_a_rank_that_is_alone_with_its_wish_has_its_own_copy():
    ranks = meetings(2)
    found = in_threads([lambda rank=rank: one_copy(LARGE, "x", rank, wanted=rank.rank == 1) for rank in ranks])
    assert found == [None, None]


def test_small_arrays_are_not_worth_it():
    assert one_copy(np.arange(9), "x", meetings(2)[0]) is None


def test_ranks_of_other_machines_have_their_own(monkeypatch):
    monkeypatch.setattr(module, "machine", lambda: threading.current_thread().name)
    assert ask_all(meetings(2), LARGE) == [None, None]


def test_arrays_that_differ_in_one_entry_are_two():
    ranks, other = meetings(2), LARGE.copy()
    other[777] += 1
    assert (
        in_threads([lambda rank=rank, array=array: one_copy(array, "x", rank) for rank, array in zip(ranks, (LARGE, other), strict=True)])
        == [None] * 2
    )


def test_arrays_of_one_file_are_one(tmp_path, monkeypatch):
    """Two ranks share a copy if their arrays are maps of the same file; contents are not compared."""
    np.save(tmp_path / "x.npy", LARGE.reshape(-1, 4))
    np.save(tmp_path / "y.npy", LARGE.reshape(-1, 4))
    monkeypatch.setattr(module.zlib, "crc32", None)
    x, again, y = (as_words(np.load(tmp_path / name, mmap_mode="r")) for name in ("x.npy", "x.npy", "y.npy"))

    def met(*arrays):
        return in_threads(
            [lambda rank=rank, array=array: one_copy(array, "x", rank) for rank, array in zip(meetings(2), arrays, strict=True)]
        )

    assert all((to_host(one) == x).all() for one in met(x, again))
    assert met(x, y) == [None, None]


@pytest.mark.parametrize("lack", ["seen before", "met"])
def test_all_ranks_report_too_little_memory(monkeypatch, lack):
    if lack == "seen before":
        monkeypatch.setattr(module, "available_memory", lambda: 1 << 16)
    else:

        def refuse(fd, num_bytes):
            raise MemoryError("of the queue") from OSError(28, "No space left on device")

        monkeypatch.setattr(module, "reserve", refuse)
    first, second = ask_all(meetings(2), LARGE)
    assert first == second
    reason = "0.00 GiB are free" if lack == "seen before" else "No space left on device"
    assert first == (
        f"x: 0.00 GiB of host memory are needed for the GPUs of rank 0's machine, but {reason}: place it in device memory, or use a machine with more memory"
    )


def test_a_file_that_cannot_be_opened(monkeypatch, caplog):
    """If a file is unreachable, as with a hidden /proc, the rank makes its own copy and leaves no descriptor open."""
    before = set(module.os.listdir("/proc/self/fd"))
    opened = module.os.open

    def refuse(path, flags):
        if str(path).startswith("/proc/") and "/fd/" in str(path):
            raise PermissionError(13, "Permission denied")
        return opened(path, flags)

    monkeypatch.setattr(module.os, "open", refuse)
    assert ask_all(meetings(2), LARGE) == [None, None]
    assert "memory of another rank cannot be opened (Permission denied): this rank makes its own copy" in caplog.text
    assert set(module.os.listdir("/proc/self/fd")) == before
