"""How many mini-batches a second does a loader make, depending on where the features are? Every system has one process that makes batches."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hoptrain.benchmarks.baselines.installed import call
from hoptrain.benchmarks.baselines.loaders import Case, Consumer, touch
from hoptrain.benchmarks.common.child import Child, ChildError
from hoptrain.benchmarks.storage.policies import Policy
from hoptrain.benchmarks.storage.sources import Cached, InMemory, Mapped, Source, features_of, join
from hoptrain.engine import Dataset, InputError, Schedule
from hoptrain.engine.queue.ahead import Batch
from hoptrain.engine.queue.options import DEFAULTS
from hoptrain.engine.queue.pool import WorkerPool
from hoptrain.engine.storage.filler import Filled, run_and_epoch
from hoptrain.samplers import Sampler, Workspace
from hoptrain.samplers.loader.feature_cache import FeatureCache
from hoptrain.samplers.loader.task import SampleTask

_OWN_BYTES = 16 << 20
"""Bytes that a process in a control group may use in addition to those for features, for the buffers of the queue and of sampling."""
_LINE_BYTES = 64


def control_group(name: str, num_bytes: int) -> Path | None:
    """Create a control group that limits the memory of its processes, including the page cache that they fill, or return None if that is impossible."""
    for root, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = Path(root, f"hoptrain-bench-{os.getpid()}-{name}")
        with suppress(OSError):
            group.mkdir()
            try:
                (group / limit).write_text(str(num_bytes + _OWN_BYTES))
            except OSError:
                group.rmdir()
            else:
                return group
    return None


@dataclass(eq=False, kw_only=True, slots=True)
class System:
    """A source of features with the process that makes its batches.

    Attributes:
        schedule: the seeds of each batch.
        pool: the process that makes batches.
        batches: number of batches of a call.
        use: function that is called with each batch.
        tier: the loader's feature cache, or None for another source.
        group: the control group of the process, or None.
        dropped: files whose pages are dropped from the page cache before each call.
        filled: for each call, the fields of ``Filled`` summed over its steps; empty without a tier.
    """

    schedule: Schedule
    pool: WorkerPool
    batches: int
    use: Callable[[Any], None]
    tier: FeatureCache | None
    group: Path | None
    dropped: Sequence[str]
    filled: list[tuple[float, ...]]

    def __call__(self, call: int) -> int:
        """Take the next batches, starting with the second epoch, and return how many were taken."""
        epoch, steps = piece(self.schedule.num_steps, self.batches, call)
        for path in self.dropped:
            drop_cached(path)
        return self.take(epoch + 1, steps)

    def take(self, epoch: int, steps: range) -> int:
        """Take and use the batches of the given steps, and return how many were taken."""
        before = self.tier.filled if self.tier else Filled()
        for arrays, header in self._made(epoch, steps):
            self.use(header.filled(arrays))
            arrays.clear()  # frees the slot before waiting for the next batch
        if self.tier:
            self.filled.append(tuple(b - a for a, b in zip(before, self.tier.filled, strict=True)))
        return len(steps)

    def _made(self, epoch: int, steps: range) -> Iterator[Batch]:
        if self.tier:
            return self.tier.run(self.pool.run, epoch, steps)
        return self.pool.run(run_and_epoch(1, epoch), steps)

    def close(self) -> None:
        """End the processes of the system."""
        self.pool.close()
        if self.tier:
            self.tier.close()
        if self.group:
            with suppress(OSError):
                self.group.rmdir()


@dataclass(eq=False, kw_only=True, slots=True)
class Dgl:
    """A separate process with DGL's loader and memory-mapped features, limited by a control group like the maps.

    Attributes:
        child: the process.
        case: seeds, fanouts and batch size of a call.
        group: the control group.
    """

    child: Child
    case: Case
    group: Path

    @classmethod
    def opened(cls, data: Dataset, case: Case, memory: int) -> Dgl | None:
        """Start the process, or print why DGL is skipped and return None: DGL is not installed, or a control group cannot be made."""
        group = control_group("dgl", memory)
        if group is None or data.path is None:
            print("skipped DGL: its memory must be limited by a control group, which cannot be created here")
            return None
        join_group = partial(join, group)
        made = cls(child=Child(Consumer, partial(call, "dgl", "open_mapped", join_group), data.path), case=case, group=group)
        try:
            made.child.call("prepare", case)
        except (InputError, ChildError) as error:
            print(f"skipped DGL: {error}")
            made.close()
            return None
        return made

    def __call__(self, number: int) -> int:
        """Load the batches of the case, and return their number."""
        batches: int = self.child.call("load", 0).batches
        return batches

    def close(self) -> None:
        """End the process."""
        self.child.close()
        with suppress(OSError):
            self.group.rmdir()


def read_lines(batch: Any) -> None:
    """Read one value of every cache line of the features of a mini-batch."""
    touch(batch.x.view(np.uint8).reshape(len(batch.x), -1), _LINE_BYTES)


def piece(num_steps: int, batches: int, call: int) -> tuple[int, range]:
    """Return the epoch and the steps whose batches the given call takes. Each epoch is divided among calls of about ``batches`` steps."""
    pieces = max(1, round(num_steps / batches))
    epoch, part = divmod(call, pieces)
    return epoch, range(part * num_steps // pieces, (part + 1) * num_steps // pieces)


def opened(
    data: Dataset,
    sampler: Sampler[Any, Any],
    schedule: Schedule,
    *,
    memory: int,
    num_slots: int,
    prefetch_steps: int,
    policies: Mapping[str, Callable[[], Policy]],
    batches: int,
    use: Callable[[Any], None] = read_lines,
    without: Collection[str] = (),
) -> dict[str, System]:
    """Return the systems by name. Each reads the features from the data set's file.

    Args:
        data: a data set opened from a folder.
        sampler: the prepared sampler.
        schedule: the seeds of each batch.
        memory: bytes that each system may use for features, except for the one that has all of them in memory.
        num_slots: number of rows that fit in ``memory``.
        prefetch_steps: number of steps that the tier knows ahead.
        policies: functions that make the cache policies, by name.
        batches: number of batches of a call.
        use: function that is called with each batch.
        without: names of systems to leave out.
    """
    file = features_of(data)
    drop_cached(file.path)
    sources: dict[str, Source | None] = {"in memory": InMemory(file=file), "tier": None}
    for name, advice in (("map, MADV_RANDOM", mmap.MADV_RANDOM), ("map", mmap.MADV_NORMAL)):
        if name not in without:  # not created if unused: no process would join its control group, and nothing would remove it
            sources[name] = Mapped(file=file, advice=advice, group=control_group(f"{advice:d}", memory))
    sources |= {name: Cached(file=file, num_slots=num_slots, make=make) for name, make in policies.items()}
    systems, own = {}, {name: store for name, store in (("x", data.x), ("y", data.y)) if store is not None}
    for name, source in ((name, source) for name, source in sources.items() if name not in without):
        task = SampleTask(graph=data.graph, stores=dict(own), sampler=sampler, schedule=schedule, workspace=Workspace())
        tier = None if source else FeatureCache(task, memory, prefetch_steps, 1, DEFAULTS)
        if source:
            task.stores["x"] = source
        pool = WorkerPool(task, 1, batch_bytes=task.rehearse(0))
        group = source.group if source else None
        dropped = [file.path] if isinstance(source, Mapped) and not group else []
        systems[name] = System(schedule=schedule, pool=pool, batches=batches, use=use, tier=tier, group=group, dropped=dropped, filled=[])
    return systems


def drop_cached(path: str) -> None:
    """Drop a file's pages from the page cache."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)
