"""The loader: a schedule, a sampler and a data set, run in this process or in sampler processes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hoptrain.engine import Dataset, HeteroDataset, HeteroGraph, InputError, Schedule
from hoptrain.engine.arrays import Array, as_array
from hoptrain.engine.device import PLACEMENTS, check_cuda, pin_pages, split_device, torch_on_device
from hoptrain.engine.errors import check_choice
from hoptrain.engine.features.checks import as_ids
from hoptrain.engine.features.quantized import Columns
from hoptrain.engine.machine import parse_size
from hoptrain.engine.queue.ahead import Batch, run_inline, run_together
from hoptrain.engine.queue.options import DEFAULTS, WorkerOptions
from hoptrain.engine.queue.pool import WorkerPool
from hoptrain.engine.queue.ring import Recycled
from hoptrain.engine.queue.shared_memory import check_whole, mapped_files
from hoptrain.engine.schedule import StepSchedule
from hoptrain.engine.store import check_unchanged
from hoptrain.samplers.base import Sampler, SomeBatch, check_batch_size
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.checks import check_distinct, check_nodes
from hoptrain.samplers.loader.check_batch import prepared
from hoptrain.samplers.loader.early import is_known
from hoptrain.samplers.loader.epochs import EpochLoader, rank_and_world_size, threads_for
from hoptrain.samplers.loader.gather import split_columns, with_columns
from hoptrain.samplers.loader.task import SampleTask

if TYPE_CHECKING:
    from hoptrain.samplers.loader.device_feed import DeviceFeed
    from hoptrain.samplers.loader.gpu_cache import HitRates
    from hoptrain.samplers.loader.tier import Tier

_AT_ONCE = 2 << 30
"""Bytes that batches made at once, without workers, may have, with their threads' tables of nodes. Where they would have more, threads share each."""
_PLAIN = {"split": "train", "batch_size": 1024, "seed": 0, "shuffle": True, "rank": None, "world_size": None}
"""The defaults of what a schedule says."""


class SampleLoader(EpochLoader[SomeBatch]):
    """The mini-batches of a data set, as NumPy arrays in the queue's memory; ``batch.to(device)`` makes torch tensors. See ``EpochLoader``.

    With device "cuda" and no workers it samples on the training process's GPU, on a stream beside the training, and batches stay there; workers
    have a copy of the graph each on it, or with "cuda:1" on another one, and write into the queue. With ``gpu_cache`` a GPU keeps the rows
    that are read most, and reads the others from pinned host memory; ``hit_rates`` tells what that brings.

    With ``feature_cache`` the rows of features are read from the data set's file, and those are kept that are used again soonest
    (``hoptrain.samplers.loader.tier``). Without it the file is mapped, and the system keeps what it has room for. Batches are the same.

    Features that the data set has as codes (``QuantizedRows``) stay codes in a batch on the host: ``batch.to(device)`` expands them on the device, and
    ``np.asarray(batch.x)`` here.

    Attributes:
        task: makes the batches, here or in the sampler processes; a ``WorkerPool`` of your own can run it too. ``task.edges`` has the files that edges are
            read from, or None.
        tier: with ``feature_cache``, once the first batch was asked for: what was read so far, and how long that was waited for; else None.

    Examples:
        >>> from hoptrain import NeighborSampler, SampleLoader, load_dataset
        >>> loader = SampleLoader(load_dataset("digits-knn"), NeighborSampler([10, 5]), batch_size=256, num_workers=0, seed=1)
        >>> len(loader)
        5
        >>> for batch in loader:
        ...     print(batch.num_seeds, batch.x.shape, batch.y.shape)
        256 (1748, 64) (256,)
        256 (1760, 64) (256,)
        256 (1771, 64) (256,)
        256 (1769, 64) (256,)
        54 (1043, 64) (54,)
    """

    task: SampleTask
    tier: Tier | None = None
    _feed: DeviceFeed[SomeBatch] | None = None

    def __init__(
        self,
        data: Dataset | HeteroDataset,
        sampler: Sampler[Any, SomeBatch],
        *,
        split: str | Array = "train",
        batch_size: int = 1024,
        num_workers: int = 0,
        seed: int = 0,
        shuffle: bool = True,
        rank: int | None = None,
        world_size: int | None = None,
        worker_options: WorkerOptions = DEFAULTS,
        device: str = "cpu",
        bulk: int | None = None,
        graph_placement: str = "auto",
        feature_placement: str = "auto",
        gpu_cache: float | str | None = None,
        cuda_graphs: bool = True,
        threads: int | None = None,
        pin_memory: bool = False,
        feature_cache: str | None = None,
        prefetch_steps: int | None = None,
        schedule: StepSchedule | None = None,
    ) -> None:
        """Set up; nothing is started yet.

        Args:
            data: graph, features and labels; a ``HeteroDataset`` for a ``HeteroSampler``.
            sampler: the algorithm.
            split: name of a split of ``data``, node ids (N,), or a mask of all nodes (V,) bool.
            batch_size: seeds per rank and step.
            num_workers: sampler processes of this rank.
            seed: addresses every random number together with epoch and batch.
            shuffle: a new order of the seeds each epoch.
            rank: this process's rank; by default torch.distributed's, or that of its environment variables.
            world_size: number of ranks; by default likewise.
            worker_options: how batches come from the workers.
            device: where batches are sampled, "cpu", "cuda", or with workers "cuda:1"; see the class.
            bulk: batches that are sampled at once, on "cuda" without workers only; by default as many as have 8,192 seeds together, from 2 to 64.
            graph_placement: where a device reads the graph: "device" memory, "pinned" host memory, or "auto", by what is free.
            feature_placement: likewise features and labels; without workers only, since these gather them on the host.
            gpu_cache: what each GPU keeps of the features: bytes such as "2GiB", or a share of the rows such as 0.1; see the class.
            cuda_graphs: on "cuda" whether a bulk of a shape that there was before is queued by one call, a CUDA graph.
            threads: threads of each worker, by default 1; without workers of this process, by default the cores that there are for a rank.
            pin_memory: lock the queue's memory, so that ``batch.to("cuda")`` runs beside the training.
            feature_cache: bytes, such as "8GiB", that a machine spends on features, which are read from files, or "auto" for what is left; see the class.
            prefetch_steps: with ``feature_cache`` how many steps ahead it is known which rows are used, by default 256; 0 where batches depend on the training.
            schedule: in place of all that says what is in which batch (from ``split`` to ``world_size``); the sampler is then taken as prepared.

        Raises:
            InputError: a split, a size or an option that cannot be, or has no effect with the others; no CUDA where it is asked for.
        """
        self._of_feed: dict[str, Any] = {"bulk": bulk, "placement": feature_placement, "gpu_cache": gpu_cache}
        workspace = workspace_on(device, num_workers, worker_options, pin_memory, threads, cuda_graphs, graph_placement, self._of_feed)
        self._queue, self._pin_memory, self._memory = worker_options, pin_memory, Recycled(max(2, workspace.threads + 1))
        sampler, schedule = _scheduled(data, sampler, schedule, split, batch_size, seed, shuffle, rank, world_size)
        super().__init__(schedule, num_workers)
        self.task, self._columns = _task_on(data, sampler, schedule, workspace)
        self._of_tier, self._folder = _tier_options(self.task, feature_cache, prefetch_steps), data.path

    def _run(self, epoch: int, steps: range) -> Iterator[SomeBatch]:
        if self._folder is not None:
            check_unchanged(self._folder)
        task = self.task
        if self.num_workers == 0 and task.workspace.device == "cuda":
            if self._feed is None:
                from hoptrain.engine.gpu_memory.meeting import meeting_of
                from hoptrain.samplers.loader.device_feed import DeviceFeed

                task.workspace.meeting = meeting_of(task.schedule.world_size)
                self._feed = DeviceFeed(task, epoch=epoch, columns=self._columns, **self._of_feed)
            return self._feed.run(epoch, steps)
        if self._of_tier and self.tier is None:
            from hoptrain.samplers.loader.tier import Tier

            self.tier = Tier(task, **self._of_tier, num_workers=self.num_workers, worker_options=self._queue)
        if self.num_workers and self._pool is None:
            on_map = pin_pages if self._pin_memory else None
            self._pool = WorkerPool(task, self.num_workers, self._queue, batch_bytes=task.rehearse(epoch), on_map=on_map)
        self._files = mapped_files(*(self.tier.mapped if self.tier else _arrays_of(task)))
        batches = self._pool.run if self._pool else self._here
        return map(self._filled, self.tier.run(batches, epoch, steps) if self.tier else batches(epoch, steps))

    def _here(self, epoch: int, steps: range) -> Iterator[Batch]:
        """Make batches in this process, and see before each that files are whole: to read what was cut off would end the process (SIGBUS)."""
        batches = self._made_here(epoch, steps)
        for _ in steps:
            check_whole(self._files)
            yield next(batches)

    def _made_here(self, epoch: int, steps: range) -> Iterator[Batch]:
        """Batches of this process: as many at once as it has threads, where nothing can come of that but time."""
        task, workspace = self.task, self.task.workspace
        if workspace.threads == 1 or self._of_tier or not is_known(task.sampler) or task.sampler.feedback or task.sampler.state():
            return run_inline(task, epoch, steps, self._memory)
        tasks = [replace(task, workspace=workspace.part(i)) for i in range(workspace.threads)]
        vertices = task.graph.num_nodes
        tables = 4 * len(tasks) * (vertices if isinstance(vertices, int) else sum(vertices.values()))
        return run_together(task, tasks, workspace.run, epoch, steps, self._memory, _AT_ONCE - tables)

    def _filled(self, made: Batch) -> Any:
        """A batch from its slot's arrays and the header that came beside them."""
        check_whole(self._files)  # what lies behind the end of a file, in its last page, reads as zeros
        arrays, header = made
        return header.filled(with_columns(arrays, self._columns)).out_of(self.task.sampler.graph_of(self.task.graph))

    @property
    def hit_rates(self) -> HitRates | None:
        """With a ``gpu_cache``, once the first batch was asked for: the share of the rows that comes from it, expected and by epoch."""
        return None if self._feed is None else self._feed.hit_rates

    def close(self) -> None:
        """End the workers; the next iteration starts new ones."""
        super().close()
        self._feed = None
        if self.tier is not None:
            self.tier.close()


class DeviceOptions(NamedTuple):
    """How a GPU samples for a loader; the options are those of ``SampleLoader``."""

    gpu: int | None = None
    bulk: int | None = None
    graph_placement: str = "auto"
    feature_placement: str = "auto"
    gpu_cache: float | str | None = None
    cuda_graphs: bool = True

    @classmethod
    def checked(
        cls,
        device: Any,
        bulk: int | None = None,
        graph_placement: str = "auto",
        feature_placement: str = "auto",
        gpu_cache: float | str | None = None,
        cuda_graphs: bool = True,
    ) -> DeviceOptions | None:
        """Return the options, or None where ``device`` is the CPU or None.

        Raises:
            InputError: an option that cannot be, or has no effect with the others; CUDA cannot be used.
        """
        of_feed = {"bulk": bulk, "placement": feature_placement, "gpu_cache": gpu_cache}
        name = "cpu" if device is None else str(device)
        workspace = workspace_on(name, 0, DEFAULTS, False, None, cuda_graphs, graph_placement, of_feed)
        if workspace.device == "cpu":
            return None
        return cls(split_device(name)[1], bulk, graph_placement, feature_placement, gpu_cache, cuda_graphs)

    def workspace(self) -> Workspace:
        """Return a new workspace on the GPU."""
        return Workspace(1, "cuda", placement=self.graph_placement, gpu=self.gpu, cuda_graphs=self.cuda_graphs)


def _task_on(data: Any, sampler: Sampler[Any, Any], schedule: StepSchedule, workspace: Workspace) -> tuple[SampleTask, dict[str, Columns]]:
    """What batches are made of; and what its features' codes stand for, by store."""
    stores, columns = split_columns(sampler.stores_of(data))
    return SampleTask(graph=data.graph, stores=stores, sampler=sampler, schedule=schedule, workspace=workspace), columns


def _tier_options(task: SampleTask, feature_cache: str | None, prefetch_steps: int | None) -> dict[str, Any]:
    """Return the options of a ``Tier``: none without ``feature_cache``, which features that are no arrays have by default."""
    if feature_cache is None and prefetch_steps is None and all(isinstance(store, np.ndarray) for store in task.stores.values()):
        return {}
    from hoptrain.samplers.loader.tier import tier_options

    return tier_options(task, feature_cache, prefetch_steps)


def _arrays_of(task: SampleTask) -> list[Array]:
    """Return the arrays of the graph and of the stores."""
    relations = task.graph.relations.values() if isinstance(task.graph, HeteroGraph) else [task.graph]
    return [array for columns in relations for array in columns.arrays().values()] + list(task.stores.values())


def workspace_on(
    device: str,
    num_workers: int,
    worker_options: WorkerOptions,
    pin_memory: bool,
    threads: int | None,
    cuda_graphs: bool,
    placement: str,
    of_feed: dict[str, Any],
) -> Workspace:
    """Return a workspace on a device, once all options that go with the device were checked; arguments are those of ``SampleLoader``.

    Raises:
        InputError: an option that cannot be, or has no effect with the others; no CUDA where it is asked for.
    """
    kind, gpu = split_device(device)
    _check_options(num_workers, worker_options, kind, gpu, of_feed["bulk"], pin_memory)
    _check_placements(kind, num_workers, placement, of_feed["placement"], of_feed["gpu_cache"])
    return Workspace(threads_for(threads, num_workers, kind), kind, placement=placement, gpu=gpu, cuda_graphs=cuda_graphs)


def _check_options(
    num_workers: int, worker_options: WorkerOptions, device: str, gpu: int | None, bulk: int | None, pin_memory: bool
) -> None:
    """Refuse what cannot be, or has no effect with the others."""
    if num_workers < 0:
        raise InputError(f"num_workers is {num_workers}: it is at least 0; correct it")
    for name, value in vars(worker_options).items():
        if num_workers == 0 and value != getattr(DEFAULTS, name):
            raise InputError(f"worker_options.{name} is {value} and num_workers 0: without workers there is no queue; leave it out")
    if bulk is not None and (bulk < 1 or device == "cpu" or num_workers > 0):
        raise InputError(f'bulk is {bulk}: it is at least 1 and goes with device="cuda" and num_workers=0; correct it or leave it out')
    if pin_memory and torch_on_device() is None:
        raise InputError("pin_memory is on, but torch has no CUDA device: the queue's memory is locked for a GPU only; leave it out")
    if device == "cuda":
        check_cuda(gpu)


def _check_placements(device: str, num_workers: int, graph: str, features: str, cache: float | str | None) -> None:
    """Refuse places that there are not, or that nothing is put to."""
    check_choice("graph_placement", graph, PLACEMENTS)
    check_choice("feature_placement", features, PLACEMENTS)
    if graph != "auto" and device == "cpu":
        raise InputError(f'graph_placement is {graph!r}: it tells where a GPU reads the graph, with device="cuda"; leave it out')
    if features != "auto" and (device == "cpu" or num_workers):
        raise InputError(
            f'feature_placement is {features!r}: it tells where a GPU reads features, with device="cuda" and num_workers=0; leave it out'
        )
    if cache is None:
        return
    parse_size(cache, "gpu_cache")
    if device == "cpu" or num_workers:
        raise InputError(f'gpu_cache is {cache}: it is memory of a GPU that samples, with device="cuda" and num_workers=0; leave it out')
    if features == "device":
        raise InputError(f"gpu_cache is {cache} with feature_placement='device': then all rows lie in device memory; leave one of them out")


def _scheduled(
    data: Dataset | HeteroDataset, sampler: Sampler[Any, SomeBatch], schedule: StepSchedule | None, *values: Any
) -> tuple[Sampler[Any, SomeBatch], StepSchedule]:
    """Sampler and schedule: those given, or the ones that the plain arguments make, whose ``values`` stand in the order of ``_PLAIN``."""
    plain = dict(zip(_PLAIN, values, strict=True))
    if not isinstance(data, Dataset | HeteroDataset):
        remedy = "Dataset.from_pyg(data) makes one" if hasattr(data, "edge_index") else "load_dataset(name) opens one by its name"
        raise InputError(f"data is a {type(data).__name__}: a loader takes a Dataset or a HeteroDataset; {remedy}")
    if not isinstance(sampler, Sampler):
        raise InputError(f"sampler is {sampler!r}: a loader takes a sampler, for instance NeighborSampler([15, 10])")
    sampler.check_data(data)
    if schedule is None:
        return plain_schedule(data, sampler, **plain)
    if not isinstance(plain["split"], str) or plain != _PLAIN:
        raise InputError("a schedule beside split, batch_size, seed, shuffle, rank or world_size: it says all of these; leave them out")
    return sampler, schedule


def plain_schedule(
    data: Dataset | HeteroDataset,
    sampler: Sampler[Any, SomeBatch],
    *,
    split: str | Array = "train",
    batch_size: int = 1024,
    seed: int = 0,
    shuffle: bool = True,
    rank: int | None = None,
    world_size: int | None = None,
) -> tuple[Sampler[Any, SomeBatch], Schedule]:
    """The sampler prepared for a split, and the schedule of what it deals out; arguments and errors as of ``SampleLoader``."""
    if rank is None or world_size is None:
        rank, world_size = rank_and_world_size()
    if isinstance(split, str):
        seeds = data.split(split)
    else:
        ids = as_ids(data.name, "of the loader", as_array(split), data.num_seed_nodes)
        seeds = check_distinct(check_nodes(ids, data.num_seed_nodes))
    check_batch_size(sampler, batch_size)
    sampler, items = prepared(sampler, data.graph, seeds)
    return sampler, Schedule(items=items, batch_size=batch_size, rank=rank, world_size=world_size, shuffle=shuffle, seed=seed)
