"""``Budget``: division of the memory of a feature cache among tables and edges, and the error message if it is too small."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hoptrain.engine.errors import InputError
from hoptrain.engine.storage.shared_rows import CachedTable, bytes_for, shared_out

_MOST_MEMORY = 1 << 60


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """A division of the memory of a feature cache among tables, edges and sampled steps.

    Attributes:
        memory: bytes in total.
        sizes: number of rows V and bytes of a row of each cached table, by name.
        most: maximum number of slots that a table can use, by name; V by default.
        whole: bytes of tables that are in memory completely, by name.
        sample_share: N if 1/N of the memory is for sampled future steps and their batches; 0 if none is.
        is_auto: True if ``feature_cache`` is "auto", which stands for the free memory.
        messages: function from the total bytes to the bytes for rows in transit from other machines; None without other machines.
    """

    memory: int
    sizes: Mapping[str, tuple[int, int]]
    most: Mapping[str, int] = field(default_factory=dict)
    whole: Mapping[str, int] = field(default_factory=dict)
    sample_share: int = 0
    is_auto: bool = False
    messages: Callable[[int], int] | None = None

    @property
    def of_samples(self) -> int:
        """Bytes for sampled future steps and their batches."""
        return self._of_samples(self.memory)

    def tables(self) -> list[CachedTable]:
        """Return the cached tables with their sizes in the cache.

        Raises:
            InputError: a table gets no slot.
        """
        found = self._tables(self.memory)
        if min(table.num_slots for table in found) < 1:
            raise self.too_little({})
        return found

    def check(self, rows: Mapping[str, int]) -> None:
        """Check that the rows of a step fit in the cache. ``rows`` is the number of rows of each table.

        Raises:
            InputError: the rows do not fit.
        """
        if not self._is_enough(self.memory, rows):
            raise self.too_little(rows)

    def least(self, rows: Mapping[str, int]) -> int:
        """Return the smallest ``feature_cache`` in bytes for steps that use at most ``rows[name]`` rows of each table, or 1 row if ``rows`` lacks the name."""
        return bisect_left(range(_MOST_MEMORY), True, key=lambda memory: self._is_enough(memory, rows))

    def too_little(self, rows: Mapping[str, int]) -> InputError:
        """Return the error for a step whose rows do not fit. ``rows`` is the number of rows of each table."""
        tables = zip(self.sizes, self._tables(self.memory), strict=True)
        name, table = next(own for own in tables if own[1].num_slots < rows.get(own[0], 1))
        parts = [f"{size:,} are for all of {which}, " for which, size in self.whole.items()]
        parts += [f"{self.of_samples:,} are for sampled steps, "] * bool(self.of_samples)
        parts += [f"{self.messages(self.memory):,} are for rows in transit from other machines, "] if self.messages else []
        step = f", and a step uses {rows[name]:,}" if name in rows else ""
        return InputError(
            f"feature_cache is {'auto, ' * self.is_auto}{self.memory:,} bytes: {''.join(parts)}{table.num_bytes:,} are for {name}, which hold "
            f"{table.num_slots:,} of its {table.num_rows:,} rows ({table.row_bytes:,} bytes each) in addition to lookup tables "
            f"({bytes_for(0, table.num_rows, 0):,}){step}; give {_option(self.least(rows))} at least"
            + (" for such a step, or a smaller batch_size or fanouts" if step else " for one row, and more for a step")
        )

    def _of_samples(self, memory: int) -> int:
        return memory // self.sample_share if self.sample_share else 0

    def _tables(self, memory: int) -> list[CachedTable]:
        beside = self._of_samples(memory) + sum(self.whole.values()) + (self.messages(memory) if self.messages else 0)
        return shared_out(max(memory - beside, 0), self.sizes, self.most)

    def _is_enough(self, memory: int, rows: Mapping[str, int]) -> bool:
        return all(table.num_slots >= rows.get(name, 1) for name, table in zip(self.sizes, self._tables(memory), strict=True))


def _option(num_bytes: int) -> str:
    """Return a number of bytes, rounded up, in the format of ``feature_cache``, such as 8GiB."""
    power = 1 + (num_bytes >= 100 << 20) + (num_bytes >= 100 << 30)
    return f"{-(-num_bytes // 1024**power)}{['KiB', 'MiB', 'GiB'][power - 1]}"
