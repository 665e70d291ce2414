"""Division of the machine's cores among ranks and threads, and the decision whether a thread makes the next batch in advance."""

from __future__ import annotations

import os
import sys

from hoptrain.engine.machine import usable_cores

_KNOWN = ("hoptrain", "torch", "torch_geometric", "dgl")
_ASKED = ("sampler", "batch_sampler", "node_sampler", "link_sampler", "neg_sampling", "negative_sampler", "exclude")
"""Names of the attributes in which loaders and samplers store other objects that they call."""


def rank_and_world_size() -> tuple[int, int]:
    """Return rank and world size: those of torch.distributed if it is initialised, or else of the launcher's environment variables, or else 0 and 1."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def threads_for(threads: int | None, num_workers: int, device: str) -> int:
    """Return the number of sampling threads: ``threads`` if given, or else 1 with workers or on a GPU, or else the number of cores per rank."""
    if threads is not None:
        return threads
    if num_workers or device != "cpu":
        return 1
    ranks = os.environ.get("LOCAL_WORLD_SIZE") or rank_and_world_size()[1]
    return max(1, usable_cores() // int(ranks))


def runs_ahead(*asked: object) -> bool:
    """Return whether by default a thread makes the next batch: only if a core is free and these objects give the same results when called a step early."""
    return cores_are_free() and is_known(*asked)


def cores_are_free() -> bool:
    """Return whether the training leaves a core unused: it computes on a GPU, or torch has fewer threads than this rank has cores.

    Without a free core, the thread would slow the training down as much as it helps, since torch's operations wait for their slowest thread.
    """
    import torch

    is_on_gpu: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return is_on_gpu or torch.get_num_threads() < threads_for(None, 0, "cpu")


def is_known(*objects: object) -> bool:
    """Return whether these objects, and those that they call, give the same results if they are called one step early.

    It is true for classes of hoptrain, torch, PyG and DGL whose random numbers come from torch's default generator, since hoptrain seeds it for each
    batch. It is false for custom classes, functions and generators, which may depend on other state.
    """
    for each in objects:
        if type(each).__module__.partition(".")[0] not in _KNOWN or getattr(each, "generator", None) is not None:
            return False
        asked = [getattr(each, name, None) for name in _ASKED]
        if not is_known(*(other for other in asked if other is not None and not isinstance(other, str))):
            return False
    return True
