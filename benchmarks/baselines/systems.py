"""The interface of the systems in the sampling benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from hoptrain.benchmarks.cases.samplers import Workload
from hoptrain.engine import Graph, InputError
from hoptrain.engine.arrays import Array

if TYPE_CHECKING:
    import torch

T = TypeVar("T")


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class System:
    """Something that samples.

    Attributes:
        family: whose it is: "hoptrain", "DGL", "PyG" or "papers".
        name: which variant; that which shares the family's name stands for it.
        threads: threads it uses.
        sample: takes the seeds of some mini-batches and the number of the first; samples them and returns how many edges (or steps) they have.
        mode: which nodes a hop expands, "all" found so far or the "new" ones; empty where systems of one mode alone are compared.
        note: where it does something else than the others.
        counts: whether its results can be compared at all; else it is shown, and left out of the summary.
    """

    family: str
    name: str
    threads: int
    sample: Callable[[Sequence[Array], int], int]
    mode: str = ""
    note: str = ""
    counts: bool = True

    @property
    def label(self) -> str:
        """Different for each system of a comparison."""
        return ", ".join(part for part in (self.name, self.mode, str(self.threads)) if part)


Sample: TypeAlias = Callable[[Array], int]
"""From the seeds of one mini-batch to the number of its edges (or steps)."""
NeighborSystems: TypeAlias = Callable[[Sequence[int], bool, Sequence[int]], Iterable[System]]
"""From fanouts (seeds outward), whether to draw with replacement, and thread counts to the systems."""
AlgorithmSystems: TypeAlias = Callable[[str, Workload, Sequence[int]], Iterable[System]]
"""From an algorithm's name, the workload and thread counts to the systems: none where a peer does not have the algorithm."""


def open_baselines(baselines: Mapping[str, Callable[[Graph], T]], names: Sequence[str], graph: Graph) -> Iterator[T]:
    """Take the graph over into the peers with these names; those that cannot are left out, aloud."""
    for name in names:
        try:
            yield baselines[name](graph)
        except InputError as error:
            print(f"skipped {name}: {error}")


def pooled(family: str, name: str, sample: Sample, threads: Sequence[int], **facts: Any) -> Iterator[System]:
    """Yield for each number of threads a system whose threads take whole mini-batches; ``facts`` are the systems'."""
    for count in threads:
        yield System(family=family, name=name, threads=count, sample=partial(pool_batches, ThreadPoolExecutor(count), sample), **facts)


def pool_batches(pool: ThreadPoolExecutor, sample: Sample, seeds: Sequence[Array], first: int) -> int:
    """Whole mini-batches for each thread."""
    import torch  # here, lest --help wait for it

    torch.set_num_threads(1)
    return sum(pool.map(sample, seeds))


def num_steps(walks: torch.Tensor) -> int:
    """Return the number of steps of walks, one per row, which begin with their roots."""
    return int(walks.numel() - len(walks))
