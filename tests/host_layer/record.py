"""The played device's record of what the host asked for, and the libraries' functions for tests."""

import ctypes
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

LIBRARY = ctypes.CDLL("libcuda.so.1")
LIBRARY.host_layer_memory.restype = ctypes.c_void_p
LIBRARY.host_layer_record.restype = ctypes.c_size_t


class Record:
    """Counts of what was asked for.

    Attributes:
        counts: number by entry: "call: cuMemAlloc", "launch: NAME", "wait: cuStreamSynchronize", "refused: ...", "pageable: ...", "wrong: ...".
    """

    def __init__(self, counts: Counter[str]) -> None:
        self.counts = counts

    def of(self, kind: str) -> dict[str, int]:
        """Return the numbers of one kind, such as "wait", by what follows it."""
        return {entry.removeprefix(f"{kind}: "): number for entry, number in self.counts.items() if entry.startswith(f"{kind}: ")}

    def calls(self, function: str) -> int:
        """Return how often a function of the driver was called."""
        return self.counts[f"call: {function}"]

    @property
    def launches(self) -> int:
        """Kernels that were launched one by one; in a captured graph only those of the capture count."""
        return sum(self.of("launch").values())

    @property
    def copies(self) -> int:
        """Copies that were queued one by one."""
        return sum(number for function, number in self.of("call").items() if function.startswith("cuMemcpy"))

    @property
    def memory(self) -> int:
        """Pieces of memory that were asked of the driver or given back, on the device or pinned on the host."""
        return sum(
            map(self.calls, ("cuMemAlloc", "cuMemFree", "cuMemHostAlloc", "cuMemFreeHost", "cuMemHostRegister", "cuMemHostUnregister"))
        )

    @property
    def mistakes(self) -> dict[str, int]:
        """What CUDA would have answered with an error: calls that a capture refuses, and arguments that it knows nothing of."""
        return self.of("refused") | self.of("wrong")


def read() -> Record:
    """Return the record since ``forget``."""
    room = LIBRARY.host_layer_record(None, ctypes.c_size_t(0)) + 4096  # other threads may add to it
    text = ctypes.create_string_buffer(room)
    LIBRARY.host_layer_record(text, ctypes.c_size_t(room))
    entries = (line.rpartition("=") for line in text.value.decode().splitlines())
    return Record(Counter({entry: int(number) for entry, _, number in entries}))


@contextmanager
def recorded() -> Iterator[Record]:
    """Give a record that holds, once the block is left, what was asked for in it."""
    before, record = read(), Record(Counter())
    yield record
    record.counts = read().counts - before.counts
