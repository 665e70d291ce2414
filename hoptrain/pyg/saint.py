"""PyG's GraphSAINT loaders over hoptrain's samplers. They draw by the distributions of PyG, some of which differ from the paper's."""

from __future__ import annotations

import os
from abc import abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch_geometric.data import Data
from tqdm import tqdm  # type: ignore[import-untyped]

from hoptrain.engine import Graph, InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.gpu_memory.device_stream import to_host
from hoptrain.pyg.features import get_edge_ids
from hoptrain.pyg.feed import LoaderMixin, subgraph_of
from hoptrain.pyg.graphs import convert, require_homogeneous
from hoptrain.samplers import MiniBatch, Sampler, Workspace
from hoptrain.samplers.loader.external_seeds import BatchSource
from hoptrain.samplers.subgraphs.unweighted import BySources, BySumOfDegrees, Unweighted, Walks

_ITEM = np.zeros(1, np.int64)
"""Dummy seed of a batch: the subgraph depends only on the batch's random seed."""
_BULK = 16
_NEVER, _MOST = 0.1, 1e4
"""Count that PyG assigns to a node that was never drawn, and PyG's upper bound of an edge weight."""


class GraphSAINTSampler(LoaderMixin, DataLoader[Any]):  # type: ignore[misc]  # torch annotates __iter__ with its own iterator class
    """A base class of the GraphSAINT loaders; see ``torch_geometric.loader.GraphSAINTSampler``. They do not need torch-sparse.

    With ``sample_coverage`` a batch has ``node_norm`` (S,) and ``edge_norm`` (M,) float32. They are estimated as in PyG: subgraphs are drawn in
    advance until these have ``sample_coverage * V`` nodes in total. With N subgraphs, the norm of a node v is N / (V * count of v), and the norm of an edge u
    -> v is (count of u) / (count of the edge). Nodes of a batch are in the order in which they were first drawn; in PyG they are sorted by id.

    Attributes:
        node_norm: (V,) float32 norms of all nodes.
        edge_norm: (E,) float32 norms of all edges.
    """

    def __init__(
        self,
        data: Data,
        batch_size: int,
        num_steps: int = 1,
        sample_coverage: int = 0,
        save_dir: str | None = None,
        log: bool = True,
        **kwargs: Any,
    ) -> None:
        """Convert the graph, once for each ``Data`` object, and estimate the norms, or read them from ``save_dir``.

        Raises:
            InputError: a number is out of range, ``data`` has no ``edge_index`` or already has norms, or the file in ``save_dir`` has other contents.
        """
        if require_homogeneous(data).get("edge_index") is None:
            raise InputError("data has no edge_index: these samplers draw from edge_index; give one")
        for name in ("node_norm", "edge_norm"):
            if name in data:
                raise InputError(f"data has an attribute {name!r}: the loader adds an attribute of this name to batches; rename yours")
        if num_steps < 1 or sample_coverage < 0:
            raise InputError(
                f"num_steps is {num_steps} and sample_coverage {sample_coverage}: num_steps must be at least 1 and sample_coverage at least 0; "
                "give for instance 5 and 50"
            )
        self.data: Any = data
        self.num_steps: int = num_steps
        self._batch_size = batch_size
        self.sample_coverage: int = sample_coverage
        self.save_dir: str | None = save_dir
        self.log: bool = log
        self._converted = convert(data, backward=self._backward)
        graph = self._converted.graph
        self._made = self._draws().prepare(graph, np.arange(graph.num_nodes))
        options = self.torch_options(kwargs, self._made)
        if options.get("batch_sampler") is not None:
            raise InputError(
                "batch_sampler is given: each step of this loader is one subgraph; leave it out (Trainer.predict sets one, so it is not supported)"
            )
        steps: Any = range(num_steps)
        super().__init__(steps, batch_size=1, **options)
        vars(self)["batch_size"] = batch_size  # Lightning rebuilds the loader from this attribute; torch's loader has batch size 1
        if sample_coverage > 0:
            norms = self._norms()
            self.node_norm: Tensor = norms[0]
            self.edge_norm: Tensor = norms[1]

    _backward = False
    """True if the edges are reversed, so that walks follow them from source to destination."""

    @abstractmethod
    def _draws(self) -> Unweighted:
        """Return hoptrain's sampler that draws the subgraphs."""

    @property
    def sampler_and_graph(self) -> tuple[Sampler, Graph]:
        """Prepared sampler, and the graph that it samples."""
        return self._made, self._converted.graph

    def items(self, index: list[int]) -> Array:
        """Return one item: the draws of a batch follow from its address alone."""
        return _ITEM

    def assembled(self, index: list[int], source: BatchSource, state: int) -> Data:
        """Return the sampled subgraph, with norms if ``sample_coverage`` is set."""
        batch = source(self.items(index))
        made = subgraph_of(self, source, self._converted)
        if self._backward:
            made.edge_index = made.edge_index.flip(0)
        made.num_nodes = len(batch.node_ids)
        if self.sample_coverage > 0:
            nodes, edges = self._members(batch.map(to_host))
            device = made.edge_index.device
            made.node_norm, made.edge_norm = self.node_norm[nodes].to(device), self.edge_norm[edges].to(device)
        return made

    def edge_ids(self) -> dict[str, Tensor]:
        """Return the PyG edge ids that workers look up, by their name in a batch."""
        return get_edge_ids(self._converted.permutation)

    @property
    def _batch_indices(self) -> int:
        return 1  # each index stands for a subgraph

    def _members(self, batch: MiniBatch) -> tuple[Tensor, Tensor]:
        """Return the node ids of a batch, and the PyG edge ids in the batch's order."""
        edges, numbers = torch.from_numpy(batch.blocks[0].edge_ids.astype(np.int64)), self._converted.permutation
        return torch.from_numpy(batch.node_ids.astype(np.int64)), edges if numbers is None else numbers[edges].sort().values

    @property
    def _filename(self) -> str:
        return f"{type(self).__name__.lower()}_{self.sample_coverage}.pt"

    def _norms(self) -> tuple[Tensor, Tensor]:
        """Return the norms of all nodes and edges.

        With ``save_dir`` the norms are read from PyG's file; if there is no file, they are estimated and written to it.
        """
        if self.save_dir is None:
            return self._estimate_norms()
        path = Path(self.save_dir) / self._filename
        if not path.exists():
            norms = self._estimate_norms()
            torch.save(norms, path)
            return norms
        try:
            read = torch.load(path, weights_only=True)
            lengths = [len(each) for each in read]
        except Exception as error:  # torch has no exception class for unreadable files
            raise InputError(f"{path} holds no norms ({type(error).__name__}): remove it, or set another save_dir") from None
        if lengths != [self.data.num_nodes, self.data.num_edges]:
            raise InputError(f"{path} holds norms of another graph: remove it, or set another save_dir")
        node_norm, edge_norm = read
        return node_norm, edge_norm

    def _estimate_norms(self) -> tuple[Tensor, Tensor]:
        """Return node and edge norms, counted over the subgraphs of whole epochs. The random seed comes from torch's generator."""
        nodes, edges = torch.zeros(self.data.num_nodes), torch.zeros(self.data.num_edges)
        seed = int(torch.empty((), dtype=torch.int64).random_())
        workspace, graph = Workspace(os.cpu_count() or 1), self._converted.graph
        goal, drawn, number = self.data.num_nodes * self.sample_coverage, 0, 0
        with tqdm(total=goal, desc="Compute GraphSAINT normalization", disable=not self.log) as bar:
            while drawn < goal or number % self.num_steps:
                size = min(_BULK, self.num_steps - number % self.num_steps)
                for batch in self._made.sample_bulk(graph, [_ITEM] * size, seed=seed, first_batch=number, workspace=workspace):
                    of_batch = self._members(batch)
                    for counts, members in zip((nodes, edges), of_batch, strict=True):
                        counts[members] += 1
                    drawn += len(of_batch[0])
                    bar.update(len(of_batch[0]))
                number += size
        edge_norm = (nodes[self.data.edge_index[0]] / edges).clamp_(0, _MOST)
        edge_norm[edge_norm.isnan()] = _NEVER
        nodes[nodes == 0] = _NEVER
        return number / nodes / self.data.num_nodes, edge_norm


class GraphSAINTNodeSampler(GraphSAINTSampler):
    """A drop-in replacement for PyG's class: draws ``batch_size`` edges and takes the subgraph that their sources induce."""

    def _draws(self) -> Unweighted:
        return BySources(self._batch_size, 2, normalise=False, num_subgraphs=1)


class GraphSAINTEdgeSampler(GraphSAINTSampler):
    """A drop-in replacement for PyG's class: takes the subgraph that both ends of ``batch_size`` drawn edges induce.

    The probability of an edge u -> v is proportional to in-degree(u) + out-degree(v).
    """

    def _draws(self) -> Unweighted:
        return BySumOfDegrees(self._batch_size, 2, normalise=False, num_subgraphs=1)


class GraphSAINTRandomWalkSampler(GraphSAINTSampler):
    """A drop-in replacement for PyG's class: takes the subgraph that ``batch_size`` walks of ``walk_length`` steps along the edges visit.

    A walk stays at a node without out-edges.
    """

    _backward = True

    def __init__(
        self,
        data: Data,
        batch_size: int,
        walk_length: int,
        num_steps: int = 1,
        sample_coverage: int = 0,
        save_dir: str | None = None,
        log: bool = True,
        **kwargs: Any,
    ) -> None:
        """Convert the graph, once for each ``Data`` object, and estimate the norms, or read them from ``save_dir``.

        Raises:
            InputError: ``walk_length`` is below 1, or ``GraphSAINTSampler`` rejects another argument.
        """
        self.walk_length = walk_length
        super().__init__(data, batch_size, num_steps, sample_coverage, save_dir, log, **kwargs)

    def _draws(self) -> Unweighted:
        return Walks(self._batch_size, self.walk_length, 2, normalise=False, num_subgraphs=1)

    @property
    def _filename(self) -> str:
        return f"{type(self).__name__.lower()}_{self.walk_length}_{self.sample_coverage}.pt"
