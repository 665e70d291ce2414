"""The loader for typed graphs: a schedule and a HeteroSampler, run in this process or in sampler processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hoptrain.engine import InputError, Schedule
from hoptrain.engine.arrays import Array
from hoptrain.engine.device import check_cuda, to_host
from hoptrain.engine.hetero_graph import HeteroGraph
from hoptrain.engine.queue.pool import Batch, WorkerPool, run_inline
from hoptrain.engine.queue.ring import Allocate
from hoptrain.samplers.base import check_vertices
from hoptrain.samplers.batch.hetero_minibatch import HeteroMiniBatch
from hoptrain.samplers.feed.epochs import EpochLoader, pool_options, rank_and_world_size
from hoptrain.samplers.feed.gather import gather_rows
from hoptrain.samplers.nodewise.hetero import HeteroSampler
from hoptrain.samplers.scratch.workspace import Workspace

if TYPE_CHECKING:
    from hoptrain.engine.device_store import DeviceRows


class HeteroLoader(EpochLoader[HeteroMiniBatch]):
    """The mini-batches of a typed graph, with features and labels; see ``EpochLoader``."""

    def __init__(
        self,
        graph: HeteroGraph,
        sampler: HeteroSampler,
        seeds: Array,
        *,
        x: Mapping[str, Array] | None = None,
        y: Array | None = None,
        batch_size: int = 1024,
        num_workers: int = 0,
        seed: int = 0,
        device: str = "cpu",
        shuffle: bool = True,
        rank: int | None = None,
        world_size: int | None = None,
        prefetch: int | None = None,
        stall_timeout: float | None = None,
        max_restarts: int | None = None,
        slots_dir: str | None = None,
    ) -> None:
        """Set up; nothing is started yet.

        Args:
            graph: the graph.
            sampler: the algorithm.
            seeds: (N,) distinct vertices of the sampler's ``seed_type``: those that an epoch deals out.
            x: (V_t, F_t) features of the vertices, for the types that have some.
            y: (V_t,) or (V_t, C) labels of the vertices of ``seed_type``.
            batch_size: seeds per rank and step.
            num_workers: sampler processes of this rank.
            seed: addresses every random number together with epoch and batch.
            device: where batches are sampled. With "cuda" and no workers that is the training process's GPU, which has a copy of graph, features
                and labels, and batches stay there; with workers each has a copy of the graph on the GPU and writes its batches into the queue.
            shuffle: a new order of the seeds each epoch.
            rank: this process's rank; by default torch.distributed's, or that of its environment variables.
            world_size: number of ranks; by default likewise.
            prefetch: batches each worker may have ready ahead, by default 2.
            stall_timeout: seconds without a batch that is due, after which its worker is replaced, by default 120.
            max_restarts: replacements of a worker in a row, without a batch from it in between, before an error ends the run; by default 3.
            slots_dir: folder for the queue where memory is short; by default the queue lies in memory.

        Raises:
            InputError: a type that the graph has not, features or labels of another number of vertices, a seed outside the graph, sizes that
                cannot be, no CUDA where it is asked for.
        """
        self._pool_options = pool_options(
            num_workers, prefetch=prefetch, stall_timeout=stall_timeout, max_restarts=max_restarts, slots_dir=slots_dir
        )
        workspace = Workspace(device=device)
        if device == "cuda":
            check_cuda()
        stores = {f"x.{name}": rows for name, rows in (x or {}).items()} | ({} if y is None else {"y": y})
        _check_types(graph, sampler.seed_type, stores)
        seeds = check_vertices(seeds, graph.num_nodes[sampler.seed_type])
        if rank is None or world_size is None:
            rank, world_size = rank_and_world_size()
        schedule = Schedule(seeds=seeds, batch_size=batch_size, rank=rank, world_size=world_size, shuffle=shuffle, seed=seed)
        super().__init__(schedule, num_workers)
        self._task = _HeteroTask(graph=graph, sampler=sampler, schedule=schedule, stores=stores, workspace=workspace)
        self._rows: dict[str, DeviceRows] = {}

    def _run(self, epoch: int, steps: range) -> Iterator[HeteroMiniBatch]:
        if self.num_workers == 0 and self._task.workspace.device == "cuda":
            return self._run_on_device(epoch, steps)
        if self.num_workers == 0:
            return map(_mini_batch, run_inline(self._task, epoch, steps))
        if self._pool is None:
            on_cpu = replace(self._task, workspace=Workspace())
            for _ in run_inline(on_cpu, epoch, range(1)):  # workers that start now load the compiled kernels from disk
                pass
            self._pool = WorkerPool(self._task, self.num_workers, **self._pool_options)
        return map(_mini_batch, self._pool.run(epoch, steps))

    def close(self) -> None:
        """End the workers and give the device's memory back; the next iteration starts anew."""
        super().close()
        self._rows = {}

    def _run_on_device(self, epoch: int, steps: range) -> Iterator[HeteroMiniBatch]:
        """Batches that own their memory there."""
        from hoptrain.engine.device_store import DeviceRows

        task = self._task
        stream = task.workspace.stream
        if not self._rows:
            self._rows = {key: DeviceRows(rows, stream) for key, rows in task.stores.items()}
        for step in steps:
            batch = task.sample(epoch, step).map(stream.copy)
            rows = {key: self._rows[key].gather_here(ids) for key, ids in task.rows_of(batch).items()}
            stream.hand_to_torch(*batch.arrays().values(), *rows.values())
            yield replace(batch, y=rows.pop("y", None), x={key.removeprefix("x."): own for key, own in rows.items()})


@dataclass(eq=False, kw_only=True, slots=True)
class _HeteroTask:
    """What a worker does. It is a ``hoptrain.engine.queue.worker.Task``."""

    graph: HeteroGraph
    sampler: HeteroSampler
    schedule: Schedule
    stores: dict[str, Array]
    """Rows by vertex: ``x.TYPE`` and ``y``."""
    workspace: Workspace

    def make_batch(self, epoch: int, step: int, allocate: Allocate) -> dict[str, Any]:
        batch = self.sample(epoch, step).map(to_host)
        structure, ids_of = batch.arrays(), self.rows_of(batch)
        specs = [(name, array.dtype, array.shape) for name, array in structure.items()]
        specs += [(key, rows.dtype, (len(ids_of[key]), *rows.shape[1:])) for key, rows in self.stores.items()]
        out = allocate(specs)
        for name, array in structure.items():
            out[name][...] = array
        for key, rows in self.stores.items():
            gather_rows(rows, ids_of[key], out[key])
        return {
            "num_src": [[block.num_src for block in hop.values()] for hop in batch.blocks],
            "relations": list(self.graph.relations),
            "seed_type": batch.seed_type,
            "num_seeds": batch.num_seeds,
            "seed": batch.seed,
            "epoch": epoch,
            "batch": batch.batch,
        }

    def sample(self, epoch: int, step: int) -> HeteroMiniBatch:
        """A batch's structure, good until the next one."""
        seeds, number = self.schedule.batch_seeds(epoch, step), self.schedule.batch_number(step)
        return self.sampler.sample(self.graph, seeds, seed=self.schedule.seed, epoch=epoch, batch=number, workspace=self.workspace)

    def rows_of(self, batch: HeteroMiniBatch) -> dict[str, Any]:
        """The vertices whose rows a batch takes, by the store's key."""
        return {key: batch.seeds if key == "y" else batch.node_ids[key.removeprefix("x.")] for key in self.stores}


def _check_types(graph: HeteroGraph, seed_type: str, stores: Mapping[str, Array]) -> None:
    for key, rows in stores.items():
        name = seed_type if key == "y" else key.removeprefix("x.")
        if name not in graph.num_nodes or len(rows) != graph.num_nodes[name]:
            raise InputError(f"{key} has {len(rows):,} rows: the graph's vertices are {graph.num_nodes}; give a row for each of a type")
    if seed_type not in graph.num_nodes:
        raise InputError(f"seed_type is {seed_type!r}: the graph has {', '.join(graph.num_nodes)}; choose one of them")


def _mini_batch(batch: Batch) -> HeteroMiniBatch:
    arrays, facts = batch
    return HeteroMiniBatch.from_arrays(arrays, **facts)
