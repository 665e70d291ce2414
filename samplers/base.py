"""Base classes of all samplers: ``Sampler``, ``HopSampler`` for samplers that expand hop by hop, and ``FanoutSampler``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from inspect import signature
from itertools import chain
from typing import Any, Generic

from typing_extensions import TypeVar  # typing's own TypeVar has no default before Python 3.13

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
"""Name of the module with the table of CUDA drivers. That module imports every sampler, so ``Sampler`` imports it only on first use."""


class Sampler(ABC, Generic[SomeGraph, SomeBatch]):
    """A sampling algorithm that returns a mini-batch for seeds, as a pure function of (graph, seeds, seed, epoch, batch).

    A sampler keeps no state between batches, so any process may sample any batch. ``Sampler`` without type parameters takes a ``Graph`` and
    returns a ``MiniBatch``. ``Sampler[HeteroGraph, HeteroMiniBatch]`` samples heterogeneous graphs.

    Attributes:
        by_seeds: whether the items of a batch are its seeds, so that every node of a split is a seed once in an epoch. Otherwise an epoch
            yields other ``items``, such as edges or clusters, and the batch states its own seeds.
        single_item: whether a batch is a single item.
        distinct_nodes: whether each node of the graph is at most one node of a batch. Otherwise ``node_ids`` may repeat a node, for example
            if each seed has a tree of its own.
        repeats_edges: whether hops draw with replacement, so that a block may hold an edge several times.
        feedback: names of the feedback that the sampler needs from training, as in ``hoptrain.trainers.feedback``.

    Examples:
        >>> import numpy as np
        >>> from hoptrain import NeighborSampler, load_dataset
        >>> graph, sampler = load_dataset("digits-knn").graph, NeighborSampler([3, 2])
        >>> alone = sampler.sample(graph, [7, 8], seed=1, batch=5)
        >>> in_bulk = sampler.sample_bulk(graph, [[1, 2], [7, 8]], seed=1, first_batch=4)[1]
        >>> np.array_equal(alone.node_ids, in_bulk.node_ids)  # a batch depends only on its address (seed, epoch, batch)
        True
    """

    by_seeds = True
    single_item = False
    distinct_nodes = True
    repeats_edges = False
    feedback: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Show the constructor's options that are attributes of the same name: numbers, strings, tuples and a wrapped sampler."""
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
        """Number of blocks of a mini-batch, which is the number of layers of the model."""

    def prepare(self, graph: SomeGraph, seeds: Array) -> Sampler[SomeGraph, SomeBatch]:
        """Return the sampler, prepared for training on ``seeds`` (N,), the nodes of a split.

        A sampler computes here what it needs once, before the first batch. The loader calls this method and sends the result to its workers.
        """
        return self

    def items(self, graph: SomeGraph, seeds: Array) -> Array:
        """Return the ids (U,) of the items that an epoch divides among its batches, each once.

        By default the items are the seeds. The items of a subgraph sampler may be indices of clusters or of subgraphs.
        """
        return seeds

    def check_data(self, data: Dataset | HeteroDataset) -> None:
        """Raise ``InputError`` if the algorithm cannot sample the graph of a data set."""
        if not isinstance(data.graph, Graph):
            raise InputError(
                f"{type(self).__name__} on {data.name}, a heterogeneous graph: it samples homogeneous graphs only; use HeteroSampler"
            )

    def graph_of(self, graph: SomeGraph) -> Any:
        """Return the graph that ``node_ids`` of a batch refer to: the sampled graph, or one that the sampler derives from it."""
        return graph

    def stores_of(self, data: Dataset | HeteroDataset) -> dict[str, Rows]:
        """Return the tables of node and edge rows (features, labels) that a batch takes rows from, by their name in the batch."""
        return data.stores()

    def state(self) -> dict[str, Array]:
        """Return the arrays that the sampler has learned during training, by name, for a checkpoint. Most samplers have none."""
        return {}

    def load_state(self, state: dict[str, Array]) -> None:
        """Restore the arrays that ``state`` returned. The loader calls this after ``prepare``."""

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
        """Sample one mini-batch. It has the structure only: no features and no labels.

        Args:
            graph: graph to sample.
            seeds: (B,) distinct node ids, or (B,) ``items`` if the sampler yields items other than seeds.
            seed: random seed chosen by the user, in [0, 2**64).
            epoch: number of the epoch, in [0, 2**20).
            batch: number of the batch within the epoch, in [0, 2**32).
            device: "cpu" or "cuda"; creates a new workspace there, and the graph is copied to the device for this call alone.
            workspace: buffers, threads and device to use. The arrays of the mini-batch are views of it, valid until the next call with the
                same workspace.
            options: further inputs of the algorithm for a batch, such as ``times`` of ``TemporalSampler``.

        Raises:
            InputError: a seed is outside the graph or repeated, an address is out of range, or the device cannot be used.
        """
        workspace = workspace_for(device, workspace)
        if workspace.device == "cuda":
            workspace.stream.wait_for_torch()
            bulk_options = {name: [value] for name, value in options.items()}
            return self.start_bulk(graph, [seeds], seed=seed, epoch=epoch, first_batch=batch, workspace=workspace, **bulk_options)()[0]
        check_address(seed, epoch, batch)
        address = Address(seed, epoch, batch)
        sampled = self.addressed(self.sample_on_cpu(graph, seeds, address, workspace, **options), address)
        return sampled.out_of(self.graph_of(graph), self.repeats_edges)

    @abstractmethod
    def sample_on_cpu(self, graph: SomeGraph, seeds: Array, address: Address, workspace: Workspace) -> SomeBatch:
        """Sample one mini-batch on the CPU. Every algorithm implements this method.

        Args:
            graph: graph to sample.
            seeds: (B,) seeds or items, not checked yet; ``hoptrain.samplers.checks.check_seeds`` checks them.
            address: seed, epoch and batch, checked.
            workspace: buffers and threads.

        Returns:
            The mini-batch as ``MiniBatch`` and ``Block`` define it, with int32 or int64 ids and without its address, which ``sample`` adds.
            The loader checks it (``hoptrain.samplers.loader.check_batch``).
        """

    def addressed(self, batch: SomeBatch, address: Address) -> SomeBatch:
        """Return a batch with its address (seed, epoch, batch).

        Raises:
            InputError: ``batch`` is not a mini-batch.
        """
        if not isinstance(batch, SampledBatch):
            raise InputError(
                f"{type(self).__name__} returned {type(batch).__name__}: sample_on_cpu must return a mini-batch; return a MiniBatch"
            )
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
        """Sample several batches, numbered from ``first_batch``. Each batch is bit-identical to the batch that ``sample`` returns.

        Each thread of the workspace samples whole batches. If there is only one batch, the threads divide it among them.
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
        """Queue a bulk of batches on the CUDA stream of a workspace, and return a function that waits for the batches and returns them.

        A workspace has at most one bulk in progress. ``options`` are those of ``sample``, each a list with one value for each batch.

        Raises:
            InputError: the sampler has no CUDA kernels, a seed is outside the graph or repeated, or an address is out of range.
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
        """Sampler, this or the wrapped one, whose hops can be drawn from edges in files or on other machines; None if it needs the whole graph in memory."""
        return None

    @property
    def device_sampler(self) -> Sampler[Any, Any]:
        """Sampler whose CUDA kernels are used: this sampler, or the wrapped one if it wraps another sampler."""
        return self

    def driver(self, graph: SomeGraph, workspace: Workspace) -> Driver:
        """Return the driver that runs this sampler on the device of a workspace. The driver holds a copy of the graph there.

        Raises:
            InputError: the sampler has no CUDA kernels.
        """
        found: Driver = import_module(_DRIVERS).driver_for(graph, self.device_sampler, workspace)
        return found


class HopSampler(Sampler[SomeGraph, SomeBatch]):
    """A sampler that expands outward from the seeds, hop by hop (``hoptrain.samplers.hops``).

    Attributes:
        expand: nodes that a hop expands: "all" found so far, or only the "new" ones of the previous hop.
        is_timed: whether the time of a seed bounds the edges that may be drawn for it; each seed then has a tree of its own.
    """

    expand: str = "all"
    is_timed = False

    @property
    def hop_sampler(self) -> HopSampler[SomeGraph, SomeBatch] | None:
        """This sampler; None for a subclass that overrides ``sample_on_cpu``."""
        return self if type(self).sample_on_cpu is HopSampler.sample_on_cpu else None

    def sample_on_cpu(self, graph: SomeGraph, seeds: Array, address: Address, workspace: Workspace) -> SomeBatch:
        """Sample one mini-batch; see ``Sampler.sample_on_cpu``."""
        return self.sample_from_roots(graph, self.along(graph), self.roots(graph, seeds), address, workspace)

    def sample_from_roots(
        self,
        graph: SomeGraph,
        along: Mapping[Relation, Draws],
        roots: tuple[SeedsByType, Array | None],
        address: Address,
        workspace: Workspace,
    ) -> SomeBatch:
        """Sample one mini-batch from a graph in memory. ``along`` draws the edges of each relation; ``roots`` are the seeds and their times."""
        batch = GrowingBatch.begin(graph, roots, address, workspace, self.expand == "new")
        hops = batch.grow(along, self.num_hops)
        steps = next(hops)
        while steps:
            steps = hops.send(steps[0].draws.sample(batch, steps))
        return self.finished(graph, batch, batch.nodes())

    @abstractmethod
    def roots(self, graph: SomeGraph, seeds: Array) -> tuple[SeedsByType, Array | None]:
        """Return the seeds, checked for dtype and range, and the times (B,) int64 that bound their edges, or None without times."""

    @abstractmethod
    def along(self, graph: SomeGraph) -> Mapping[Relation, Draws]:
        """Return the object that draws edges, for each relation of the graph.

        Raises:
            InputError: the sampler's options do not fit the graph.
        """

    def draws_alone(self, graph: SomeGraph) -> AloneDraws | None:
        """Return the object that draws edges of a partitioned graph from the drawing nodes' in-edges alone; None if the sampler needs more of the graph."""
        return None

    @abstractmethod
    def finished(
        self, graph: SomeGraph, batch: GrowingBatch, nodes: Mapping[str, Array], extra: dict[str, Array] | None = None
    ) -> SomeBatch:
        """Turn ``batch``, whose hops are all sampled, into a mini-batch with ``nodes``, global ids by type, and ``extra`` arrays."""


class FanoutSampler(HopSampler):
    """A sampler of homogeneous graphs whose hops take at most a number, or a share, of the in-edges of each node.

    Attributes:
        fanouts: number or share of edges for each hop.
    """

    fanouts: tuple[int | float, ...]

    @property
    def num_hops(self) -> int:
        """Number of hops, one for each fanout."""
        return len(self.fanouts)

    @property
    def fanout_codes(self) -> tuple[int, ...]:
        """Fanouts in the integer encoding of the kernels."""
        return tuple(map(fanout_code, self.fanouts))

    def roots(self, graph: Graph, seeds: Array) -> tuple[SeedsByType, Array | None]:
        """Return the seeds, checked for dtype and range, and None for the times."""
        seeds = check_seeds(graph, seeds)
        return seeds_of_one_type("", seeds), None

    def finished(self, graph: Graph, batch: GrowingBatch, nodes: Mapping[str, Array], extra: dict[str, Array] | None = None) -> MiniBatch:
        """Turn ``batch``, whose hops are all sampled, into a mini-batch; see ``HopSampler.finished``."""
        blocks = tuple(hop[ONLY] for hop in batch.blocks())
        number, (seed, epoch, step) = batch.seeds.number, batch.address
        return MiniBatch(
            node_ids=nodes[""], blocks=blocks, num_seeds=number, num_step_seeds=number, seed=seed, epoch=epoch, batch=step,
            extra=extra or {}, nested=batch.nested, graph_edge_ids=graph.edge_ids, repeats_edges=self.repeats_edges,
        )  # fmt: skip


def run_bulk(workspace: Workspace, number: int, sample_one: Callable[[int, Workspace], SomeBatch]) -> list[SomeBatch]:
    """Return the batches 0 to ``number`` - 1, each sampled in its own sub-workspace. A single batch gets all threads.

    Thread i samples batch i first, and then always the next batch that no thread has begun. So the first bulk allocates the memory that later
    bulks need.
    """
    if number == 1:
        return [sample_one(0, workspace)]
    for i in range(number):
        workspace.part(i)  # creates the workspaces of all parts before the threads start, since this is not thread-safe
    batches: dict[int, SomeBatch] = {}
    threads = min(workspace.threads, number)
    tickets = iter(range(threads, number))

    def sample_some(thread: int) -> None:
        for i in chain([thread], tickets):
            batches[i] = sample_one(i, workspace.part(i, thread))

    workspace.run([partial(sample_some, thread) for thread in range(threads)])
    return [batches[i] for i in range(number)]


def workspace_for(device: str | None, workspace: Workspace | None) -> Workspace:
    """Return ``workspace``, or a new workspace on ``device`` if it is None.

    Raises:
        InputError: ``device`` is not the device of ``workspace``.
    """
    if workspace is None:
        return Workspace(device=device or "cpu")
    if device not in (None, workspace.device):
        raise InputError(f"device={device!r} with a workspace on {workspace.device!r}: the workspace decides; leave device out")
    return workspace


def check_batch_size(sampler: Sampler[Any, Any], batch_size: int) -> None:
    """Raise ``InputError`` if a sampler whose batches are single items gets another ``batch_size`` than 1."""
    if sampler.single_item and batch_size != 1:
        raise InputError(f"batch_size is {batch_size}: a batch of {type(sampler).__name__} is one subgraph; use batch_size 1")
