"""What loaders of other libraries give to their feed: the items of a batch some steps ahead, and what batches are made of."""

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
from hoptrain.samplers.loader.epochs import rank_and_world_size

if TYPE_CHECKING:
    from hoptrain.samplers.base import Sampler
    from hoptrain.samplers.batch.minibatch import SampledBatch
    from hoptrain.samplers.loader.device_feed import DeviceFeed

_HEADER, _ENTRY = 2, 3
"""The user's seed and the number of steps; then for each place where its items begin, for how many there is room, and how many there are."""


class GivenBatches(StepSchedule):
    """A schedule without an order of its own: the items of the steps that are under way, in a ring in memory that the workers see.

    ``begin`` comes before an epoch's first items, and ends the epoch before. A step has the place of the one ``num_places`` before it, whose
    batch was made. The memory grows with the largest batches, and not with the epoch.

    Attributes:
        rank: this rank.
        world_size: number of ranks.
    """

    rank: int = 0
    world_size: int = 1

    def __init__(self, num_places: int, rank: int = 0, world_size: int = 1) -> None:
        """Make room for the items of ``num_places`` steps."""
        self.rank, self.world_size = rank, world_size
        self._num_places = num_places
        self._end = _HEADER + _ENTRY * num_places
        self._file = shared_array("hoptrain-plan", (max(self._end, SHARE_FROM_BYTES // 8),), np.int64)
        self._plan: Array = self._file

    def begin(self, seed: int, num_steps: int) -> None:
        """Begin an epoch at its user's seed. ``num_steps`` are those of each rank, by which the numbers of its batches stand apart."""
        self._plan[:_HEADER] = np.uint64(seed).view(np.int64), num_steps

    def give(self, step: int, items: Array) -> None:
        """The items (B,) of a step."""
        begin, room, _ = self._entry(step)
        if len(items) > room:
            begin, room = self._end, len(items) * 5 // 4
            self._end += room
        if self._end > len(self._plan):
            self._plan = np.memmap(str(self._file.filename), np.int64, "r+", shape=(2 * self._end,))
        self._entry(step)[:] = begin, room, len(items)
        np.copyto(self._plan[begin : begin + len(items)], items)

    @property
    def seed(self) -> int:
        """The user's seed of the epoch."""
        return int(self._plan[0].view(np.uint64))

    @property
    def num_steps(self) -> int:
        """Steps of the epoch, as far as that was known when it began."""
        return int(self._plan[1])

    def batch_items(self, epoch: int, step: int) -> Array:
        """The items (B,) of a step that is under way."""
        begin, _, number = map(int, self._entry(step))
        if begin + number > len(self._plan):  # the consumer has made it longer
            self._plan = np.memmap(str(self._file.filename), np.int64, "r")
        return np.array(self._plan[begin : begin + number])

    def num_step_items(self, step: int) -> int:
        """How many items this rank has at a step."""
        return int(self._entry(step)[2])

    def _entry(self, step: int) -> Array:
        begin = _HEADER + _ENTRY * (step % self._num_places)
        return self._plan[begin : begin + _ENTRY]


class Place(NamedTuple):
    """Where an epoch's random numbers are."""

    seed: int
    epoch: int
    rank: int
    world_size: int
    num_steps: int

    @classmethod
    def of(cls, seed: int, epoch: int, num_steps: int | None) -> Place:
        """Of this rank. Where nobody knows the number of steps, each rank has its part of all numbers that batches may have."""
        rank, world_size = rank_and_world_size()
        return cls(seed, epoch, rank, world_size, MAX_BATCH // world_size if num_steps is None else num_steps)

    def state(self, step: int) -> int:
        """Where a generator of the host starts for the batch of a step."""
        return int(random_words(1, self.seed, self.epoch, self.rank * self.num_steps + step, HOP_HOST)[0])


class Work(NamedTuple):
    """What batches are made of. Another object in one of the places starts the workers anew."""

    graph: Any
    """A ``Graph`` or a ``HeteroGraph``."""
    sampler: Sampler[Any, Any]
    """Prepared."""
    stores: Mapping[str, Array]
    """Rows that come with a batch, by the name that they have for it: features ``x`` of its nodes (V, F), and ``edge_attr`` of its edges (E, ...)."""
    state: Callable[[], object] = tuple
    """Of the features: another one after something was written into them."""

    def is_same(self, other: Work) -> bool:
        """Whether all objects are the same ones."""
        if self.graph is not other.graph or self.sampler is not other.sampler or self.stores.keys() != other.stores.keys():
            return False
        return all(rows is other.stores[name] for name, rows in self.stores.items())

    def check(self) -> None:
        """Refuse rows that are not one for each node, or edge: gathering reads rows without looking at how many there are.

        Raises:
            InputError: there are fewer or more.
        """
        for name, rows in self.stores.items():
            what, _, kind = name.partition(".")
            if what == "edge_attr":
                of, number = "edges", (self.graph.relations[tuple(kind.split(":"))] if kind else self.graph).num_edges
            else:
                of, number = "nodes", self.graph.num_nodes[kind] if kind else self.graph.num_nodes
            if len(rows) != number:
                raise InputError(
                    f"{name} has {len(rows):,} rows for {number:,} {of}: give one for each, and a loader of the graph as it is"
                )


def plain_rows(x: Any) -> Array | None:
    """A tensor of torch as an array that workers may gather rows of: (V, ...) numbers on the CPU, one row after another. None for any other object.

    Whatever else an index into ``x`` would do, such as to hand on gradients, is for torch.
    """
    import torch

    gathered = (torch.bool, torch.float32, torch.float16, torch.float64, torch.int64, torch.int32, torch.uint8)
    is_plain = type(x) is torch.Tensor and x.device.type == "cpu" and x.layout == torch.strided and x.dtype in gathered and x.dim() >= 1
    if not is_plain or not x.is_contiguous() or x.requires_grad or x.is_neg() or x.is_inference():
        return None
    rows: Array = x.numpy()
    return rows


def version_of(x: Any) -> int:
    """Return how often torch changed a tensor in place; 0 for other objects, and for tensors of inference mode, whose changes torch does not count."""
    try:
        return int(x._version)
    except (AttributeError, RuntimeError):
        return 0


class Made(NamedTuple):
    """A batch and its rows by name."""

    batch: SampledBatch
    rows: dict[str, Array]
    finish: Callable[[], object] = tuple
    """To be called before the rows are read."""
    on_device: DeviceFeed[Any] | None = None
    """The feed of the GPU where batch and rows are; None on the CPU."""


class Source:
    """From the items (B,) that a loader's batch asks for to the batch of hoptrain's, and the rows that come with it, in memory of their own.

    While the batch becomes one of the loader's, other threads may gather the rows.
    """

    def __init__(self, make: Callable[[Array], Made], items: Array | None = None) -> None:
        """Take what makes the batch, and the items where they are known."""
        self._make, self._items = make, items
        self._made: Made | None = None

    def __call__(self, items: Array) -> Any:
        """The batch, without rows; its arrays are good until the next one.

        Raises:
            InputError: other items than before.
        """
        if self._items is not None and not np.array_equal(items, self._items):
            raise InputError("the sampler asked for other seeds the second time: let a negative sampler draw by torch's generator alone")
        if self._made is None:
            self._items, self._made = items, self._make(items)
        return self._made.batch

    @property
    def batch(self) -> Any:
        """The batch; None as long as nobody has asked for it."""
        return self._made and self._made.batch

    @property
    def on_device(self) -> DeviceFeed[Any] | None:
        """The feed of the GPU where batch and rows are; None on the CPU."""
        return self._made and self._made.on_device

    @property
    def names(self) -> list[str]:
        """Of the rows."""
        return list(self._made.rows) if self._made else []

    def rows(self) -> dict[str, Array]:
        """The rows (S, F) by the name of their store."""
        if self._made is None:
            return {}
        self._made.finish()
        return self._made.rows


class Asked(Exception):
    """What a batch asks of hoptrain: raised by a source that is there to know it."""

    def __init__(self, items: Array) -> None:
        """Note the items (B,)."""
        super().__init__()
        self.items = items
