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
    """A sampler of hoptrain or of a baseline, with a number of threads.

    Attributes:
        family: the library, "hoptrain", "DGL", "PyG" or "papers".
        name: the variant; the one with the family's name is the main variant.
        threads: number of threads.
        sample: takes the seeds of some mini-batches and the number of the first one. Samples them and returns their number of edges (or steps).
        mode: nodes that a hop expands, "all" found so far or only the "new" ones; empty if all compared systems have the same mode.
        note: difference from the other systems, if any.
        counts: whether its results are comparable; if not, it is in the table but not in the summary.
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
        """Name that is unique among the systems of a comparison."""
        return ", ".join(part for part in (self.name, self.mode, str(self.threads)) if part)


Sample: TypeAlias = Callable[[Array], int]
"""A function that samples one mini-batch for the given seeds, and returns its number of edges (or walk steps)."""
NeighborSystems: TypeAlias = Callable[[Sequence[int], bool, Sequence[int]], Iterable[System]]
"""A function that takes fanouts (from the seeds outward), whether to sample with replacement, and thread counts, and returns the systems to time."""
AlgorithmSystems: TypeAlias = Callable[[str, Workload, Sequence[int]], Iterable[System]]
"""A function that takes an algorithm's name, the workload and thread counts, and returns the systems to time; none if the baseline lacks the algorithm."""


def open_baselines(baselines: Mapping[str, Callable[[Graph], T]], names: Sequence[str], graph: Graph) -> Iterator[T]:
    """Open the named baselines with the graph, and yield them. Print a message for each baseline that is not available, and skip it."""
    for name in names:
        try:
            yield baselines[name](graph)
        except InputError as error:
            print(f"skipped {name}: {error}")


def pooled(family: str, name: str, sample: Sample, threads: Sequence[int], **facts: Any) -> Iterator[System]:
    """Yield a system for each number of threads, each of which samples whole mini-batches. ``facts`` are further attributes of the systems."""
    for count in threads:
        yield System(family=family, name=name, threads=count, sample=partial(pool_batches, ThreadPoolExecutor(count), sample), **facts)


def pool_batches(pool: ThreadPoolExecutor, sample: Sample, seeds: Sequence[Array], first: int) -> int:
    """Sample mini-batches in a pool, each in one thread, and return the total number of edges (or steps)."""
    import torch  # imported here, since torch would slow down --help

    torch.set_num_threads(1)
    return sum(pool.map(sample, seeds))


def num_steps(walks: torch.Tensor) -> int:
    """Return the total number of steps of random walks. Each row is a walk, and the first column holds the roots."""
    return int(walks.numel() - len(walks))
