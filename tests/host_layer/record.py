"""The emulated device's record of host calls, and functions of its library for tests."""

import ctypes
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

LIBRARY = ctypes.CDLL("libcuda.so.1")
LIBRARY.host_layer_memory.restype = ctypes.c_void_p
LIBRARY.host_layer_record.restype = ctypes.c_size_t


class Record:
    """Counts of host calls.

    ``counts`` maps the name of an event to the number of times that it occurred: "call: cuMemAlloc", "launch: NAME",
    "wait: cuStreamSynchronize", "refused: ...", "pageable: ...", "wrong: ...".
    """

    def __init__(self, counts: Counter[str]) -> None:
        self.counts = counts

    def of(self, kind: str) -> dict[str, int]:
        """Return the counts of one kind of event, such as "wait", by the rest of the event's name."""
        return {entry.removeprefix(f"{kind}: "): number for entry, number in self.counts.items() if entry.startswith(f"{kind}: ")}

    def calls(self, function: str) -> int:
        """Return the number of calls of a driver function."""
        return self.counts[f"call: {function}"]

    @property
    def launches(self) -> int:
        """Return the number of single kernel launches; replayed graphs do not count."""
        return sum(self.of("launch").values())

    @property
    def copies(self) -> int:
        """Return the number of single copies; copies in replayed graphs do not count."""
        return sum(number for function, number in self.of("call").items() if function.startswith("cuMemcpy"))

    @property
    def memory(self) -> int:
        """Return the number of allocations and frees, of device memory and of pinned host memory."""
        return sum(
            map(self.calls, ("cuMemAlloc", "cuMemFree", "cuMemHostAlloc", "cuMemFreeHost", "cuMemHostRegister", "cuMemHostUnregister"))
        )

    @property
    def mistakes(self) -> dict[str, int]:
        """Return the calls that CUDA would have rejected: calls during a capture, and unknown arguments."""
        return self.of("refused") | self.of("wrong")


def read() -> Record:
    """Return the record since ``forget``."""
    size = LIBRARY.host_layer_record(None, ctypes.c_size_t(0)) + 4096  # other threads may add to it
    text = ctypes.create_string_buffer(size)
    LIBRARY.host_layer_record(text, ctypes.c_size_t(size))
    entries = (line.rpartition("=") for line in text.value.decode().splitlines())
    return Record(Counter({entry: int(number) for entry, _, number in entries}))


@contextmanager
def recorded() -> Iterator[Record]:
    """Yield a record that is filled with the host calls of the block when it ends."""
    before, record = read(), Record(Counter())
    yield record
    record.counts = read().counts - before.counts
