"""How the memory of a cache of rows is shared out, and the one message where it is too little."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hoptrain.engine.errors import InputError
from hoptrain.engine.storage.shared_rows import CachedTable, bytes_for, shared_out

_MOST_MEMORY = 1 << 60


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """Bytes, and what they are for.

    Attributes:
        memory: bytes of all.
        sizes: of each table V and the bytes of a row, by its name.
        most: slots that a table needs at most; V of one that is not named.
        whole: bytes of tables that are held whole, by their names.
        edge_share: a part of this many is for edges that are read from their file; 0 where they are not.
        is_auto: whether nobody said how much it is.
        messages: of bytes of all, how many are for rows of other machines on their way; None where there are no others.
    """

    memory: int
    sizes: Mapping[str, tuple[int, int]]
    most: Mapping[str, int] = field(default_factory=dict)
    whole: Mapping[str, int] = field(default_factory=dict)
    edge_share: int = 0
    is_auto: bool = False
    messages: Callable[[int], int] | None = None

    @property
    def of_edges(self) -> int:
        """Bytes for edges."""
        return self._of_edges(self.memory)

    def tables(self) -> list[CachedTable]:
        """What each table gets.

        Raises:
            InputError: one gets no slot.
        """
        found = self._tables(self.memory)
        if min(table.num_slots for table in found) < 1:
            raise self.too_little({})
        return found

    def check(self, rows: Mapping[str, int]) -> None:
        """Refuse too little memory for a step that uses so many ``rows`` of each table.

        Raises:
            InputError: it is.
        """
        if not self._is_enough(self.memory, rows):
            raise self.too_little(rows)

    def least(self, rows: Mapping[str, int]) -> int:
        """The least memory for steps that use so many rows of each table at most; of one that is not named, a row."""
        return bisect_left(range(_MOST_MEMORY), True, key=lambda memory: self._is_enough(memory, rows))

    def too_little(self, rows: Mapping[str, int]) -> InputError:
        """What is said where a step's rows, so many of each table, have no room."""
        tables = zip(self.sizes, self._tables(self.memory), strict=True)
        name, table = next(own for own in tables if own[1].num_slots < rows.get(own[0], 1))
        parts = [f"{size:,} hold {which} whole, " for which, size in self.whole.items()]
        parts += [f"{self.of_edges:,} are for edges, "] * bool(self.of_edges)
        parts += [f"{self.messages(self.memory):,} are for rows on their way from other machines, "] if self.messages else []
        step = f", and a step uses {rows[name]:,}" if name in rows else ""
        return InputError(
            f"feature_cache is {'auto, ' * self.is_auto}{self.memory:,} bytes: {''.join(parts)}{table.num_bytes:,} are for {name}, with room for "
            f"{table.num_slots:,} of its {table.num_rows:,} rows ({table.row_bytes:,} bytes each) beside what tells where each lies "
            f"({bytes_for(0, table.num_rows, 0):,}){step}; give {_option(self.least(rows))} at least"
            + (" for such a step, or a smaller batch_size or fanouts" if step else " for one row, and more for a step")
        )

    def _of_edges(self, memory: int) -> int:
        return memory // self.edge_share if self.edge_share else 0

    def _tables(self, memory: int) -> list[CachedTable]:
        beside = self._of_edges(memory) + sum(self.whole.values()) + (self.messages(memory) if self.messages else 0)
        return shared_out(max(memory - beside, 0), self.sizes, self.most)

    def _is_enough(self, memory: int, rows: Mapping[str, int]) -> bool:
        return all(table.num_slots >= rows.get(name, 1) for name, table in zip(self.sizes, self._tables(memory), strict=True))


def _option(num_bytes: int) -> str:
    """So many bytes or a few more, as the option is given."""
    power = 1 + (num_bytes >= 100 << 20) + (num_bytes >= 100 << 30)
    return f"{-(-num_bytes // 1024**power)}{['KiB', 'MiB', 'GiB'][power - 1]}"
