"""What a sampler is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from inspect import signature
from itertools import chain
from typing import Any, Generic

from typing_extensions import TypeVar  # with a default, as typing has it from Python 3.13 on

from hoptrain.engine import Address, Dataset, Graph, HeteroDataset, HeteroGraph, InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.features.quantized import Rows
from hoptrain.engine.hetero_graph import Relation
from hoptrain.kernels.shared.draws import fanout_code
from hoptrain.samplers.batch.minibatch import ONLY, MiniBatch, SampledBatch
from hoptrain.samplers.buffers.workspace import Driver, Workspace
from hoptrain.samplers.checks import check_address, check_seeds
from hoptrain.samplers.hops import AloneDraws, Draws, GrowingBatch, SeedsByType, seeds_of_one_type

SomeGraph = TypeVar("SomeGraph", bound=Graph | HeteroGraph, default=Graph)
SomeBatch = TypeVar("SomeBatch", bound=SampledBatch, default=MiniBatch)


_DRIVERS = "hoptrain.samplers.cuda.drivers"
"""The table of what samples on a device, by its name: it knows every sampler, and so none may know it."""


class Sampler(ABC, Generic[SomeGraph, SomeBatch]):
    """A sampling algorithm: from seeds to a mini-batch, as a pure function of (graph, seeds, seed, epoch, batch).

    A sampler keeps no state between batches, so any process may sample any batch. A plain ``Sampler`` is one of a ``Graph`` that makes ``MiniBatch``es;
    ``Sampler[HeteroGraph, HeteroMiniBatch]`` is one of heterogeneous graphs.

    Attributes:
        by_seeds: whether a batch is asked for by its seeds: every node of a split is a seed once in an epoch. Otherwise ``items`` are dealt
            out, and a batch says itself which seeds it has.
        single_item: whether a batch is a single item.
        distinct_nodes: whether a node is one node of a batch. Otherwise a node may stand in ``node_ids`` several times, as where each
            seed has a tree of its own.
        repeats_edges: whether hops draw with replacement, so that a block may hold an edge several times.
        feedback: what the sampler asks the training for, by names that ``hoptrain.trainers.feedback`` knows.

    Examples:
        >>> import numpy as np
        >>> from hoptrain import NeighborSampler, load_dataset
        >>> graph, sampler = load_dataset("digits-knn").graph, NeighborSampler([3, 2])
        >>> alone = sampler.sample(graph, [7, 8], seed=1, batch=5)
        >>> of_bulk = sampler.sample_bulk(graph, [[1, 2], [7, 8]], seed=1, first_batch=4)[1]
        >>> np.array_equal(alone.node_ids, of_bulk.node_ids)  # a batch is a function of its address
        True
    """

    by_seeds = True
    single_item = False
    distinct_nodes = True
    repeats_edges = False
    feedback: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """With the options that stand in attributes of the same names: numbers, words, tuples of them, and a sampler within."""
        shown = []
        for name in signature(type(self)).parameters:
            value = getattr(self, name, None)
            if isinstance(value, Sampler):
                shown.append(repr(value))
            elif isinstance(value, bool | int | float | str | tuple):
                shown.append(f"{name}={list(value) if isinstance(value, tuple) else value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"

    @property
    @abstractmethod
    def num_hops(self) -> int:
        """Number of blocks in a mini-batch: the number of layers of the model."""

    def prepare(self, graph: SomeGraph, seeds: Array) -> Sampler[SomeGraph, SomeBatch]:
        """The sampler as it is used for training on ``seeds`` (N,), the nodes of a split: with what has to be computed once, before the first batch.

        The loader calls it, and sends the result to its workers.
        """
        return self

    def items(self, graph: SomeGraph, seeds: Array) -> Array:
        """What an epoch deals out to batches, each once, (U,) ids: the seeds; a sampler of subgraphs may deal out clusters, or draws."""
        return seeds

    def check_data(self, data: Dataset | HeteroDataset) -> None:
        """Refuse a data set whose graph the algorithm cannot sample."""
        if not isinstance(data.graph, Graph):
            raise InputError(f"{type(self).__name__} on {data.name}, a heterogeneous graph: it samples plain ones; take HeteroSampler")

    def graph_of(self, graph: SomeGraph) -> Any:
        """The graph whose nodes a batch has: the one that is sampled, or what the sampler makes of it."""
        return graph

    def stores_of(self, data: Dataset | HeteroDataset) -> dict[str, Rows]:
        """Rows by node and by edge id, by the name that they have for a batch."""
        return data.stores()

    def state(self) -> dict[str, Array]:
        """What the sampler has learnt from the training, by name; a checkpoint has it. Most learn nothing."""
        return {}

    def load_state(self, state: dict[str, Array]) -> None:
        """Take back what ``state`` gave. The loader has called ``prepare`` by then."""

    def sample(
        self,
        graph: SomeGraph,
        seeds: Array,
        *,
        seed: int = 0,
        epoch: int = 0,
        batch: int = 0,
        device: str | None = None,
        workspace: Workspace | None = None,
        **options: Any,
    ) -> SomeBatch:
        """Sample one mini-batch (structure only: no features, no labels).

        Args:
            graph: the graph.
            seeds: (B,) distinct node ids; of a sampler that deals out something else, (B,) ``items``.
            seed: the user's seed, in [0, 2**64).
            epoch: in [0, 2**20).
            batch: the batch's number within the epoch, in [0, 2**32).
            device: "cpu" or "cuda", short for a new workspace there: the graph is copied to the device for this call alone.
            workspace: scratch memory, threads or device; the mini-batch's arrays are then views of it, good until the next call with the same one.
            options: what else the algorithm takes for a batch, for instance ``times`` of ``TemporalSampler``.

        Raises:
            InputError: a seed outside the graph, or twice; an address out of range; a device that cannot be used.
        """
        workspace = workspace_for(device, workspace)
        if workspace.device == "cuda":
            workspace.stream.wait_for_torch()
            of_bulk = {name: [value] for name, value in options.items()}
            return self.start_bulk(graph, [seeds], seed=seed, epoch=epoch, first_batch=batch, workspace=workspace, **of_bulk)()[0]
        check_address(seed, epoch, batch)
        address = Address(seed, epoch, batch)
        sampled = self.addressed(self.sample_on_cpu(graph, seeds, address, workspace, **options), address)
        return sampled.out_of(self.graph_of(graph), self.repeats_edges)

    @abstractmethod
    def sample_on_cpu(self, graph: SomeGraph, seeds: Array, address: Address, workspace: Workspace) -> SomeBatch:
        """What an algorithm has to say: ``sample`` on the CPU.

        Args:
            graph: the graph.
            seeds: as of ``sample``, not checked yet (``check_seeds``).
            address: seed, epoch and batch, checked.
            workspace: scratch memory and threads.

        Returns:
            What ``MiniBatch`` and ``Block`` say, with ids int32 or int64; ``sample`` adds the address. The loader checks it
            (``hoptrain.samplers.loader.check_batch``).
        """

    def addressed(self, batch: SomeBatch, address: Address) -> SomeBatch:
        """The batch with its address.

        Raises:
            InputError: it is no mini-batch.
        """
        if not isinstance(batch, SampledBatch):
            raise InputError(f"{type(self).__name__} returned {type(batch).__name__}: sample_on_cpu makes a mini-batch; return a MiniBatch")
        return batch.at(address)

    def sample_bulk(
        self,
        graph: SomeGraph,
        seeds: Sequence[Array],
        *,
        seed: int = 0,
        epoch: int = 0,
        first_batch: int = 0,
        device: str | None = None,
        workspace: Workspace | None = None,
    ) -> list[SomeBatch]:
        """Sample several batches, numbered from ``first_batch``; each is bit for bit the one that ``sample`` gives.

        The workspace's threads take whole batches; a single batch is shared between them.
        """
        workspace = workspace_for(device, workspace)
        if workspace.device == "cuda" and not seeds:
            return []
        if workspace.device == "cuda":
            workspace.stream.wait_for_torch()
            return list(self.start_bulk(graph, seeds, seed=seed, epoch=epoch, first_batch=first_batch, workspace=workspace)())

        def sample_one(i: int, part: Workspace) -> SomeBatch:
            return self.sample(graph, seeds[i], seed=seed, epoch=epoch, batch=first_batch + i, workspace=part)

        return run_bulk(workspace, len(seeds), sample_one)

    def start_bulk(
        self, graph: SomeGraph, seeds: Sequence[Array], *, seed: int, epoch: int, first_batch: int, workspace: Workspace, **options: Any
    ) -> Callable[[], Sequence[SomeBatch]]:
        """``sample_bulk`` on a device in two parts: the work is queued on the workspace's stream, and the function returned waits for it.

        One bulk of a workspace is under way at a time. ``options`` are those of ``sample``, a list with one for each batch.

        Raises:
            InputError: the sampler has no kernels for CUDA; or as ``sample_bulk``.
        """
        with workspace.stream.entered():
            wait = self.driver(graph, workspace).start(seeds, seed=seed, epoch=epoch, first_batch=first_batch, **options)

        def finish() -> Sequence[SomeBatch]:
            with workspace.stream.entered():
                batches: Sequence[SomeBatch] = wait().map(lambda _, batch: batch.out_of(graph, self.repeats_edges))
                return batches

        return finish

    @property
    def hop_sampler(self) -> HopSampler[SomeGraph, Any] | None:
        """The sampler whose hops others may draw, who have the edges: this one or the one within. None where it has to look at the graph itself."""
        return None

    @property
    def device_sampler(self) -> Sampler[Any, Any]:
        """The sampler whose kernels sample on a device for this one."""
        return self

    def driver(self, graph: SomeGraph, workspace: Workspace) -> Driver:
        """What samples on the workspace's device in the place of this one; it has a copy of the graph there.

        Raises:
            InputError: the sampler has no kernels for CUDA.
        """
        found: Driver = import_module(_DRIVERS).driver_for(graph, self.device_sampler, workspace)
        return found


class HopSampler(Sampler[SomeGraph, SomeBatch]):
    """A sampler that goes from the seeds outward, hop by hop (``hoptrain.samplers.hops``).

    Attributes:
        expand: which nodes a hop expands, "all" found so far or the "new" ones of the hop before.
        is_timed: whether times bound the edges that are drawn, so that a node belongs to the tree of one seed.
    """

    expand: str = "all"
    is_timed = False

    @property
    def hop_sampler(self) -> HopSampler[SomeGraph, SomeBatch] | None:
        """This sampler; None for a subclass that samples in a way of its own."""
        return self if type(self).sample_on_cpu is HopSampler.sample_on_cpu else None

    def sample_on_cpu(self, graph: SomeGraph, seeds: Array, address: Address, workspace: Workspace) -> SomeBatch:
        """Sample one mini-batch; see ``Sampler.sample_on_cpu``."""
        return self.grown(graph, self.along(graph), self.roots(graph, seeds), address, workspace)

    def grown(
        self,
        graph: SomeGraph,
        along: Mapping[Relation, Draws],
        roots: tuple[SeedsByType, Array | None],
        address: Address,
        workspace: Workspace,
    ) -> SomeBatch:
        """Sample one mini-batch of the roots from a graph in memory."""
        batch = GrowingBatch.begin(graph, roots, address, workspace, self.expand == "new")
        hops = batch.grow(along, self.num_hops)
        steps = next(hops)
        while steps:
            steps = hops.send(steps[0].draws.sample(batch, steps))
        return self.finished(graph, batch, batch.nodes())

    @abstractmethod
    def roots(self, graph: SomeGraph, seeds: Array) -> tuple[SeedsByType, Array | None]:
        """Return the seeds, checked for kind and range, and the times (B,) int64 that bound their edges, of samplers with times."""

    @abstractmethod
    def along(self, graph: SomeGraph) -> Mapping[Relation, Draws]:
        """Return how edges are drawn along each of the graph's relations.

        Raises:
            InputError: the sampler's options do not fit the graph.
        """

    def draws_alone(self, graph: SomeGraph) -> AloneDraws | None:
        """Return how a node draws its edges where the owner of its column draws for it; None if that takes more of the graph."""
        return None

    @abstractmethod
    def finished(
        self, graph: SomeGraph, batch: GrowingBatch, nodes: Mapping[str, Array], extra: dict[str, Array] | None = None
    ) -> SomeBatch:
        """Return the mini-batch of a batch that has all hops, of its nodes by type, and of ``extra`` arrays."""


class FanoutSampler(HopSampler):
    """A sampler of plain graphs whose hops take up to a number, or a share, of a node's edges: ``fanouts``.

    Attributes:
        fanouts: one a hop.
    """

    fanouts: tuple[int | float, ...]

    @property
    def num_hops(self) -> int:
        """Number of fanouts."""
        return len(self.fanouts)

    @property
    def fanout_codes(self) -> tuple[int, ...]:
        """The fanouts as kernels take them."""
        return tuple(map(fanout_code, self.fanouts))

    def roots(self, graph: Graph, seeds: Array) -> tuple[SeedsByType, Array | None]:
        """Return the seeds, checked for kind and range, without times."""
        seeds = check_seeds(graph, seeds)
        return seeds_of_one_type("", seeds), None

    def finished(self, graph: Graph, batch: GrowingBatch, nodes: Mapping[str, Array], extra: dict[str, Array] | None = None) -> MiniBatch:
        """See ``HopSampler.finished``."""
        blocks = tuple(hop[ONLY] for hop in batch.blocks())
        number, (seed, epoch, step) = batch.seeds.number, batch.address
        return MiniBatch(
            node_ids=nodes[""], blocks=blocks, num_seeds=number, num_step_seeds=number, seed=seed, epoch=epoch, batch=step,
            extra=extra or {}, nested=batch.nested, graph_edge_ids=graph.edge_ids, repeats_edges=self.repeats_edges,
        )  # fmt: skip


def run_bulk(workspace: Workspace, number: int, sample_one: Callable[[int, Workspace], SomeBatch]) -> list[SomeBatch]:
    """The batches 0 to ``number`` - 1, each in its own part of the workspace; a single batch gets all of the threads.

    A thread takes one of its own first, so that one bulk makes all memory that the next will need, and then the next that nobody has.
    """
    if number == 1:
        return [sample_one(0, workspace)]
    for i in range(number):
        workspace.part(i)  # made by this thread alone
    batches: dict[int, SomeBatch] = {}
    threads = min(workspace.threads, number)
    tickets = iter(range(threads, number))

    def sample_some(thread: int) -> None:
        for i in chain([thread], tickets):
            batches[i] = sample_one(i, workspace.part(i, thread))

    workspace.run([partial(sample_some, thread) for thread in range(threads)])
    return [batches[i] for i in range(number)]


def workspace_for(device: str | None, workspace: Workspace | None) -> Workspace:
    """The workspace given, or a new one on the device.

    Raises:
        InputError: both, and they differ.
    """
    if workspace is None:
        return Workspace(device=device or "cpu")
    if device not in (None, workspace.device):
        raise InputError(f"device={device!r} with a workspace on {workspace.device!r}: the workspace decides; leave device out")
    return workspace


def check_batch_size(sampler: Sampler[Any, Any], batch_size: int) -> None:
    """Refuse a loader's batches of several items where a batch is one."""
    if sampler.single_item and batch_size != 1:
        raise InputError(f"a batch of {batch_size} subgraphs: for {type(sampler).__name__} it is one; use batch_size 1")
