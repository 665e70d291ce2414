"""``SampleLoader``, which yields the mini-batches of a data set, and the functions that build its schedule from its arguments."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hoptrain.engine import Dataset, HeteroDataset, HeteroGraph, InputError, Schedule
from hoptrain.engine.arrays import Array, as_array
from hoptrain.engine.device import pin_pages, split_device
from hoptrain.engine.errors import explain_keywords
from hoptrain.engine.features.checks import as_ids
from hoptrain.engine.features.quantized import QuantParams
from hoptrain.engine.queue.ahead import Batch
from hoptrain.engine.queue.options import DEFAULTS, WorkerOptions
from hoptrain.engine.queue.shared_memory import check_whole, mapped_files
from hoptrain.engine.schedule import StepSchedule
from hoptrain.engine.store import check_unchanged
from hoptrain.samplers.base import Sampler, SomeBatch, check_batch_size
from hoptrain.samplers.batch.table_batch import TableBatch, TableRows
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.checks import check_distinct, check_nodes
from hoptrain.samplers.hetero import BaseHeteroSampler
from hoptrain.samplers.loader.check_batch import prepared
from hoptrain.samplers.loader.cores import rank_and_world_size
from hoptrain.samplers.loader.epochs import EpochLoader
from hoptrain.samplers.loader.gather import gather_rows, split_columns, with_columns
from hoptrain.samplers.loader.maker import BatchHooks, BatchMaker, DeviceOptions, workspace_on
from hoptrain.samplers.loader.task import SampleTask

if TYPE_CHECKING:
    from hoptrain.samplers.loader.feature_cache import FeatureCache
    from hoptrain.samplers.loader.gpu_cache import HitRates

_PLAIN = {"split": "train", "batch_size": 1024, "seed": 0, "shuffle": True, "rank": None, "world_size": None}
"""Default values of the loader's arguments that the argument ``schedule`` replaces."""


@explain_keywords
class SampleLoader(EpochLoader[SomeBatch]):
    """A loader that yields the mini-batches of a data set as NumPy arrays in shared memory; ``batch.to(device)`` makes torch tensors of them.

    Iteration, workers and resuming are those of ``EpochLoader``.

    With device "cuda" and no workers, it samples on the GPU of the training process, on its own stream, and batches stay on the GPU. With workers, each
    of them has a copy of the graph on that GPU (or on another GPU such as "cuda:1"), and writes batches into the queue. With ``gpu_cache``, a GPU keeps
    the feature rows that are read most often, and reads others from pinned host memory; ``hit_rates`` has the fraction of reads that hit the cache.

    With ``feature_cache``, feature rows are read from the data set's file, and the host feature cache (``hoptrain.samplers.loader.feature_cache``) keeps
    those that are used again soonest. Without it, the file is mapped and the system's page cache decides. Batches are the same.

    Quantised features (``QuantizedRows``) stay codes in a batch on the host. ``batch.to(device)`` dequantises them on the device,
    ``np.asarray(batch.x)`` on the host.

    Attributes:
        task: the task that makes batches in this process or in workers; your own ``WorkerPool`` can run it too. ``task.edges`` are the files that
            edges are read from, or None.
        feature_cache: the host feature cache, with counts of reads and the waiting time; None without ``feature_cache`` and before the first batch.

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
    feature_cache: FeatureCache | None = None

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
        """Check the arguments; no process is started yet.

        Args:
            data: graph, features and labels: a ``Dataset``, or a ``HeteroDataset`` for samplers of heterogeneous graphs.
            sampler: the sampling algorithm.
            split: name of a split of ``data``, node ids (N,), or a mask of all nodes (V,) bool.
            batch_size: number of seeds per rank and step.
            num_workers: number of worker processes of this rank; 0 samples in this process.
            seed: random seed, which together with epoch and batch number determines all random numbers.
            shuffle: True to shuffle the seeds in each epoch.
            rank: rank of this process; by default that of torch.distributed, or of its environment variables.
            world_size: number of ranks; by default that of torch.distributed, or of its environment variables.
            worker_options: options of the worker processes and their queue.
            device: device that samples: "cpu", "cuda", or with workers also another GPU such as "cuda:1".
            bulk: number of batches that a GPU samples at once, without workers; by default enough for 8,192 seeds, and 2 to 64.
            graph_placement: memory in which a GPU reads the graph: "device", "pinned" for host memory, or "auto" for device memory if it suffices.
            feature_placement: memory in which a GPU reads features and labels, as for ``graph_placement``; without workers only.
            gpu_cache: size of the feature cache on each GPU: bytes such as "2GiB", or a fraction of the rows such as 0.1.
            cuda_graphs: True to record the kernels of a bulk as a CUDA graph, and replay it for bulks of the same shape.
            threads: number of threads of each worker, by default 1; without workers, of this process, by default the number of cores per rank.
            pin_memory: pin the queue's memory, so that ``batch.to("cuda")`` overlaps with the training.
            feature_cache: read features from files, with a cache of this size on each machine: bytes such as "8GiB", or "auto" for the free memory.
            prefetch_steps: with ``feature_cache``, number of future steps whose rows are planned; by default 256. 0 if batches depend on the training.
            schedule: items and address of each batch, instead of the arguments from ``split`` to ``world_size``; ``sampler`` must be prepared.

        Raises:
            InputError: an argument is invalid or has no effect together with the others, or CUDA is requested but not available.
        """
        self._device = DeviceOptions(split_device(device)[1], bulk, graph_placement, feature_placement, gpu_cache, cuda_graphs)
        workspace = workspace_on(device, num_workers, worker_options, self._device, pin_memory=pin_memory, threads=threads)
        self._queue, self._pin_memory = worker_options, pin_memory
        sampler, schedule = _scheduled(data, sampler, schedule, split, batch_size, seed, shuffle, rank, world_size)
        super().__init__(schedule, num_workers)
        self.task, self._columns = _task_on(data, sampler, schedule, workspace)
        self._cache_options, self._folder = _feature_cache_options(self.task, feature_cache, prefetch_steps), data.path

    @property
    def can_gather_on_read(self) -> bool:
        """True if batches are made in this process on the CPU, without a feature cache, and features are one C-contiguous array (V, F) of float32."""
        x, is_here = self.task.stores.get("x"), not self.num_workers and self.task.workspace.device == "cpu" and not self._cache_options
        return is_here and isinstance(x, np.ndarray) and x.dtype == np.float32 and x.ndim == 2 and x.flags.c_contiguous

    def gather_on_read(self) -> None:
        """Gather the features of a batch when ``batch.x`` is first read. A layer that sums rows of the table (``TableBatch.table_rows``) needs no copy.

        Raises:
            InputError: ``can_gather_on_read`` is false.
        """
        if not self.can_gather_on_read:
            x, columns = self.task.stores.get("x"), self._columns.get("x")
            kind = columns.format if columns else getattr(x, "dtype", type(x).__name__)
            raise InputError(
                f"gather_on_read with num_workers {self.num_workers}, device {self.task.workspace.device} and features of type {kind}: it needs "
                "num_workers=0, device cpu, no feature_cache, and features (V, F) of float32 in one array; do not call it"
            )
        self.task.gathers_x = False

    def _run(self, epoch: int, steps: range) -> Iterator[SomeBatch]:
        if self._folder is not None:
            check_unchanged(self._folder)
        task = self.task
        if self._cache_options and self.feature_cache is None:
            from hoptrain.samplers.loader.feature_cache import FeatureCache

            self.feature_cache = FeatureCache(task, **self._cache_options, num_workers=self.num_workers, worker_options=self._queue)
        if self._maker is None:
            self._maker = self._new_maker()
        if self.num_workers:
            self._maker.start(epoch)
        self._files = mapped_files(*(self.feature_cache.mapped if self.feature_cache else _arrays_of(task)))
        # The files are checked, since reading past the end of a truncated file would end the process with SIGBUS.
        hooks: BatchHooks[SomeBatch] = BatchHooks(self._filled, check=lambda: check_whole(self._files))
        run = partial(self._maker.run, hooks=hooks)
        return self.feature_cache.run(run, epoch, steps) if self.feature_cache else run(epoch, steps)

    def _new_maker(self) -> BatchMaker:
        task, is_on_gpu = self.task, self.num_workers == 0 and self.task.workspace.device == "cuda"
        if is_on_gpu:
            from hoptrain.engine.gpu_memory.meeting import meeting_of

            task.workspace.meeting = meeting_of(task.schedule.world_size)
        return BatchMaker(
            task,
            num_workers=self.num_workers,
            worker_options=self._queue,
            on_map=pin_pages if self._pin_memory else None,
            threads=1 if self._cache_options or is_on_gpu else task.workspace.threads,
            device=self._device if is_on_gpu else None,
            columns=self._columns,
        )

    def _filled(self, made: Batch) -> Any:
        """Build the batch from its header and the arrays of its queue slot."""
        check_whole(self._files)  # a truncated file reads as zeros up to the end of its last page
        arrays, header = made
        rows = None if self.task.gathers_x else arrays.pop("x")
        batch = header.filled(with_columns(arrays, self._columns)).out_of(self.task.sampler.graph_of(self.task.graph))
        return batch if rows is None else self._with_table(batch, rows)

    def _with_table(self, batch: Any, out: Array) -> TableBatch:
        """Return the batch with features that are gathered into ``out`` when they are read."""
        table, workspace = self.task.stores["x"], self.task.workspace

        def gather(number: int) -> Array:
            gather_rows(table, batch.node_ids[:number], out[:number], workspace)
            return out[:number]

        return TableBatch.of(batch, TableRows(table, batch.node_ids, gather))

    @property
    def hit_rates(self) -> HitRates | None:
        """Fraction of row reads that hit the ``gpu_cache``, expected and by epoch; None without a cache, and before the first batch."""
        return None if self._maker is None else self._maker.hit_rates

    def close(self) -> None:
        """End the workers; the next iteration starts new ones."""
        super().close()
        if self.feature_cache is not None:
            self.feature_cache.close()


def _task_on(
    data: Any, sampler: Sampler[Any, Any], schedule: StepSchedule, workspace: Workspace
) -> tuple[SampleTask, dict[str, QuantParams]]:
    """Return the task that makes batches, and the quantisation parameters of stores by name."""
    stores, columns = split_columns(sampler.stores_of(data))
    return SampleTask(graph=data.graph, stores=stores, sampler=sampler, schedule=schedule, workspace=workspace), columns


def _feature_cache_options(task: SampleTask, feature_cache: str | None, prefetch_steps: int | None) -> dict[str, Any]:
    """Return the options of a ``FeatureCache``; an empty dict without ``feature_cache``, which partitioned features have by default."""
    if feature_cache is None and prefetch_steps is None and all(isinstance(store, np.ndarray) for store in task.stores.values()):
        return {}
    from hoptrain.samplers.loader.feature_cache import cache_options

    return cache_options(task, feature_cache, prefetch_steps)


def _arrays_of(task: SampleTask) -> list[Array]:
    """Return the arrays of the graph, and the tables from which batches take rows (features, labels)."""
    relations = task.graph.relations.values() if isinstance(task.graph, HeteroGraph) else [task.graph]
    return [array for columns in relations for array in columns.arrays().values()] + list(task.stores.values())


def _scheduled(
    data: Dataset | HeteroDataset, sampler: Sampler[Any, SomeBatch], schedule: StepSchedule | None, *values: Any
) -> tuple[Sampler[Any, SomeBatch], StepSchedule]:
    """Return sampler and schedule, which are given or built from ``values`` (in the order of ``_PLAIN``)."""
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
        raise InputError(
            "schedule is given with split, batch_size, seed, shuffle, rank or world_size: it replaces all of these; leave them out"
        )
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
    """Return the sampler prepared for a split, and the schedule of its items; arguments and errors are those of ``SampleLoader``."""
    if rank is None or world_size is None:
        rank, world_size = rank_and_world_size()
    if isinstance(split, str):
        seeds = data.split(split)
    else:
        ids = as_ids(data.name, "of the loader", as_array(split), data.num_seed_nodes)
        seeds = check_distinct(check_nodes(ids, data.num_seed_nodes))
    check_batch_size(sampler, batch_size)
    if isinstance(sampler, BaseHeteroSampler) and isinstance(data, HeteroDataset):
        sampler = sampler.with_seed_type(data.seed_type)  # type: ignore[assignment]
    sampler, items = prepared(sampler, data.graph, seeds)
    return sampler, Schedule(items=items, batch_size=batch_size, rank=rank, world_size=world_size, shuffle=shuffle, seed=seed)
