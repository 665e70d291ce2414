"""Full-neighbour inference over heterogeneous graphs: layer by layer, one node type after another, in chunks of bounded size."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hoptrain.engine import HeteroDataset, HeteroGraph
from hoptrain.engine.arrays import Array
from hoptrain.engine.features.take import take_rows
from hoptrain.samplers import HeteroMiniBatch, Workspace
from hoptrain.samplers.batch.transfer import as_tensor
from hoptrain.trainers.models.features import to_device, to_input, with_edge_features
from hoptrain.trainers.models.hetero.gnn import HeteroGNN
from hoptrain.trainers.models.hetero.layers import Blocks, Hidden
from hoptrain.trainers.models.inference import CHUNK_SEEDS, ChooseDevice, LayerLoop, join_rows, rows_of

_ROWS = 1 << 16
"""Number of nodes whose features are embedded at once."""


@torch.no_grad()
def hetero_layerwise_inference(
    model: HeteroGNN,
    data: HeteroDataset,
    nodes: Mapping[str, Array],
    *,
    normalize: bool,
    device: torch.device,
    rank: int = 0,
    world_size: int = 1,
    chunk_edges: int | None = None,
    free_bytes: int | None = None,
) -> dict[str, Tensor]:
    """Compute outputs of seed nodes from their full neighbourhoods, layer by layer. The model must be in eval mode.

    With several ranks, every rank must call this: each rank computes a part of the nodes in hidden layers, and only its own ``nodes`` in the last layer.
    Memory holds the messages of one chunk, and the input and output rows of a layer for the types that it needs. A layer that weighs relations by
    a mean over all nodes (HAN) is computed in two passes.

    Args:
        model: a ``HeteroGNN`` in eval mode.
        data: the data set, with its graph and features.
        nodes: node ids (N_t,) of each seed type t to compute outputs for.
        normalize: divide each node's features by their sum.
        device: the device to compute on.
        rank: this rank's number.
        world_size: the number of ranks.
        chunk_edges: approximate number of edges in a chunk; None derives it from the free memory.
        free_bytes: free bytes of the GPU, shared by all types; None queries CUDA once.

    Returns:
        Outputs (N_t, C) on ``device`` of each seed type t.
    """
    options: dict[str, Any] = {"rank": rank, "world_size": world_size, "chunk_edges": chunk_edges, "free_bytes": free_bytes}
    loop = LayerLoop(_offsets_by_type(data.graph), device, num_types=len(model.needed[0]), **options)
    layers = _TypedLayers(model, data, loop, normalize, device, is_alone=world_size == 1)
    entering = {kind: loop.all_rows(kind, partial(layers.embed, kind)) for kind in model.needed[0]}
    return loop.run(layers.apply, entering, model.needed, {kind: nodes[kind] for kind in model.seed_types})


class _TypedLayers:
    """An adapter of a ``HeteroGNN`` with the functions that ``LayerLoop`` calls."""

    def __init__(
        self, model: HeteroGNN, data: HeteroDataset, loop: LayerLoop, normalize: bool, device: torch.device, *, is_alone: bool
    ) -> None:
        from hoptrain.samplers import HeteroSampler  # not imported for homogeneous graphs

        self._model, self._data, self._loop = model, data, loop
        self._normalize, self._device, self._is_alone = normalize, device, is_alone
        self._samplers, self._workspace = {kind: HeteroSampler([-1], kind) for kind in data.graph.num_nodes}, Workspace()

    def embed(self, kind: str, nodes: Array, choose: ChooseDevice) -> Tensor:
        """Return input rows (N, H) of the first layer for ``nodes`` (N,) of a type."""
        pieces = np.array_split(nodes, max(1, -(-len(nodes) // _ROWS)))
        return join_rows((self._embed_chunk(kind, ids) for ids in pieces), len(nodes), choose)

    def _embed_chunk(self, kind: str, ids: Array) -> Tensor:
        x = {}
        if kind in self._model.inputs:
            x = {kind: to_input(to_device(as_tensor(take_rows(self._data.x[kind], ids)), self._device), self._normalize)}
        return self._model.embed(x, {kind: torch.from_numpy(ids).to(self._device)})[kind]

    def apply(self, i: int, kind: str, hidden: Hidden, nodes: Array, choose: ChooseDevice) -> Tensor:
        """Return output rows (N, C) of layer ``i`` for ``nodes`` (N,) of a type."""
        is_empty = not self._data.graph.num_nodes[kind]  # a chunk needs at least one node
        if is_empty or not any(relation[2] == kind for relation in self._model.relations[i]):
            return self._model.alone(i, kind, rows_of(hidden[kind], nodes, self._device))
        weights = self._weights(i, kind, hidden) if self._model.weighs_relations else None

        def output(chunk: Array) -> Tensor:
            return self._model.layer(i, *self._inputs(kind, hidden, chunk), weights)[kind]

        return self._loop.by_chunks(kind, nodes, output, choose)

    def _weights(self, i: int, kind: str, hidden: Hidden) -> dict[str, Tensor]:
        """Return the weights of the relations into a type: the softmax of their mean scores over all nodes of the type."""
        total = torch.zeros(sum(relation[2] == kind for relation in self._model.relations[i]), device=self._device)
        for chunk in self._loop.chunks(kind, self._loop.share(kind)):
            total += self._model.scores(i, *self._inputs(kind, hidden, chunk))[kind]
        if not self._is_alone:
            torch.distributed.all_reduce(total)
        return {kind: torch.softmax(total / self._data.graph.num_nodes[kind], 0)}

    def _inputs(self, kind: str, hidden: Hidden, chunk: Array) -> tuple[dict[str, Tensor], Blocks]:
        """Return a layer's input rows and blocks for a chunk of nodes (N,) of a type."""
        batch = self._samplers[kind].sample(self._data.graph, chunk, workspace=self._workspace)
        batch = with_edge_features(batch, self._data) if self._model.edge_channels else batch
        inputs = {name: rows_of(own, batch.node_ids[name], self._device) for name, own in hidden.items()}
        return inputs, batch.to(self._device).blocks[0]


def _offsets_by_type(graph: HeteroGraph) -> dict[str, Array]:
    """Return, by node type, CSC offsets (V_t + 1,) int64 of the edges into its nodes, over all relations together."""
    return {
        name: sum((of.indptr for relation, of in graph.relations.items() if relation[2] == name), np.zeros(number + 1, np.int64))
        for name, number in graph.num_nodes.items()
    }


@torch.no_grad()
def hetero_neighborhood_logits(
    apply: Callable[[Hidden, HeteroMiniBatch], Tensor],
    data: HeteroDataset,
    nodes: Array,
    *,
    num_hops: int,
    normalize: bool,
    device: torch.device,
) -> Tensor:
    """Compute logits of seed nodes from batches of their full neighbourhoods, for a model without a method ``layer``.

    Args:
        apply: the model, as a function of input features by type and a batch.
        data: the data set, with its graph and features.
        nodes: ids (N,) of nodes of the seed type.
        num_hops: hops of neighbours in a batch.
        normalize: divide each node's features by their sum.
        device: the device to compute on.

    Returns:
        Logits (N, C) on ``device``.
    """
    from hoptrain.samplers import HeteroSampler

    sampler, workspace = HeteroSampler([-1] * num_hops, data.seed_type), Workspace()
    asked, outputs = nodes if len(nodes) else np.zeros(1, np.int64), []
    for begin in range(0, len(asked), CHUNK_SEEDS):
        sampled = sampler.sample(data.graph, asked[begin : begin + CHUNK_SEEDS], workspace=workspace)
        batch = with_edge_features(sampled, data)
        x = {name: as_tensor(take_rows(rows, batch.node_ids[name])).to(device) for name, rows in data.x.items()}
        outputs.append(apply({name: to_input(rows, normalize) for name, rows in x.items()}, batch.to(device)))
    return torch.cat(outputs)[: len(nodes)]
