"""What all mini-batches have in common, of plain graphs and of typed ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

from hoptrain.engine import Address
from hoptrain.engine.arrays import Array
from hoptrain.samplers.batch.transfer import copies_to


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class SampledBatch(ABC):
    """Where a mini-batch comes from. Its arrays are NumPy arrays, or torch tensors after ``.to(device)``.

    A sampler states structure and ``num_seeds``; ``Sampler.sample`` adds the address, the loader rows and times.

    Attributes:
        num_seeds: B.
        seed: the user's seed; with epoch and batch it is the address of all the batch's random numbers.
        epoch: the epoch it belongs to.
        batch: its number within the epoch, over all ranks.
        num_step_seeds: seeds of this step over all ranks; B with one rank.
        sample_s: seconds spent on sampling.
        gather_s: seconds spent on gathering features and labels.
        made_at: when its sampling began, by ``time.perf_counter``, which the processes of a machine share; 0 where that was not noted.
        pid: process that made it.
    """

    num_seeds: int
    seed: int = 0
    epoch: int = 0
    batch: int = 0
    num_step_seeds: int = 0
    sample_s: float = 0.0
    gather_s: float = 0.0
    made_at: float = 0.0
    pid: int = 0

    def at(self, address: Address) -> Self:
        """With its address, of one rank."""
        return replace(self, seed=address.seed, epoch=address.epoch, batch=address.batch, num_step_seeds=self.num_seeds)

    def out_of(self, graph: Any, repeats_edges: bool = False) -> Self:
        """With what it needs of its graph where it is handed out.

        Args:
            graph: the graph that was sampled.
            repeats_edges: whether hops draw with replacement.
        """
        return self

    def __repr__(self) -> str:
        arrays = ", ".join(f"{name} {tuple(array.shape)}" for name, array in self.arrays().items())
        return (
            f"{type(self).__name__}(seed={self.seed}, epoch={self.epoch}, batch={self.batch}, num_seeds={self.num_seeds}, arrays: {arrays})"
        )

    @property
    @abstractmethod
    def seeds(self) -> Any:
        """(B,) global ids of the seeds."""

    @property
    @abstractmethod
    def num_edges(self) -> int:
        """Sampled edges."""

    @abstractmethod
    def map(self, function: Callable[[Any], Any]) -> Self:
        """With ``function`` of each array in its place."""

    @abstractmethod
    def arrays(self) -> dict[str, Array]:
        """The structure's arrays by name: what a slot of the queue holds of it."""

    @abstractmethod
    def row_ids(self) -> dict[str, Any]:
        """Whose rows it takes from a store, by the store's name (``Dataset.stores``): global ids."""

    def edge_places(self, store: str) -> dict[str, Any]:
        """Which edges' features it takes from a store: places in the graph's ``indices`` by the name that these have in it, that of the store and a hop."""
        return {}

    @abstractmethod
    def with_rows(self, rows: dict[str, Any]) -> Self:
        """With the rows of ``row_ids``, those that there are."""

    @abstractmethod
    def header(self, **changes: Any) -> Self:
        """Without its arrays, and with ``changes`` of other fields: what travels beside a slot of the queue."""

    @abstractmethod
    def filled(self, arrays: dict[str, Array]) -> Self:
        """A header with ``arrays()`` put in again, and with rows by their stores' names."""

    def to(self, device: Any) -> Self:
        """The mini-batch as torch tensors on ``device``.

        To the CPU nothing is copied: the tensors share the arrays' memory. To a GPU the copies run beside what torch computes there; torch's
        current stream waits for them on the device, and a slot of the queue goes back to its worker once they are done.
        """
        with copies_to(device) as copy:
            return self.map(copy)
