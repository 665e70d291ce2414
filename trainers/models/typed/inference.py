"""Exact inference over typed graphs: layer by layer from full neighbourhoods, one type after another, in chunks of bounded size."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from hoptrain.engine import HeteroDataset
from hoptrain.engine.arrays import Array
from hoptrain.samplers import HeteroSampler, Workspace
from hoptrain.samplers.batch.transfer import as_tensor
from hoptrain.trainers.models.features import to_input
from hoptrain.trainers.models.inference import chunks, gather_parts
from hoptrain.trainers.models.typed.gnn import TypedGNN


@torch.no_grad()
def exact_typed_logits(
    model: TypedGNN, data: HeteroDataset, nodes: Array, *, normalize: bool, device: torch.device, rank: int = 0, world_size: int = 1
) -> Tensor:
    """Scores of ``nodes`` (N,) of the seeds' type from their full neighbourhoods: (N, num_classes) on ``device``; as ``exact_logits``.

    Memory holds the vectors that enter a layer and those that leave it, of the types that the layer needs, and a chunk's messages.
    """
    graph, workspace = data.graph, Workspace()
    indptr = {
        name: sum((of.indptr for relation, of in graph.relations.items() if relation[2] == name), np.zeros(number + 1, np.int64))
        for name, number in graph.num_nodes.items()
    }

    def apply(layer: int, kind: str, nodes: Array, hidden: dict[str, Tensor] | None) -> Tensor:
        """One layer's output for ``nodes`` of a type; ``hidden`` (V_t, H) on the CPU is its input by type, None stands for the features."""
        sampler, outputs = HeteroSampler([-1], kind), []
        for chunk in chunks(indptr[kind], nodes if len(nodes) else np.zeros(1, np.int64)):
            batch = sampler.sample(graph, chunk, workspace=workspace)
            rows = {name: torch.from_numpy(ids).long() for name, ids in batch.node_ids.items()}
            if hidden is None:
                x = {name: as_tensor(np.take(data.x[name], batch.node_ids[name], axis=0)).to(device) for name in model.inputs}
                inputs = model.embed(
                    {name: to_input(own, normalize) for name, own in x.items()}, {name: ids.to(device) for name, ids in rows.items()}
                )
            else:
                inputs = {name: own[rows[name]].to(device) for name, own in hidden.items()}
            outputs.append(model.layer(layer, inputs, batch.to(device).blocks[0])[kind])
        return torch.cat(outputs)[: len(nodes)]

    hidden: dict[str, Tensor] | None = None
    for layer in range(model.num_layers - 1):
        made = {}
        for kind in model.needed[layer + 1]:
            number = graph.num_nodes[kind]
            share = -(-number // world_size)
            part = apply(layer, kind, np.arange(number)[rank * share : (rank + 1) * share], hidden).cpu()
            made[kind] = part if world_size == 1 else gather_parts(part, share, number, device)
        hidden = made
    return apply(model.num_layers - 1, model.seed_type, nodes, hidden)
