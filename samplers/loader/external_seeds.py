"""Classes that the loaders of ``hoptrain.pyg`` and ``hoptrain.dgl`` share with their feed (``external_seed_loader.py``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hoptrain.engine import InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.queue.shared_memory import SHARE_FROM_BYTES, shared_array
from hoptrain.engine.schedule import StepSchedule
from hoptrain.kernels.cpu.shuffle import random_words
from hoptrain.kernels.shared.philox import HOP_HOST, MAX_BATCH
from hoptrain.samplers.loader.cores import rank_and_world_size

if TYPE_CHECKING:
    from hoptrain.samplers.base import Sampler
    from hoptrain.samplers.batch.minibatch import SampledBatch
    from hoptrain.samplers.loader.device_feed import DeviceFeed

_HEADER, _ENTRY = 2, 3
"""Number of integers in the header (the user's seed and the number of steps), and in the entry of a step (first position, capacity, number of items)."""


class ExternalBatchSampler(StepSchedule):
    """A schedule whose items are supplied by other code. It stores the items of the steps in progress in a ring buffer that workers share.

    ``begin`` starts an epoch and ends the previous one. A step reuses the entry of the step ``num_places`` steps earlier, whose batch is complete by then. So
    the memory depends on the largest batches, not on the length of the epoch.

    Attributes:
        rank: this rank.
        world_size: number of ranks.
    """

    rank: int = 0
    world_size: int = 1

    def __init__(self, num_places: int, rank: int = 0, world_size: int = 1) -> None:
        """Reserve memory for the items of ``num_places`` steps."""
        self.rank, self.world_size = rank, world_size
        self._num_places = num_places
        self._end = _HEADER + _ENTRY * num_places
        self._file = shared_array("hoptrain-plan", (max(self._end, SHARE_FROM_BYTES // 8),), np.int64)
        self._plan: Array = self._file

    def begin(self, seed: int, num_steps: int) -> None:
        """Begin an epoch with the user's seed. ``num_steps`` is the number of steps of a rank, by which batch numbers differ between ranks."""
        self._plan[:_HEADER] = np.uint64(seed).view(np.int64), num_steps

    def give(self, step: int, items: Array) -> None:
        """Set the items (B,) of a step."""
        begin, capacity, _ = self._entry(step)
        if len(items) > capacity:
            begin, capacity = self._end, len(items) * 5 // 4
            self._end += capacity
        if self._end > len(self._plan):
            self._plan = np.memmap(str(self._file.filename), np.int64, "r+", shape=(2 * self._end,))
        self._entry(step)[:] = begin, capacity, len(items)
        np.copyto(self._plan[begin : begin + len(items)], items)

    @property
    def seed(self) -> int:
        """The user's seed of the epoch."""
        return int(self._plan[0].view(np.uint64))

    @property
    def num_steps(self) -> int:
        """Number of steps of the epoch, as given to ``begin``."""
        return int(self._plan[1])

    def batch_items(self, epoch: int, step: int) -> Array:
        """Return the items (B,) of a step in progress."""
        begin, _, number = map(int, self._entry(step))
        if begin + number > len(self._plan):  # maps the file again after the consumer has enlarged it
            self._plan = np.memmap(str(self._file.filename), np.int64, "r")
        return np.array(self._plan[begin : begin + number])

    def num_step_items(self, step: int) -> int:
        """Return the number of items of this rank at a step."""
        return int(self._entry(step)[2])

    def _entry(self, step: int) -> Array:
        begin = _HEADER + _ENTRY * (step % self._num_places)
        return self._plan[begin : begin + _ENTRY]


class RngContext(NamedTuple):
    """The seed, epoch and rank that determine the random numbers of an epoch."""

    seed: int
    epoch: int
    rank: int
    world_size: int
    num_steps: int

    @classmethod
    def of(cls, seed: int, epoch: int, num_steps: int | None) -> RngContext:
        """Return the context of this rank. If ``num_steps`` is unknown, each rank gets an equal range of all possible batch numbers."""
        rank, world_size = rank_and_world_size()
        return cls(seed, epoch, rank, world_size, MAX_BATCH // world_size if num_steps is None else num_steps)

    def state(self, step: int) -> int:
        """Return the seed for a random generator on the host that serves the batch of a step."""
        return int(random_words(1, self.seed, self.epoch, self.rank * self.num_steps + step, HOP_HOST)[0])


class LoaderSpec(NamedTuple):
    """The graph, the sampler and the feature tables from which batches are made. If any of them is replaced, new workers start."""

    graph: Any
    """The sampled graph, a ``Graph`` or a ``HeteroGraph``."""
    sampler: Sampler[Any, Any]
    """The prepared sampler."""
    stores: Mapping[str, Array]
    """Tables from which a batch gathers rows, by name: features ``x`` of nodes (V, F), and ``edge_attr`` of edges (E, ...)."""
    state: Callable[[], object] = tuple
    """Function that returns the version of the features, which changes when they are written to."""

    def is_same(self, other: LoaderSpec) -> bool:
        """Return whether both specs have the same objects."""
        if self.graph is not other.graph or self.sampler is not other.sampler or self.stores.keys() != other.stores.keys():
            return False
        return all(rows is other.stores[name] for name, rows in self.stores.items())

    def check(self) -> None:
        """Check that stores have one row for each node or edge, since gathering does not check bounds.

        Raises:
            InputError: a store has fewer or more rows.
        """
        for name, rows in self.stores.items():
            what, _, kind = name.partition(".")
            if what == "edge_attr":
                of, number = "edges", (self.graph.relations[tuple(kind.split(":"))] if kind else self.graph).num_edges
            else:
                of, number = "nodes", self.graph.num_nodes[kind] if kind else self.graph.num_nodes
            if len(rows) != number:
                raise InputError(
                    f"{name} has {len(rows):,} rows for {number:,} {of}: must have one for each; give them, or make a new loader for the changed graph"
                )


def plain_rows(x: Any) -> Array | None:
    """Return a contiguous torch tensor on the CPU as an array (V, ...), from which workers can gather rows. Return None for other objects.

    It also returns None for tensors whose indexing has other effects, such as recording gradients.
    """
    import torch

    gathered = (torch.bool, torch.float32, torch.float16, torch.float64, torch.int64, torch.int32, torch.uint8)
    is_plain = type(x) is torch.Tensor and x.device.type == "cpu" and x.layout == torch.strided and x.dtype in gathered and x.dim() >= 1
    if not is_plain or not x.is_contiguous() or x.requires_grad or x.is_neg() or x.is_inference():
        return None
    rows: Array = x.numpy()
    return rows


def version_of(x: Any) -> int:
    """Return the number of in-place changes of a tensor; 0 for other objects and for inference tensors, whose changes torch does not count."""
    try:
        return int(x._version)
    except (AttributeError, RuntimeError):
        return 0


class PreparedBatch(NamedTuple):
    """A sampled batch and its rows by name."""

    batch: SampledBatch
    rows: dict[str, Array]
    finish: Callable[[], object] = tuple
    """Function that waits until the rows are complete. It must be called before the rows are read."""
    on_device: DeviceFeed[Any] | None = None
    """Feed of the GPU that holds the batch and its rows; None on the CPU."""


class BatchSource:
    """A source of one batch: called with the requested items (B,), it returns hoptrain's batch. The rows have their own memory.

    Other threads may still gather rows while the loader's code uses the batch.
    """

    def __init__(self, make: Callable[[Array], PreparedBatch], items: Array | None = None) -> None:
        """Store the function that makes the batch, and the items if they are known."""
        self._make, self._items = make, items
        self._made: PreparedBatch | None = None

    def __call__(self, items: Array) -> Any:
        """Return the batch without rows; its arrays are valid until the next batch.

        Raises:
            InputError: the items are not those of the first request.
        """
        if self._items is not None and not np.array_equal(items, self._items):
            raise InputError(
                "the sampler asked for other seeds the second time: both must be the same; let a negative sampler draw by torch's generator alone"
            )
        if self._made is None:
            self._items, self._made = items, self._make(items)
        return self._made.batch

    @property
    def batch(self) -> Any:
        """The batch; None until it is requested."""
        return self._made and self._made.batch

    @property
    def on_device(self) -> DeviceFeed[Any] | None:
        """Feed of the GPU that holds batch and rows; None on the CPU."""
        return self._made and self._made.on_device

    @property
    def names(self) -> list[str]:
        """Names of the rows."""
        return list(self._made.rows) if self._made else []

    def rows(self) -> dict[str, Array]:
        """Return the rows (S, F) by the name of their store."""
        if self._made is None:
            return {}
        self._made.finish()
        return self._made.rows


class SeedsRequested(Exception):
    """An exception of a ``BatchSource`` that is called only to find out which items a loader requests."""

    def __init__(self, items: Array) -> None:
        """Store the items (B,)."""
        super().__init__()
        self.items = items
