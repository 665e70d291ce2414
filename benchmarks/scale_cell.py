"""What a cell of the scalability study does: ranks that train one model on mini-batches from one system's loader.

The loop is written here, by hand and once for all systems, with torch's ``DistributedDataParallel`` and Adam. An epoch begins with a barrier and ends with
the last step of the slowest rank; the first epoch starts the workers and does not count. The model is hoptrain's ``GNN`` for all. Its weights are
evaluated at the end by exact inference over full neighbourhoods, for all by the same code.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hoptrain.benchmarks import memory
from hoptrain.benchmarks.grid import FOUND, SKIPPED
from hoptrain.benchmarks.systems import FAMILY
from hoptrain.benchmarks.trial import BEGIN, RAISED, say
from hoptrain.engine import Dataset, InputError
from hoptrain.engine.arrays import Array

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from hoptrain.benchmarks.scale_loaders import Feed, Item

SYSTEMS = ("hoptrain", "pyg", "dgl", "papers")
HAVE = {"neighbor": SYSTEMS[:3], "cluster": SYSTEMS[:3], "ladies": ("hoptrain", "papers"), "fastgcn": ("hoptrain", "papers")}
"""Who has which algorithm."""
PHASES = ("wait", "copy", "train", "all_reduce", "other")
"""Of the trainer's time, in the order of a step; together they are the epoch."""
ALLOCATORS = ("malloc", "tcmalloc")
_TICK_S = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One point of the grid.

    Attributes:
        system: whose loader.
        arch: sage or gat.
        ranks: training processes.
        workers: loader processes of each rank; 0 loads in the rank's own.
        batch_size: seeds per rank and step.
        dataset: name, as in ``load_dataset``.
        scale: of a synthetic set.
        fanouts: from the seeds outward.
        expand: of hoptrain's sampler, "all" as DGL or "new" as PyG.
        hidden: width between layers.
        heads: of gat.
        dropout: share of hidden inputs dropped.
        lr: Adam's learning rate.
        weight_decay: Adam's L2 penalty.
        epochs: that count.
        num_seeds: seeds of an epoch over all ranks, taken from the training split at random; None takes all.
        threads: torch's threads of a rank; None takes the rank's share of the cores less one for each worker, at least 1.
        allocator: what the processes' memory comes from, for all systems alike.
        test_nodes: vertices of the test split that are evaluated; None takes all, 0 evaluates nothing.
        seed: of weights and batches.
        algorithm: of sampling; ``bench scale`` has "neighbor" alone. The number of fanouts is that of layers for all.
        clusters: of cluster; a batch has ``batch_size`` of them.
        layer_sizes: draws of ladies and fastgcn, from the seeds outward.
    """

    system: str
    arch: str = "sage"
    ranks: int = 1
    workers: int = 2
    batch_size: int = 1024
    dataset: str = "synthetic:reddit"
    scale: float = 1.0
    fanouts: tuple[int, ...] = (25, 10)
    expand: str = "all"
    hidden: int = 256
    heads: int = 8
    dropout: float = 0.5
    lr: float = 0.005
    weight_decay: float = 0.0005
    epochs: int = 2
    num_seeds: int | None = None
    threads: int | None = None
    allocator: str = "malloc"
    test_nodes: int | None = None
    seed: int = 0
    algorithm: str = "neighbor"
    clusters: int = 0
    layer_sizes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name, known in (
            ("arch", ("sage", "gat")),
            ("expand", ("all", "new")),
            ("allocator", ALLOCATORS),
            ("algorithm", tuple(HAVE)),
            ("system", HAVE.get(self.algorithm, ())),
        ):
            if getattr(self, name) not in known:
                raise InputError(f"{name} is {getattr(self, name)!r}: choose one of {', '.join(known)}")
        least = min(self.ranks, self.batch_size, self.epochs, self.hidden, self.threads or 1, len(self.fanouts))
        if least < 1 or self.workers < 0 or (self.num_seeds is not None and self.num_seeds < self.ranks):
            raise InputError(
                f"{self.ranks} ranks, batches of {self.batch_size}, {self.epochs} epochs, {self.workers} workers, {self.num_seeds} seeds: all are at "
                "least 1 (workers 0), and there is a seed for each rank; correct them"
            )
        wants = {"cluster": self.clusters > 0, "ladies": bool(self.layer_sizes), "fastgcn": bool(self.layer_sizes)}
        if not wants.get(self.algorithm, True) or (self.algorithm != "neighbor" and self.ranks > 1):
            raise InputError(
                f"{self.algorithm} with {self.clusters} clusters, layer_sizes {list(self.layer_sizes)} and {self.ranks} ranks: cluster needs clusters, "
                "ladies and fastgcn need layer_sizes, and all three are compared with one rank; correct them"
            )


class Place(NamedTuple):
    """Where a rank stands: its number, and the seeds (N,) of an epoch over all ranks."""

    rank: int
    seeds: Array


def command_of(cell: Cell, folder: Path) -> list[str]:
    """What runs a cell on the data set in ``folder``."""
    return [sys.executable, "-m", "hoptrain.benchmarks.scale_cell", json.dumps(asdict(cell)), str(folder)]


def main(arguments: Sequence[str]) -> None:
    """Run a cell, its ranks in processes of their own, and print what was found; with a rank as the fourth argument, be that rank."""
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in json.loads(arguments[0]).items()}
    cell = Cell(**values)
    if len(arguments) > 2:
        _be_rank(cell, Path(arguments[1]), Path(arguments[2]), int(arguments[3]))
        return
    say(BEGIN)
    reason = _missing(cell)
    if reason is not None:
        say(f"{SKIPPED}{reason}")
        return
    with tempfile.TemporaryDirectory() as scratch:
        _run_ranks(arguments, cell.ranks, Path(scratch))
        found = [json.loads((Path(scratch) / f"{rank}.json").read_text()) for rank in range(cell.ranks)]
    say(FOUND + json.dumps(merge(found)))


def _missing(cell: Cell) -> str | None:
    from hoptrain.benchmarks.peer_loaders import tcmalloc
    from hoptrain.benchmarks.peers import require
    from hoptrain.benchmarks.scale_loaders import NEEDS

    if cell.allocator == "tcmalloc" and tcmalloc() is None:
        return "tcmalloc is not installed (Debian: libtcmalloc-minimal4)"
    package = NEEDS[cell.system]
    try:
        if package is not None:
            require(package)
    except InputError as error:
        return f"{package}: {error}"
    return None


def _run_ranks(arguments: Sequence[str], ranks: int, scratch: Path) -> None:
    """As a launcher does: one process a rank; when one fails, the others are ended."""
    command = [sys.executable, "-m", "hoptrain.benchmarks.scale_cell", *arguments, str(scratch)]
    environment = os.environ | {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
    processes = [
        subprocess.Popen([*command, str(rank)], env=environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)}, start_new_session=True)
        for rank in range(ranks)
    ]
    try:
        while (codes := [process.poll() for process in processes]) and None in codes and not any(codes):
            time.sleep(_TICK_S)
    finally:
        for process in processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # also the workers that wait for the next epoch
            process.wait()
    if any(codes):
        raise SystemExit(next(1 for code in codes if code))


def merge(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What the ranks found, together: times of the slowest rank in the middle one of the epochs, memory as sums, and rank 0's accuracy."""
    epochs = list(zip(*(one["epochs"] for one in found), strict=True))
    slowest = [max(ranks, key=lambda one: float(one["seconds"])) for ranks in epochs]
    middle = sorted(slowest, key=lambda one: float(one["seconds"]))[(len(slowest) - 1) // 2]
    return {
        "epoch_s": middle["seconds"],
        "first_epoch_s": max(one["first_epoch_s"] for one in found),
        "steps": [one["epochs"][-1]["steps"] for one in found],
        "seeds": [one["epochs"][-1]["seeds"] for one in found],
        "edges": [one["epochs"][-1]["edges"] for one in found],
        "rows": [one["epochs"][-1]["rows"] for one in found],
        "phases": middle["phases"],
        "sample_s": float(np.mean([one["sample_s"] for ranks in epochs for one in ranks])),
        "gather_s": float(np.mean([one["gather_s"] for ranks in epochs for one in ranks])),
        "trainer_cpu_s": float(np.mean([one["trainer_cpu_s"] for ranks in epochs for one in ranks])),
        "peak_rss": sum(one["memory"]["peak_rss"] for one in found),
        "pss": sum(one["memory"]["pss"] for one in found),
        "shared": sum(one["memory"]["shared"] for one in found),
        "gpu_bytes": sum(one["gpu_bytes"] for one in found),
        **{name: found[0][name] for name in ("accuracy", "loss", "parameters", "threads", "pinned", "device", "gradient_bytes")},
    }


def _be_rank(cell: Cell, folder: Path, scratch: Path, rank: int) -> None:
    import faulthandler

    faulthandler.register(signal.SIGUSR1, all_threads=False)
    try:
        found = train(cell, folder, scratch, rank)
    except InputError as error:
        say(f"{RAISED if cell.system == FAMILY else SKIPPED}{error}")  # a peer that cannot be used
        raise
    except BaseException as error:
        say(f"{RAISED}{type(error).__name__}: {error}")
        raise
    (scratch / f"{rank}.json").write_text(json.dumps(found))
    sys.stdout.flush()
    os._exit(0)  # how long libraries take to end is another question


def train(cell: Cell, folder: Path, scratch: Path, rank: int) -> dict[str, Any]:
    """One rank: open the loader, train, evaluate (rank 0), and tell."""
    import torch
    import torch.distributed as dist

    from hoptrain.benchmarks.end_loaders import ALGORITHMS as LOADERS
    from hoptrain.trainers.models import GNN

    device = _device(rank, cell.ranks)
    threads = cell.threads or max(1, len(os.sched_getaffinity(0)) // cell.ranks - cell.workers)
    torch.set_num_threads(threads)
    if cell.ranks > 1:
        backend = "nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, f"file://{scratch}/ranks", rank=rank, world_size=cell.ranks)
    data = Dataset.open(folder, verify=False)
    torch.manual_seed(cell.seed)
    model = GNN(
        cell.arch,  # type: ignore[arg-type]
        data.num_features,
        cell.hidden,
        data.num_classes,
        len(cell.fanouts),
        dropout=cell.dropout,
        heads=cell.heads,
    ).to(device)
    feed = LOADERS[cell.algorithm][cell.system](data, cell, Place(rank, seeds_of(data, cell)))
    trainer = _Trainer(model, cell, device)
    first, *epochs = [_epoch(feed, trainer, number, device, cell.ranks) for number in range(cell.epochs + 1)]
    used = memory.usage(memory.family())
    feed.close()
    return {
        "epochs": epochs,
        "first_epoch_s": first["seconds"],
        "memory": used,
        "gpu_bytes": torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0,
        "accuracy": _accuracy(model, data, cell, device) if rank == 0 else None,
        "loss": epochs[-1]["loss"],
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "gradient_bytes": sum(parameter.numel() * parameter.element_size() for parameter in model.parameters()),
        "threads": threads,
        "pinned": feed.pinned,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
    }


def _device(rank: int, ranks: int) -> torch.device:
    import torch

    gpus = torch.cuda.device_count()
    if 0 < gpus < ranks:
        raise InputError(f"{ranks} ranks and {gpus} GPUs: a rank takes one of its own; ask for as many ranks at most, or hide the GPUs")
    return torch.device("cuda", rank) if gpus else torch.device("cpu")


def seeds_of(data: Dataset, cell: Cell) -> Array:
    """(N,) the seeds of every epoch, over all ranks, the same for all systems."""
    seeds = data.split("train")
    if cell.num_seeds is None or cell.num_seeds >= len(seeds):
        return seeds
    return np.sort(np.random.default_rng(0).choice(seeds, cell.num_seeds, replace=False))


class _Trainer:
    """The model with its optimiser; with several ranks their gradients are averaged, and the time of it is noted."""

    def __init__(self, model: nn.Module, cell: Cell, device: torch.device) -> None:
        import torch
        from torch.nn.parallel import DistributedDataParallel

        self.all_reduce_s = 0.0
        self._none = torch.empty(0, device=device)
        self._model: nn.Module = model.train()
        if cell.ranks > 1:
            parallel = DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)
            parallel.register_comm_hook(None, lambda _, bucket: self._average(bucket))  # torch would check annotations
            self._model = parallel
        self._optimizer = torch.optim.Adam(model.parameters(), lr=cell.lr, weight_decay=cell.weight_decay)

    def step(self, item: Item) -> Tensor:
        """Train on one mini-batch; returns its loss."""
        import torch.nn.functional as F

        degrees = self._none if item.degrees is None else item.degrees
        loss = F.cross_entropy(self._model(item.x.float(), item.blocks, degrees), item.y)
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        return loss.detach()

    def _average(self, bucket: Any) -> Any:
        import torch.distributed as dist

        begin = time.perf_counter()
        sent = dist.all_reduce(bucket.buffer().div_(dist.get_world_size()), async_op=True)

        def done(future: Any) -> Any:
            self.all_reduce_s += time.perf_counter() - begin
            return future.value()[0]

        return sent.get_future().then(done)


def _epoch(feed: Feed, trainer: _Trainer, number: int, device: torch.device, ranks: int) -> dict[str, Any]:
    import torch
    import torch.distributed as dist

    if ranks > 1:
        dist.barrier()
    now = _clock(device)
    seconds = dict.fromkeys(PHASES, 0.0)
    steps = seeds = edges = rows = 0
    loss = torch.zeros((), device=device)
    trainer.all_reduce_s = 0.0
    feed.work()
    cpu = time.process_time()
    begin = last = now()
    for batch in feed.epoch(number):
        given = now()
        item = feed.item(batch, device)
        copied = now()
        loss += trainer.step(item)
        steps, seeds, edges, rows = steps + 1, seeds + int((item.y >= 0).sum()), edges + item.num_edges, rows + len(item.x)
        del batch, item  # with them a slot of the queue
        done = now()
        for phase, duration in (("wait", given - last), ("copy", copied - given), ("train", done - copied)):
            seconds[phase] += duration
        last = done
    end = now()
    seconds["all_reduce"] = trainer.all_reduce_s
    seconds["train"] -= trainer.all_reduce_s
    seconds["other"] = end - begin - sum(seconds.values())
    cpu = time.process_time() - cpu
    sampled, gathered = feed.work()
    return {
        "seconds": end - begin,
        "phases": seconds,
        "sample_s": sampled,
        "gather_s": gathered,
        "trainer_cpu_s": cpu,
        "steps": steps,
        "seeds": seeds,
        "edges": edges,
        "rows": rows,
        "loss": float(loss) / max(1, steps),
    }


def _clock(device: torch.device) -> Callable[[], float]:
    """Seconds; on a GPU after it has done what it was told to, so that each phase has its own time (and none overlaps the next)."""
    import torch

    if device.type != "cuda":
        return time.perf_counter

    def now() -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    return now


def _accuracy(model: Any, data: Dataset, cell: Cell, device: torch.device) -> float | None:
    import torch

    from hoptrain.trainers.inference import exact_logits

    nodes = data.split("test")
    if cell.test_nodes is not None:
        nodes = np.sort(np.random.default_rng(0).permutation(nodes)[: cell.test_nodes])
    if not len(nodes) or data.y is None:
        return None
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    logits = exact_logits(model.eval(), data, nodes, normalize=False, device=device)
    return float((logits.argmax(1).cpu().numpy() == data.y[nodes]).mean())


if __name__ == "__main__":
    main(sys.argv[1:])
