"""DGL's ``DataLoader`` over hoptrain: torch and DGL yield the indices, hoptrain's workers sample and gather, DGL assembles the batch.

With workers, the sampler's code runs twice for each batch. The first run, some steps ahead, draws negatives, finds the seeds and requests their sample from
hoptrain. The second run, when the sample arrives, builds the batch from it. Both runs seed torch's generator by the batch's address.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hoptrain.dgl.graphs import is_hetero, on_host
from hoptrain.dgl.outputs import dgl
from hoptrain.dgl.sampler import Sampled
from hoptrain.engine import InputError
from hoptrain.engine.arrays import Array
from hoptrain.kernels.cpu.shuffle import permutation
from hoptrain.samplers.loader.cores import runs_ahead
from hoptrain.samplers.loader.external_seed_loader import ExternalSeedLoader
from hoptrain.samplers.loader.external_seeds import BatchSource, LoaderSpec, RngContext, plain_rows, version_of

_dgl_loader = dgl.dataloading.dataloader

_IGNORED = ("worker_init_fn", "multiprocessing_context", "generator", "pin_memory_device")
"""Arguments of torch's ``DataLoader`` that have no effect: hoptrain's workers do not run torch, and the order of batches does not depend on ``generator``."""


class DataLoader(dgl.dataloading.DataLoader):
    """A drop-in replacement for ``dgl.dataloading.DataLoader`` with the same arguments and results. ``graph_sampler`` is one of ``hoptrain.dgl``.

    ``num_workers`` is the number of hoptrain's worker processes, which run until ``close()``. Batches are bit-identical for any number of workers.
    The seed of an epoch comes from torch's generator; with ``use_ddp`` the order comes from ``torch.initial_seed()``. Workers gather the first feature
    of the sampler's ``prefetch_node_feats``; changes to it during an epoch take effect in the next one.

    Without workers, a thread may sample the next batch while the current one is used (``use_prefetch_thread``). By default the thread runs if the
    training leaves cores free and if no custom code would be called a batch early: a sampler or an ``exclude`` of neither DGL nor hoptrain.
    """

    graph: Any
    graph_sampler: Any
    dataset: Any
    _feed: ExternalSeedLoader | None = None
    _epoch = 0

    def __init__(
        self,
        graph: Any,
        indices: Any,
        graph_sampler: Any,
        device: Any = None,
        use_ddp: bool = False,
        ddp_seed: int = 0,
        batch_size: int = 1,
        drop_last: bool = False,
        shuffle: bool = False,
        use_prefetch_thread: bool | None = None,
        use_alternate_streams: bool | None = None,
        pin_prefetcher: bool | None = None,
        use_uva: bool = False,
        gpu_cache: Any = None,
        **kwargs: Any,
    ) -> None:
        """Make a loader. Workers start with the first epoch.

        Raises:
            InputError: hoptrain does not support the graph, the sampler or an argument, ``indices`` do not fit the graph, or the installed DGL
                does not support GPUs although one is requested.
            ValueError: DGL raises it for the same arguments.
        """
        on_host(graph)
        _inner(graph_sampler)
        _check_device(device, use_uva)
        if isinstance(indices, Mapping) and not is_hetero(graph):
            raise InputError(
                f"indices are a dict of {', '.join(map(str, indices))}: only heterogeneous graphs have indices by type; give a tensor"
            )
        if kwargs.get("in_order") is False:
            raise InputError("in_order is False: batches always come in order, which makes a run repeatable; leave it out")
        device = torch.cuda.current_device() if use_uva and device is None else device
        _drop_ignored(kwargs, use_uva=use_uva, gpu_cache=gpu_cache)
        if "batch_sampler" in kwargs:  # Lightning rebuilds the loader to predict or to overfit; both need unshuffled batches
            shuffle = False
        self._is_thread_wanted = use_prefetch_thread
        super().__init__(
            graph,
            {name: torch.as_tensor(ids).cpu() for name, ids in indices.items()}
            if isinstance(indices, Mapping)
            else torch.as_tensor(indices).cpu(),
            graph_sampler,
            device,
            use_ddp,
            ddp_seed,
            batch_size,
            drop_last,
            shuffle,
            use_prefetch_thread=None,
            use_alternate_streams=use_alternate_streams,
            pin_prefetcher=pin_prefetcher,
            **kwargs,
        )
        self.use_prefetch_thread = False  # False, since DGL's own thread would fetch only features

    def __iter__(self) -> Any:
        """Return an iterator over the batches of an epoch. Each call begins the next epoch; epochs are counted from 0."""
        return _dgl_loader._PrefetchingIter(self, self._iter_epoch())

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration."""
        self._epoch = epoch

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the workers: a copy of the loader starts its own workers."""
        return {name: value for name, value in self.__dict__.items() if name != "_feed"}

    def close(self) -> None:
        """Stop the workers; the next epoch starts new ones. They also stop when the loader or the process ends."""
        if self._feed is not None:
            self._feed.close()

    @contextmanager
    def enable_cpu_affinity(self, loader_cores: Any = None, compute_cores: Any = None, verbose: bool = True) -> Iterator[None]:
        """Do nothing except warn: hoptrain's workers are not bound to cores."""
        warnings.warn("ignored: enable_cpu_affinity (the operating system chooses the cores of hoptrain's workers)", stacklevel=3)
        yield

    def _iter_epoch(self) -> Iterator[Any]:
        """Yield the results of the sampler for each batch of the epoch. DGL's iterator then fetches the features."""
        sampler, own = _copy_sampler(self.graph_sampler)
        seed = int(torch.empty((), dtype=torch.int64).random_())  # drawn as in torch's loader, so that two loaders get different batches
        batches = self._indices(seed)
        place = RngContext.of(seed, self._epoch, len(batches))
        self._epoch += 1
        if self._feed is None:
            self._feed = ExternalSeedLoader(self.num_workers, self.prefetch_factor, self.timeout)

        def made(step: int, indices: Any, source: BatchSource) -> Any:
            own.source = source
            try:
                with torch.random.fork_rng(devices=[]):
                    torch.default_generator.manual_seed(place.state(step))
                    return sampler.sample(self.graph, indices)
            finally:
                own.source = None  # frees the memory of the batch

        hoptrains, converted = own.of(self.graph)
        work = LoaderSpec(converted.graph, hoptrains, self._stores(own), self._versions)
        wanted = self._is_thread_wanted
        yield from self._feed.epoch(work, place, batches, made, runs_ahead(sampler) if wanted is None else wanted)

    def _indices(self, seed: int) -> list[Any]:
        """Return the indices of each batch of this rank. If DDP pads ranks to equal length, the first indices are repeated at the end."""
        dataset, size = self.dataset, self.dataset.batch_size
        number = len(dataset._indices)
        own = getattr(dataset, "local_num_indices", number)
        order = permutation(own, self._order_seed(seed), self._epoch) if self.shuffle else np.arange(own)
        ids = dataset._id_tensor[torch.from_numpy(np.concatenate([order, order[: number - own]]))]
        batches = [ids[step * size : (step + 1) * size] for step in range(len(dataset))]
        return batches if dataset._mapping_keys is None else [_by_key(batch, dataset._mapping_keys) for batch in batches]

    def _order_seed(self, seed: int) -> int:
        """Return the seed of the shuffle. With ``use_ddp`` all ranks have the same seed."""
        return (torch.initial_seed() + self.ddp_seed) % (1 << 64) if self.use_ddp else seed

    def _stores(self, own: Any) -> dict[str, Array]:
        """Return for each node type the first feature to gather. Types whose feature is not a tensor of numbers on the CPU are left out."""
        wanted, g = own.features(), self.graph
        if not isinstance(wanted, Mapping):
            wanted = {g.ntypes[0]: wanted} if len(g.ntypes) == 1 else {}
        own.rows_names, stores = {}, {}
        for kind, names in wanted.items():
            x = g.nodes[kind].data.get(names[0]) if names else None
            rows = plain_rows(x)
            if rows is not None:
                own.rows_names[kind] = names[0]
                stores[f"x.{kind}" if is_hetero(g) else "x"] = self._cached_rows(kind, x, rows)
        return stores

    def _versions(self) -> list[int]:
        """Return the number of in-place changes of each gathered feature."""
        return [version_of(x) for _, x, _ in self.__dict__.get("_rows_of", {}).values()]

    def _cached_rows(self, kind: str, x: Any, made: Array) -> Array:
        """Return the array of feature ``x``: the cached one if ``x`` has not changed, otherwise ``made``."""
        state, kept = (id(x), version_of(x)), self.__dict__.setdefault("_rows_of", {})
        if kind not in kept or kept[kind][0] != state:
            kept[kind] = state, x, made
        rows: Array = kept[kind][2]
        return rows


def _check_device(device: Any, use_uva: bool) -> None:
    """Raise InputError if a GPU is requested that the installed DGL does not support.

    Raises:
        InputError: DGL was built without CUDA, or finds no GPU.
    """
    is_gpu = use_uva if device is None else isinstance(device, int) or torch.device(device).type == "cuda"
    if is_gpu and not dgl.ndarray.gpu(0).exist:
        given = "use_uva is True" if device is None else f"device is {str(device)!r}"
        raise InputError(
            f"{given}: DGL {dgl.__version__} was built without CUDA or finds no GPU, so it can make no blocks there; install DGL's CUDA build, "
            'or sample on the GPU without DGL by hoptrain.SampleLoader(..., device="cuda")'
        )


def _by_key(pairs: Tensor, keys: list[Any]) -> dict[Any, Tensor]:
    """Split ``pairs`` (N, 2) of a key's number and an index into indices by key; keys without indices are left out."""
    numbers, indices = pairs.unbind(1)
    return {keys[number]: indices[numbers == number] for number in sorted(set(numbers.tolist()))}


def _inner(sampler: Any) -> Sampled:
    """Return ``sampler`` itself, or the sampler that it wraps, whichever is from ``hoptrain.dgl``.

    Raises:
        InputError: neither is a sampler of ``hoptrain.dgl``.
    """
    inner = sampler
    while not isinstance(inner, Sampled) and hasattr(inner, "sampler"):
        inner = inner.sampler
    if not isinstance(inner, Sampled):
        raise InputError(f"graph_sampler is a {type(sampler).__name__}: this loader needs a sampler of hoptrain; give one of hoptrain.dgl")
    return inner


def _copy_sampler(sampler: Any) -> tuple[Any, Any]:
    """Return a copy of ``sampler`` for one iteration, and hoptrain's sampler in it. The copy lets two loaders use a sampler at once."""
    own = copy.copy(sampler)
    if isinstance(own, Sampled):
        return own, own
    own.sampler, inner = _copy_sampler(own.sampler)
    return own, inner


def _drop_ignored(kwargs: dict[str, Any], **options: Any) -> None:
    """Remove arguments without effect from ``kwargs``. Warn about them, and about those of ``options`` that are set."""
    ignored = [name for name in _IGNORED if kwargs.pop(name, None)]
    ignored += [name for name, value in options.items() if value]
    if ignored:
        warnings.warn(
            f"ignored: {', '.join(ignored)} (hoptrain's workers sample on the CPU, ahead of the training, without torch)", stacklevel=3
        )
