"""DGL's ``DataLoader``, fed by hoptrain: torch and DGL deal out the indices, hoptrain's workers sample and gather, DGL puts the batch together.

With workers a batch goes over the sampler's code twice. Some steps before, for what it asks of hoptrain: its seeds, after negatives were drawn. And
as it arrives, for what becomes of the sample. Both times torch's generator starts at the batch's address.
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
from hoptrain.samplers.loader.early import runs_ahead
from hoptrain.samplers.loader.given import Place, Source, Work, plain_rows, version_of
from hoptrain.samplers.loader.given_feed import GivenFeed

_of_dgl = dgl.dataloading.dataloader

_WITHOUT_MEANING = ("worker_init_fn", "multiprocessing_context", "generator", "pin_memory_device")
"""Of torch's ``DataLoader``: what hoptrain's workers, which run no torch, have no use for, nor the order of a batch."""


class DataLoader(dgl.dataloading.DataLoader):
    """DGL's, by name, arguments and results; see ``dgl.dataloading.DataLoader``. ``graph_sampler`` is one of ``hoptrain.dgl``.

    ``num_workers`` are processes of hoptrain's, which stay until ``close()``; the batches are the same bit for bit with any number of them.
    An epoch's seed comes from torch's generator, its order with ``use_ddp`` from ``torch.initial_seed()``. Features by the name of the sampler's
    first ``prefetch_node_feats`` are gathered by the workers: what is written into them during an epoch shows in the next one.

    Without workers a thread may sample the next batch while this one is used (``use_prefetch_thread``). By default there is one where the training leaves
    cores free, unless code of the user's would be asked for its seeds a batch early: a sampler or an ``exclude`` that is neither DGL's nor hoptrain's.
    """

    graph: Any
    graph_sampler: Any
    dataset: Any
    _feed: GivenFeed | None = None
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
        """Take the indices; nothing is started yet.

        Raises:
            InputError: a graph or a sampler that cannot be taken, indices that are no tensor, a GPU for which this DGL was not built.
            ValueError: as DGL.
        """
        on_host(graph)
        _inner(graph_sampler)
        _check_device(device, use_uva)
        if isinstance(indices, Mapping) and not is_hetero(graph):
            raise InputError(f"indices are a dict of {', '.join(map(str, indices))}: those of heterogeneous graphs; give a tensor")
        if kwargs.get("in_order") is False:
            raise InputError("in_order is False: batches come in their order, which makes a run repeatable; leave it out")
        device = torch.cuda.current_device() if use_uva and device is None else device
        _say_ignored(kwargs, use_uva=use_uva, gpu_cache=gpu_cache)
        if "batch_sampler" in kwargs:  # Lightning builds the loader again, to predict or to overfit: in order
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
        self.use_prefetch_thread = False  # DGL's, which would fetch features alone

    def __iter__(self) -> Any:
        """The batches of an epoch. Each iteration is another epoch, from 0 on."""
        return _of_dgl._PrefetchingIter(self, self._epoch_of_dgl())

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration be of ``epoch``."""
        self._epoch = epoch

    def __getstate__(self) -> dict[str, Any]:
        """Without the workers: a copy starts its own."""
        return {name: value for name, value in self.__dict__.items() if name != "_feed"}

    def close(self) -> None:
        """End the workers; the next epoch starts new ones. They also end with this object, and with this process."""
        if self._feed is not None:
            self._feed.close()

    @contextmanager
    def enable_cpu_affinity(self, loader_cores: Any = None, compute_cores: Any = None, verbose: bool = True) -> Iterator[None]:
        """Nothing: hoptrain's workers are not tied to cores, and a warning says so."""
        warnings.warn("without meaning here: enable_cpu_affinity; the system chooses the cores of hoptrain's workers", stacklevel=3)
        yield

    def _epoch_of_dgl(self) -> Iterator[Any]:
        """DGL's results, whose features are still to be fetched."""
        sampler, own = _owned(self.graph_sampler)
        seed = int(torch.empty((), dtype=torch.int64).random_())  # as torch's loader does, so that two loaders draw apart
        batches = self._indices(seed)
        place = Place.of(seed, self._epoch, len(batches))
        self._epoch += 1
        if self._feed is None:
            self._feed = GivenFeed(self.num_workers, self.prefetch_factor, self.timeout)

        def made(step: int, indices: Any, source: Source) -> Any:
            own.source = source
            try:
                with torch.random.fork_rng(devices=[]):
                    torch.default_generator.manual_seed(place.state(step))
                    return sampler.sample(self.graph, indices)
            finally:
                own.source = None  # which held the batch

        hoptrains, converted = own.of(self.graph)
        work = Work(converted.graph, hoptrains, self._stores(own), self._versions)
        wanted = self._is_thread_wanted
        yield from self._feed.epoch(work, place, batches, made, runs_ahead(sampler) if wanted is None else wanted)

    def _indices(self, seed: int) -> list[Any]:
        """The indices of each batch of the epoch: this rank's, those at their end again where ranks are padded."""
        dataset, size = self.dataset, self.dataset.batch_size
        number = len(dataset._indices)
        own = getattr(dataset, "local_num_indices", number)
        order = permutation(own, self._order_seed(seed), self._epoch) if self.shuffle else np.arange(own)
        ids = dataset._id_tensor[torch.from_numpy(np.concatenate([order, order[: number - own]]))]
        batches = [ids[step * size : (step + 1) * size] for step in range(len(dataset))]
        return batches if dataset._mapping_keys is None else [_by_key(batch, dataset._mapping_keys) for batch in batches]

    def _order_seed(self, seed: int) -> int:
        """The same on all ranks that share an order."""
        return (torch.initial_seed() + self.ddp_seed) % (1 << 64) if self.use_ddp else seed

    def _stores(self, own: Any) -> dict[str, Array]:
        """The first of the features to be fetched, of each type, if workers may gather them: rows of numbers on the CPU."""
        wanted, g = own.features(), self.graph
        if not isinstance(wanted, Mapping):
            wanted = {g.ntypes[0]: wanted} if len(g.ntypes) == 1 else {}
        own.rows_names, stores = {}, {}
        for kind, names in wanted.items():
            x = g.nodes[kind].data.get(names[0]) if names else None
            rows = plain_rows(x)
            if rows is not None:
                own.rows_names[kind] = names[0]
                stores[f"x.{kind}" if is_hetero(g) else "x"] = self._kept_rows(kind, x, rows)
        return stores

    def _versions(self) -> list[int]:
        """How often each of the features that are gathered was changed in place."""
        return [version_of(x) for _, x, _ in self.__dict__.get("_rows_of", {}).values()]

    def _kept_rows(self, kind: str, x: Any, made: Array) -> Array:
        """As an array: the same one as long as nobody writes into the tensor."""
        state, kept = (id(x), version_of(x)), self.__dict__.setdefault("_rows_of", {})
        if kind not in kept or kept[kind][0] != state:
            kept[kind] = state, x, made
        rows: Array = kept[kind][2]
        return rows


def _check_device(device: Any, use_uva: bool) -> None:
    """Refuse a GPU that this DGL cannot put blocks on.

    Raises:
        InputError: it was built without CUDA, or finds no GPU.
    """
    is_gpu = use_uva if device is None else isinstance(device, int) or torch.device(device).type == "cuda"
    if is_gpu and not dgl.ndarray.gpu(0).exist:
        given = "use_uva is True" if device is None else f"device is {str(device)!r}"
        raise InputError(
            f"{given}: DGL {dgl.__version__} here was built without CUDA, or finds no GPU, so it makes no blocks there; install DGL's build "
            "for CUDA, or leave it out and move the blocks' tensors yourself"
        )


def _by_key(pairs: Tensor, keys: list[Any]) -> dict[Any, Tensor]:
    """Pairs of a key's number and an index (N, 2) as indices by key, for those that have some."""
    numbers, indices = pairs.unbind(1)
    return {keys[number]: indices[numbers == number] for number in sorted(set(numbers.tolist()))}


def _inner(sampler: Any) -> Sampled:
    """The sampler of hoptrain.dgl in one that may be around it.

    Raises:
        InputError: there is none.
    """
    inner = sampler
    while not isinstance(inner, Sampled) and hasattr(inner, "sampler"):
        inner = inner.sampler
    if not isinstance(inner, Sampled):
        raise InputError(f"graph_sampler is a {type(sampler).__name__}: this loader samples by hoptrain; take that of hoptrain.dgl")
    return inner


def _owned(sampler: Any) -> tuple[Any, Any]:
    """A copy for one iteration, and hoptrain's sampler in it: two loaders may use the same sampler at the same time."""
    own = copy.copy(sampler)
    if isinstance(own, Sampled):
        return own, own
    own.sampler, inner = _owned(own.sampler)
    return own, inner


def _say_ignored(kwargs: dict[str, Any], **options: Any) -> None:
    """Take out what has no meaning here, and say so."""
    ignored = [name for name in _WITHOUT_MEANING if kwargs.pop(name, None)]
    ignored += [name for name, value in options.items() if value]
    if ignored:
        warnings.warn(
            f"without meaning here: {', '.join(ignored)}; hoptrain's processes sample on the CPU, ahead of the training", stacklevel=3
        )
