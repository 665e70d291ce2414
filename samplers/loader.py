"""The loader: a schedule, a sampler and a data set, run in this process or in sampler processes."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from hoptrain.engine import Dataset, Graph, InputError, Schedule
from hoptrain.engine.arrays import Array
from hoptrain.engine.pool import Batch, WorkerPool, run_inline
from hoptrain.engine.ring import Allocate, Spec, allocate_private, total_bytes
from hoptrain.samplers.base import Sampler, check_seeds
from hoptrain.samplers.gather import gather_rows
from hoptrain.samplers.minibatch import MiniBatch
from hoptrain.samplers.workspace import Workspace


class SampleLoader:
    """Iterates over the mini-batches of an epoch; each iteration takes the next epoch.

    The batches are the same to the bit with any number of workers. They are NumPy arrays in the queue's memory; ``batch.to(device)`` makes
    torch tensors. Workers start with the first epoch, once, and end with ``close()`` or with this process, however it ends.

    Attributes:
        num_workers: sampler processes; 0 samples in this process.
        wait_s: seconds spent so far waiting for batches (with 0 workers: making them).
        num_sampled_edges: edges of all batches delivered so far.
    """

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
        prefetch: int = 2,
        stall_timeout: float = 120.0,
        max_restarts: int = 3,
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
            prefetch: batches each worker may have ready ahead.
            stall_timeout: seconds without a batch that is due, after which its worker is replaced.
            max_restarts: replacements of a worker in a row, without a batch from it in between, before an error ends the run.

        Raises:
            InputError: unknown or empty split, a seed outside the graph, sizes that cannot be, fewer batches than ranks.
        """
        if num_workers < 0 or prefetch < 1:
            raise InputError(f"num_workers is {num_workers} and prefetch {prefetch}: they are at least 0 and 1; correct them")
        if rank is None or world_size is None:
            rank, world_size = _rank_and_world_size()
        seeds = data.split(split) if isinstance(split, str) else check_seeds(data.graph, split, distinct=True)
        schedule = Schedule(seeds=seeds, batch_size=batch_size, rank=rank, world_size=world_size, shuffle=shuffle, seed=seed)
        self.num_workers = num_workers
        self.wait_s = 0.0
        self.num_sampled_edges = 0
        self._pool_options: dict[str, Any] = {"prefetch": prefetch, "stall_timeout": stall_timeout, "max_restarts": max_restarts}
        self._task = _SampleTask(graph=data.graph, x=data.x, y=data.y, sampler=sampler, schedule=schedule)
        self._pool: WorkerPool | None = None
        self._start = (0, 0)  # epoch and step at which the next iteration begins
        self._position = (0, 0)  # epoch and step of the next batch: what state_dict() tells
        self._iteration = 0

    def __len__(self) -> int:
        """Steps of an epoch, the same on every rank."""
        return self._task.schedule.num_steps

    def __iter__(self) -> Iterator[MiniBatch]:
        """The rest of the current epoch, if it was loaded by ``load_state_dict`` in its middle; else the next epoch.

        The epoch is taken when the first batch is asked for: Lightning calls ``iter()`` also to see whether that works.
        """
        epoch, first = self._start
        # An epoch that is left early counts as done: the next iterator moves on.
        self._start = (epoch + 1, 0)
        self._iteration += 1
        iteration = self._iteration
        batches = self._run(epoch, range(first, len(self)))
        for step in range(first, len(self)):
            begin = time.perf_counter()
            arrays, facts = next(batches)
            batch = MiniBatch.from_arrays(arrays, **facts)
            self.wait_s += time.perf_counter() - begin
            self.num_sampled_edges += batch.num_edges
            if iteration == self._iteration:
                self._position = (epoch, step + 1) if step + 1 < len(self) else (epoch + 1, 0)
            yield batch
            del arrays, batch  # so that the slot is free before the wait for the next one

    def _run(self, epoch: int, steps: range) -> Iterator[Batch]:
        if self.num_workers == 0:
            return run_inline(self._task, epoch, steps)
        if self._pool is None:
            self._pool = WorkerPool(self._task, self.num_workers, batch_bytes=self._task.rehearse(epoch), **self._pool_options)
        return self._pool.run(epoch, steps)

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration start at the beginning of ``epoch``."""
        self._start = self._position = (epoch, 0)

    def state_dict(self) -> dict[str, int]:
        """Where the next batch is: epoch and step. With it any number of workers continues the same sequence."""
        return {"epoch": self._position[0], "step": self._position[1]}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue from ``state_dict``."""
        self._start = self._position = (state["epoch"], state["step"])

    def close(self) -> None:
        """End the workers; the next iteration starts new ones."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None


@dataclass(eq=False, kw_only=True, slots=True)
class _SampleTask:
    """What a worker does: sample, then gather features and labels straight into the slot. It is a ``hoptrain.engine.worker.Task``."""

    graph: Graph
    x: Array | None
    y: Array | None
    sampler: Sampler
    schedule: Schedule
    workspace: Workspace = field(default_factory=Workspace)

    def rehearse(self, epoch: int) -> int:
        """Make the first batch here: workers that start now load the compiled kernels from disk. Returns its size in bytes."""
        sizes: list[int] = []

        def allocate(specs: Sequence[Spec]) -> dict[str, Array]:
            sizes.append(total_bytes(specs))
            return allocate_private(specs)

        self.make_batch(epoch, 0, allocate)
        self.workspace = Workspace()
        return sizes[0]

    def make_batch(self, epoch: int, step: int, allocate: Allocate) -> dict[str, Any]:
        begin = time.perf_counter()
        seeds = self.schedule.batch_seeds(epoch, step)
        number = self.schedule.batch_number(step)
        batch = self.sampler.sample(self.graph, seeds, seed=self.schedule.seed, epoch=epoch, batch=number, workspace=self.workspace)
        structure = batch.arrays()
        sampled = time.perf_counter()
        specs = [(name, array.dtype, array.shape) for name, array in structure.items()]
        rows = [(name, store, ids) for name, store, ids in (("x", self.x, batch.node_ids), ("y", self.y, batch.seeds)) if store is not None]
        specs += [(name, store.dtype, (len(ids), *store.shape[1:])) for name, store, ids in rows]
        out = allocate(specs)
        for name, array in structure.items():
            out[name][...] = array
        for name, store, ids in rows:
            gather_rows(store, ids, out[name])
        return {
            "num_src": tuple(block.num_src for block in batch.blocks),
            "nested": batch.nested,
            "num_seeds": batch.num_seeds,
            "seed": self.schedule.seed,
            "epoch": epoch,
            "batch": number,
            "num_step_seeds": self.schedule.num_step_seeds(step),
            "sample_s": sampled - begin,
            "gather_s": time.perf_counter() - sampled,
        }


def _rank_and_world_size() -> tuple[int, int]:
    """torch.distributed's, if it runs in this process; else the variables that its launchers set; else one rank."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
