"""The loader: a schedule, a sampler and a data set, run in this process or in sampler processes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hoptrain.engine import Dataset, Graph, InputError, Schedule
from hoptrain.engine.arrays import Array
from hoptrain.engine.device import check_cuda, to_host, torch_on_device
from hoptrain.engine.device import page_lock as lock_pages
from hoptrain.engine.machine import usable_cores
from hoptrain.engine.queue.pool import Batch, WorkerPool, run_inline
from hoptrain.engine.queue.ring import Allocate, Recycled, Spec, allocate_private, total_bytes
from hoptrain.samplers.base import Sampler, check_batch_size, check_seeds
from hoptrain.samplers.batch.minibatch import MiniBatch
from hoptrain.samplers.checks import check_batch, prepared
from hoptrain.samplers.feed.epochs import EpochLoader, pool_options, rank_and_world_size
from hoptrain.samplers.feed.gather import gather_rows
from hoptrain.samplers.scratch.workspace import Workspace

if TYPE_CHECKING:
    from hoptrain.samplers.feed.device_feed import DeviceFeed

_DEFAULT_BULK = 8
_FROM_A_SCHEDULE = ("train", 1024, 0, True, None, None)
"""Defaults of what a schedule says."""


class SampleLoader(EpochLoader[MiniBatch]):
    """The mini-batches of a data set, as NumPy arrays in the queue's memory; ``batch.to(device)`` makes torch tensors. See ``EpochLoader``."""

    def __init__(
        self,
        data: Dataset,
        sampler: Sampler,
        *,
        split: str | Array = "train",
        batch_size: int = 1024,
        num_workers: int = 0,
        seed: int = 0,
        shuffle: bool = True,
        rank: int | None = None,
        world_size: int | None = None,
        prefetch: int | None = None,
        stall_timeout: float | None = None,
        max_restarts: int | None = None,
        device: str = "cpu",
        bulk: int | None = None,
        threads: int | None = None,
        page_lock: bool = False,
        slots_dir: str | None = None,
        schedule: Schedule | None = None,
    ) -> None:
        """Set up; nothing is started yet.

        Args:
            data: graph, features and labels.
            sampler: the algorithm.
            split: name of a split of ``data``, or vertex ids (N,).
            batch_size: seeds per rank and step.
            num_workers: sampler processes of this rank.
            seed: addresses every random number together with epoch and batch.
            shuffle: a new order of the seeds each epoch.
            rank: this process's rank; by default torch.distributed's, or that of its environment variables.
            world_size: number of ranks; by default likewise.
            prefetch: batches each worker may have ready ahead, by default 2.
            stall_timeout: seconds without a batch that is due, after which its worker is replaced, by default 120.
            max_restarts: replacements of a worker in a row, without a batch from it in between, before an error ends the run; by default 3.
            device: where batches are sampled. With "cuda" and no workers that is the training process's GPU, on a stream beside the training,
                and batches stay there; with workers each has a copy of the graph on the GPU and writes its batches into the queue.
            bulk: batches that are sampled at once, 8 by default; on "cuda" without workers only.
            threads: threads of each worker, by default 1; without workers those of this process, by default the cores that there are for a rank.
                They share a batch's hops and rows.
            page_lock: lock the queue's memory, so that ``batch.to("cuda")`` runs beside the training.
            slots_dir: folder for the queue where memory is short: files without a name there, mapped; by default the queue lies in memory.
            schedule: what is in which batch, in place of ``split``, ``batch_size``, ``seed``, ``shuffle``, ``rank`` and ``world_size``; the sampler is
                then taken as it is, prepared if it has to be.

        Raises:
            InputError: unknown or empty split, a seed outside the graph, sizes that cannot be, fewer batches than ranks, an option that has no
                effect with the others, no CUDA where it is asked for.
        """
        self._pool_options = pool_options(
            num_workers, prefetch=prefetch, stall_timeout=stall_timeout, max_restarts=max_restarts, slots_dir=slots_dir
        )
        if bulk is not None and (bulk < 1 or device == "cpu" or num_workers > 0):
            raise InputError(f'bulk is {bulk}: it is at least 1 and goes with device="cuda" and num_workers=0; correct it or leave it out')
        if page_lock and torch_on_device() is None:
            raise InputError("page_lock is on, but torch has no CUDA device: the queue's memory is locked for a GPU only; leave it out")
        workspace = Workspace(_threads(threads, num_workers, device), device)
        if device == "cuda":
            check_cuda()
        if schedule is None:
            sampler, schedule = plain_schedule(data, sampler, split, batch_size, seed, shuffle, rank, world_size)
        elif not (isinstance(split, str) and (split, batch_size, seed, shuffle, rank, world_size) == _FROM_A_SCHEDULE):
            raise InputError("a schedule beside split, batch_size, seed, shuffle, rank or world_size: it says all of these; leave them out")
        super().__init__(schedule, num_workers)
        self._on_map = lock_pages if page_lock else None
        self._task = _SampleTask(graph=data.graph, x=data.x, y=data.y, sampler=sampler, schedule=schedule, workspace=workspace)
        self._bulk = bulk or _DEFAULT_BULK
        self._memory = Recycled()
        self._feed: DeviceFeed | None = None

    def _run(self, epoch: int, steps: range) -> Iterator[MiniBatch]:
        task = self._task
        if self.num_workers == 0 and task.workspace.device == "cuda":
            if self._feed is None:
                from hoptrain.samplers.feed.device_feed import DeviceFeed

                self._feed = DeviceFeed(task.graph, task.stores(), task.sampler, task.schedule, task.workspace, self._bulk)
            return self._feed.run(epoch, steps)
        if self.num_workers == 0:
            return map(_mini_batch, run_inline(task, epoch, steps, self._memory))
        if self._pool is None:
            self._pool = WorkerPool(task, self.num_workers, batch_bytes=task.rehearse(epoch), on_map=self._on_map, **self._pool_options)
        return map(_mini_batch, self._pool.run(epoch, steps))

    def close(self) -> None:
        """End the workers; the next iteration starts new ones."""
        super().close()
        self._feed = None


def plain_schedule(
    data: Dataset,
    sampler: Sampler,
    split: str | Array = "train",
    batch_size: int = 1024,
    seed: int = 0,
    shuffle: bool = True,
    rank: int | None = None,
    world_size: int | None = None,
) -> tuple[Sampler, Schedule]:
    """The sampler prepared for a split, and the schedule of what it deals out; arguments and errors as of ``SampleLoader``."""
    if rank is None or world_size is None:
        rank, world_size = rank_and_world_size()
    seeds = data.split(split) if isinstance(split, str) else check_seeds(data.graph, split, distinct=True)
    check_batch_size(sampler, batch_size)
    sampler, units = prepared(sampler, data.graph, seeds)
    return sampler, Schedule(seeds=units, batch_size=batch_size, rank=rank, world_size=world_size, shuffle=shuffle, seed=seed)


@dataclass(eq=False, kw_only=True, slots=True)
class _SampleTask:
    """What a worker does: sample, then gather features and labels straight into the slot. It is a ``hoptrain.engine.queue.worker.Task``."""

    graph: Graph
    x: Array | None
    y: Array | None
    sampler: Sampler
    schedule: Schedule
    workspace: Workspace
    is_checked: bool = False
    """Whether a batch of the sampler was checked in full in this process."""

    def stores(self) -> dict[str, Array]:
        """Rows by vertex, by the name that they have in a batch."""
        return {name: store for name, store in (("x", self.x), ("y", self.y)) if store is not None}

    def rehearse(self, epoch: int) -> int:
        """Make the first batch here, on the CPU: workers that start now load the compiled kernels from disk. Returns its size in bytes."""
        sizes: list[int] = []

        def allocate(specs: Sequence[Spec]) -> dict[str, Array]:
            sizes.append(total_bytes(specs))
            return allocate_private(specs)

        replace(self, workspace=Workspace()).make_batch(epoch, 0, allocate)
        return sizes[0]

    def make_batch(self, epoch: int, step: int, allocate: Allocate) -> dict[str, Any]:
        begin = time.perf_counter()
        seeds = self.schedule.batch_seeds(epoch, step)
        number = self.schedule.batch_number(step)
        batch = self.sampler.sample(self.graph, seeds, seed=self.schedule.seed, epoch=epoch, batch=number, workspace=self.workspace)
        check_batch(batch, self.sampler, self.graph, None if self.is_checked else seeds)
        self.is_checked = True
        structure = batch.arrays()
        sampled = time.perf_counter()
        specs = [(name, array.dtype, array.shape) for name, array in structure.items()]
        ids_of = {"x": batch.node_ids, "y": batch.seeds}
        rows = [(name, store, to_host(ids_of[name])) for name, store in self.stores().items()]
        specs += [(name, store.dtype, (len(ids), *store.shape[1:])) for name, store, ids in rows]
        out = allocate(specs)
        for name, array in structure.items():
            out[name][...] = to_host(array)
        for name, store, ids in rows:
            gather_rows(store, ids, out[name], self.workspace)
        return {
            "num_src": tuple(block.num_src for block in batch.blocks),
            "nested": batch.nested,
            "num_seeds": batch.num_seeds,
            "seed": self.schedule.seed,
            "epoch": epoch,
            "batch": number,
            "num_step_seeds": self.schedule.num_step_seeds(step)
            if self.sampler.deals_seeds
            else batch.num_seeds * self.schedule.world_size,
            "sample_s": sampled - begin,
            "gather_s": time.perf_counter() - sampled,
            "made_at": begin,
            "pid": os.getpid(),
        }


def _threads(threads: int | None, num_workers: int, device: str) -> int:
    """The user's choice; else 1 for a worker or a device, and for this process, which waits meanwhile, its share of the cores."""
    if threads is not None:
        return threads
    if num_workers or device != "cpu":
        return 1
    ranks = os.environ.get("LOCAL_WORLD_SIZE") or rank_and_world_size()[1]
    return max(1, usable_cores() // int(ranks))


def _mini_batch(batch: Batch) -> MiniBatch:
    arrays, facts = batch
    return MiniBatch.from_arrays(arrays, **facts)
