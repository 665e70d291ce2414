"""One rank of a study's cell: train, time each phase, evaluate. The program's arguments are ``CELL DATA SCRATCH RANK``."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from hoptrain.benchmarks.common.grid import SKIPPED, with_tuples
from hoptrain.benchmarks.common.harness import HOPTRAIN
from hoptrain.benchmarks.common.processes import family, memory
from hoptrain.benchmarks.common.trial import RAISED, say
from hoptrain.benchmarks.study.cell import PHASES, Cell, Place
from hoptrain.benchmarks.study.feeds import Feed, Item
from hoptrain.benchmarks.study.peer_feeds import FEEDS
from hoptrain.engine import Dataset, InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.machine import allowed_cores, keep_freed_memory
from hoptrain.trainers.models import GNN
from hoptrain.trainers.models.inference import layerwise_inference


def main(arguments: Sequence[str]) -> None:
    """Run a rank and write its results to the scratch folder."""
    faulthandler.register(signal.SIGUSR1, all_threads=False)
    cell, folder, scratch, rank = Cell(**with_tuples(json.loads(arguments[0]))), Path(arguments[1]), Path(arguments[2]), int(arguments[3])
    try:
        found = train(cell, folder, scratch, rank)
    except InputError as error:
        say(f"{RAISED if cell.system == HOPTRAIN else SKIPPED}{error}")  # a baseline that is not available is skipped
        raise
    except BaseException as error:
        say(f"{RAISED}{type(error).__name__}: {error}")
        raise
    (scratch / f"{rank}.json").write_text(json.dumps(found))
    sys.stdout.flush()
    os._exit(0)  # skips the shutdown of libraries, whose time does not matter


def train(cell: Cell, folder: Path, scratch: Path, rank: int) -> dict[str, Any]:
    """Run one rank: open the loader, train, evaluate (rank 0 only), and return the results."""
    device = _device(rank, cell.ranks)
    threads = cell.threads or max(1, allowed_cores() // cell.ranks)
    torch.set_num_threads(threads)
    keep_freed_memory()
    if cell.ranks > 1:
        backend = "nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, f"file://{scratch}/ranks", rank=rank, world_size=cell.ranks)
    data = Dataset.open(folder, verify=False)
    torch.manual_seed(cell.seed)
    model = GNN(
        cell.arch,
        data.num_features,
        cell.hidden,
        data.num_classes,
        len(cell.fanouts),
        dropout=cell.dropout,
        heads=cell.heads,
    ).to(device)
    feed = FEEDS[cell.algorithm][cell.system](data, cell, Place(rank, seeds_of(data, cell)))
    trainer = _Trainer(model, cell, device)
    first, *epochs = [_epoch(feed, trainer, number, device, cell.ranks) for number in range(cell.epochs + 1)]
    used = memory(family())
    feed.close()
    return used | {
        "epochs": epochs,
        "first_epoch_s": first["seconds"],
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
    gpus = torch.cuda.device_count()
    if 0 < gpus < ranks:
        raise InputError(
            f"{ranks} ranks and {gpus} GPUs: each rank needs its own GPU; use fewer ranks, or hide the GPUs (CUDA_VISIBLE_DEVICES=)"
        )
    return torch.device("cuda", rank) if gpus else torch.device("cpu")


def seeds_of(data: Dataset, cell: Cell) -> Array:
    """Return the seeds (N,) of an epoch over all ranks. They are the same in all epochs and for all systems."""
    seeds = data.split("train")
    if cell.num_seeds is None or cell.num_seeds >= len(seeds):
        return seeds
    return np.sort(np.random.default_rng(0).choice(seeds, cell.num_seeds, replace=False))


class _Trainer:
    """A model with its optimiser. With several ranks it averages gradients, and records the time of the all-reduce."""

    def __init__(self, model: nn.Module, cell: Cell, device: torch.device) -> None:
        self.all_reduce_s = 0.0
        self._none = torch.empty(0, device=device)
        self._model: nn.Module = model.train()
        if cell.ranks > 1:
            parallel = DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)
            parallel.register_comm_hook(
                None, lambda _, bucket: self._average(bucket)
            )  # a lambda, since torch checks the annotations of functions
            self._model = parallel
        self._optimizer = torch.optim.Adam(model.parameters(), lr=cell.lr, weight_decay=cell.weight_decay)

    def step(self, item: Item) -> Tensor:
        """Train on one mini-batch and return its loss."""
        degrees = self._none if item.degrees is None else item.degrees
        loss = F.cross_entropy(self._model(item.x.float(), item.blocks, degrees), item.y)
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        return loss.detach()

    def _average(self, bucket: Any) -> Any:
        begin = time.perf_counter()
        sent = dist.all_reduce(bucket.buffer().div_(dist.get_world_size()), async_op=True)

        def done(future: Any) -> Any:
            self.all_reduce_s += time.perf_counter() - begin
            return future.value()[0]

        return sent.get_future().then(done)


def _epoch(feed: Feed, trainer: _Trainer, number: int, device: torch.device, ranks: int) -> dict[str, Any]:
    if ranks > 1:
        dist.barrier()
    now = _clock(device)
    seconds = dict.fromkeys(PHASES, 0.0)
    counts = Counter(steps=0, seeds=0, edges=0, rows=0)
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
        counts.update(steps=1, seeds=int((item.y >= 0).sum()), edges=item.num_edges, rows=len(item.x))
        del batch, item  # releases the queue slot
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
        "loss": float(loss) / max(1, counts["steps"]),
        **counts,
    }


def _clock(device: torch.device) -> Callable[[], float]:
    """Return a function for the current time in seconds. On a GPU it synchronises first, so that phases do not overlap."""
    if device.type != "cuda":
        return time.perf_counter

    def now() -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    return now


def _accuracy(model: Any, data: Dataset, cell: Cell, device: torch.device) -> float | None:
    nodes = data.split("test")
    if cell.test_nodes is not None:
        nodes = np.sort(np.random.default_rng(0).permutation(nodes)[: cell.test_nodes])
    if not len(nodes) or data.y is None:
        return None
    torch.set_num_threads(allowed_cores())
    logits = layerwise_inference(model.eval(), data, nodes, normalize=False, device=device)
    return float((logits.argmax(1).cpu().numpy() == data.y[nodes]).mean())


if __name__ == "__main__":
    main(sys.argv[1:])
