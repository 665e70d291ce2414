"""Exact inference over heterogeneous graphs: layer by layer from full neighbourhoods, one type after another, in chunks of bounded size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

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
from hoptrain.trainers.models.inference import CHUNK_SEEDS, chunks, device_for, edges_in, free_memory, gather_parts, joined, rows_of

_ROWS = 1 << 16
"""Nodes whose features become vectors at once."""


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
    """What the model gives for ``nodes`` (N_t,) of each type of seeds t from their full neighbourhoods: (N_t, C) on ``device``; as ``layerwise_inference``.

    Memory holds the vectors that enter a layer and those that leave it, of the types that the layer needs, and a chunk's messages. A layer that weighs
    relations by a mean over all nodes is gone through twice. A GPU's free memory, ``free_bytes`` if that is given, is shared by all types.
    """
    graph = data.graph
    shares = {kind: -(-number // world_size) for kind, number in graph.num_nodes.items()}
    free = free_memory(device) if free_bytes is None else free_bytes
    most, free = chunk_edges or edges_in(free), free // max(1, len(model.needed[0]))  # a quarter is for a layer of all types
    parts = partial(_parts, model, data, _offsets_by_type(graph), Workspace(), most, device)

    def mine(kind: str) -> Array:
        return np.arange(graph.num_nodes[kind])[rank * shares[kind] : (rank + 1) * shares[kind]]

    def of_all(kind: str, part: Tensor) -> Tensor:
        """The vectors of all nodes of a type, from every rank's own."""
        return part if world_size == 1 else gather_parts(part, shares[kind], graph.num_nodes[kind], device, free)

    def embed(kind: str) -> Tensor:
        """What enters layer 0, of this rank's nodes of a type."""
        parts = np.array_split(mine(kind), max(1, -(-len(mine(kind)) // _ROWS)))
        return joined(
            (_embedded(model, data, kind, ids, normalize, device) for ids in parts), len(mine(kind)), partial(device_for, device, free=free)
        )

    def weights(layer: int, kind: str, hidden: dict[str, Tensor]) -> dict[str, Tensor] | None:
        """Those of the relations that lead to a type, by their mean score over all of its nodes."""
        if not model.weighs_relations:
            return None
        total = torch.zeros(sum(relation[2] == kind for relation in model.relations[layer]), device=device)
        for inputs, blocks in parts(kind, mine(kind), hidden):
            total += model.scores(layer, inputs, blocks)[kind]
        if world_size > 1:
            torch.distributed.all_reduce(total)
        return {kind: torch.softmax(total / graph.num_nodes[kind], 0)}

    def apply(layer: int, kind: str, nodes: Array, hidden: dict[str, Tensor]) -> Tensor:
        """One layer's output for ``nodes`` of a type; those of a type that no relation leads to have no neighbours."""
        if not any(relation[2] == kind for relation in model.relations[layer]):
            return model.alone(layer, kind, rows_of(hidden[kind], nodes, device))
        given, asked = weights(layer, kind, hidden), nodes if len(nodes) else np.zeros(1, np.int64)
        outputs = (model.layer(layer, inputs, blocks, given)[kind] for inputs, blocks in parts(kind, asked, hidden))
        return joined(outputs, len(nodes), partial(device_for, device, free=free))

    hidden = {kind: of_all(kind, embed(kind)) for kind in model.needed[0]}
    for layer in range(model.num_layers - 1):
        hidden = {kind: of_all(kind, apply(layer, kind, mine(kind), hidden)) for kind in model.needed[layer + 1]}
    return {kind: apply(model.num_layers - 1, kind, nodes[kind], hidden).to(device) for kind in model.seed_types}


def _parts(
    model: HeteroGNN,
    data: HeteroDataset,
    indptr: dict[str, Array],
    workspace: Workspace,
    most: int,
    device: torch.device,
    kind: str,
    nodes: Array,
    hidden: dict[str, Tensor],
) -> Iterator[tuple[dict[str, Tensor], Blocks]]:
    """A layer's input and blocks for ``nodes`` of a type, in chunks of ``most`` edges, from ``hidden`` (V_t, H)."""
    from hoptrain.samplers import HeteroSampler  # module of samplers that homogeneous graphs do without

    sampler = HeteroSampler([-1], kind)
    for chunk in chunks(indptr[kind], nodes, most):
        batch = sampler.sample(data.graph, chunk, workspace=workspace)
        batch = with_edge_features(batch, data) if model.edge_channels else batch
        inputs = {name: rows_of(own, batch.node_ids[name], device) for name, own in hidden.items()}
        yield inputs, batch.to(device).blocks[0]


def _offsets_by_type(graph: HeteroGraph) -> dict[str, Array]:
    """Of each type (V_t + 1,) int64: where the edges into each node would begin if those of all relations stood together."""
    return {
        name: sum((of.indptr for relation, of in graph.relations.items() if relation[2] == name), np.zeros(number + 1, np.int64))
        for name, number in graph.num_nodes.items()
    }


def _embedded(model: HeteroGNN, data: HeteroDataset, kind: str, ids: Array, normalize: bool, device: torch.device) -> Tensor:
    """What enters layer 0, of the nodes ``ids`` (N,) of a type: (N, H) on ``device``."""
    x = {kind: to_input(to_device(as_tensor(take_rows(data.x[kind], ids)), device), normalize)} if kind in model.inputs else {}
    return model.embed(x, {kind: torch.from_numpy(ids).to(device)})[kind]


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
    """Scores of ``nodes`` (N,) of the seeds' type from batches with all neighbours over ``num_hops`` hops: (N, C) on ``device``.

    For a model that does not say its layers: ``apply`` is it, of features and a batch.
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
