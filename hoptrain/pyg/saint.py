"""PyG's samplers of GraphSAINT's subgraphs, fed by hoptrain, with the laws that PyG draws by, which are not all those of the paper."""

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
from hoptrain.engine.gpu_memory.device_stream import to_host
from hoptrain.pyg.features import numbers_of
from hoptrain.pyg.feed import Fed, subgraph_of
from hoptrain.pyg.graphs import converted, homogeneous
from hoptrain.samplers import MiniBatch, Sampler, Workspace
from hoptrain.samplers.loader.given import Source
from hoptrain.samplers.subgraphs.unweighted import BySources, BySumOfDegrees, Unweighted, Walks

_ITEM = np.zeros(1, np.int64)
"""What a batch is asked for: its draws follow from its address alone."""
_BULK = 16
_NEVER, _MOST = 0.1, 1e4
"""PyG's count of a node that was never drawn, and its bound for the weight of an edge."""


class GraphSAINTSampler(Fed, DataLoader[Any]):  # type: ignore[misc]  # torch names the class of its iterator
    """What PyG's samplers of that name share; see ``torch_geometric.loader.GraphSAINTSampler``. They need no torch-sparse.

    With ``sample_coverage`` a batch has ``node_norm`` (S,) and ``edge_norm`` (M,) float32. By counts over subgraphs drawn beforehand, until these
    have ``sample_coverage`` times as many nodes as the graph: subgraphs / (count of v * V) for a node v, and (count of u) / (count of the edge)
    for an edge u -> v, as PyG has them. Nodes of a batch stand in the order in which they were drawn first, in PyG in that of their ids.

    Attributes:
        node_norm: (V,) float32, of all nodes.
        edge_norm: (E,) float32, of all edges.
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
        """Convert the graph, once for a ``Data`` object, and draw for the coverage, or read what was saved.

        Raises:
            InputError: a number out of range, no ``edge_index``, attributes that a batch's would hide, a file of something else.
        """
        if homogeneous(data).get("edge_index") is None:
            raise InputError("data has no edge_index: these samplers draw from it; give it")
        for name in ("node_norm", "edge_norm"):
            if name in data:
                raise InputError(f"data has an attribute {name!r}: batches have one of that name; rename it")
        if num_steps < 1 or sample_coverage < 0:
            raise InputError(f"num_steps is {num_steps} and sample_coverage {sample_coverage}: at least 1 and 0; correct it")
        self.data: Any = data
        self.num_steps: int = num_steps
        self._batch_size = batch_size
        self.sample_coverage: int = sample_coverage
        self.save_dir: str | None = save_dir
        self.log: bool = log
        self._converted = converted(data, backward=self._backward)
        graph = self._converted.graph
        self._made = self._draws().prepare(graph, np.arange(graph.num_nodes))
        options = self.torch_options(kwargs, self._made)
        if options.get("batch_sampler") is not None:
            raise InputError("batch_sampler is given: each step is one subgraph (Trainer.predict needs whole batches); leave it out")
        steps: Any = range(num_steps)
        super().__init__(steps, batch_size=1, **options)
        vars(self)["batch_size"] = batch_size  # from which Lightning builds the loader again; torch's is 1
        if sample_coverage > 0:
            norms = self._norms()
            self.node_norm: Tensor = norms[0]
            self.edge_norm: Tensor = norms[1]

    _backward = False
    """Whether edges are turned round, for walks along them."""

    @abstractmethod
    def _draws(self) -> Unweighted:
        """Hoptrain's sampler."""

    @property
    def sampler_and_graph(self) -> tuple[Sampler, Graph]:
        """What is sampled by what."""
        return self._made, self._converted.graph

    def assembled(self, index: list[int], source: Source, state: int) -> Data:
        """The subgraph of what was drawn."""
        batch = source(_ITEM)
        made = subgraph_of(self, source, self._converted)
        if self._backward:
            made.edge_index = made.edge_index.flip(0)
        made.num_nodes = len(batch.node_ids)
        if self.sample_coverage > 0:
            nodes, edges = self._members(batch.map(to_host))
            device = made.edge_index.device
            made.node_norm, made.edge_norm = self.node_norm[nodes].to(device), self.edge_norm[edges].to(device)
        return made

    def numbers(self) -> dict[str, Tensor]:
        """See ``Fed.numbers``."""
        return numbers_of(self._converted.permutation)

    @property
    def _batch_indices(self) -> int:
        """One: each is a subgraph."""
        return 1

    def _members(self, batch: MiniBatch) -> tuple[Tensor, Tensor]:
        """The nodes, and the user's numbers of the edges as they stand in a batch."""
        edges, numbers = torch.from_numpy(batch.blocks[0].edge_ids.astype(np.int64)), self._converted.permutation
        return torch.from_numpy(batch.node_ids.astype(np.int64)), edges if numbers is None else numbers[edges].sort().values

    @property
    def _filename(self) -> str:
        return f"{type(self).__name__.lower()}_{self.sample_coverage}.pt"

    def _norms(self) -> tuple[Tensor, Tensor]:
        """Those of all nodes and edges: from PyG's file, or counted, and then kept there."""
        if self.save_dir is None:
            return self._counted()
        path = Path(self.save_dir) / self._filename
        if not path.exists():
            norms = self._counted()
            torch.save(norms, path)
            return norms
        try:
            read = torch.load(path, weights_only=True)
            lengths = [len(each) for each in read]
        except Exception as error:  # torch has no class of its own for a file that it cannot read
            raise InputError(f"{path} holds no norms ({type(error).__name__}): remove it, or state another save_dir") from None
        if lengths != [self.data.num_nodes, self.data.num_edges]:
            raise InputError(f"{path} holds norms of another graph: remove it, or state another save_dir")
        node_norm, edge_norm = read
        return node_norm, edge_norm

    def _counted(self) -> tuple[Tensor, Tensor]:
        """Of subgraphs at addresses of torch's generator, as many as whole epochs have."""
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
    """PyG's, by name, arguments and batches: ``batch_size`` draws of an edge, of which the source is taken."""

    def _draws(self) -> Unweighted:
        return BySources(self._batch_size, 2, normalise=False, num_subgraphs=1)


class GraphSAINTEdgeSampler(GraphSAINTSampler):
    """PyG's, by name, arguments and batches: ``batch_size`` draws of an edge u -> v, in proportion to in-degree(u) + out-degree(v), of both ends."""

    def _draws(self) -> Unweighted:
        return BySumOfDegrees(self._batch_size, 2, normalise=False, num_subgraphs=1)


class GraphSAINTRandomWalkSampler(GraphSAINTSampler):
    """PyG's, by name, arguments and batches: ``batch_size`` walks of ``walk_length`` steps along the edges; one without any to take stays."""

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
        """As ``GraphSAINTSampler``.

        Raises:
            InputError: as of ``GraphSAINTSampler``.
        """
        self.walk_length = walk_length
        super().__init__(data, batch_size, num_steps, sample_coverage, save_dir, log, **kwargs)

    def _draws(self) -> Unweighted:
        return Walks(self._batch_size, self.walk_length, 2, normalise=False, num_subgraphs=1)

    @property
    def _filename(self) -> str:
        return f"{type(self).__name__.lower()}_{self.walk_length}_{self.sample_coverage}.pt"
