"""An encoder of the entities of a knowledge graph: embeddings, optionally followed by R-GCN layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hoptrain.engine import Graph, InputError
from hoptrain.samplers import Block, NeighborSampler, Workspace
from hoptrain.trainers.models.edge_layers import temporary_pyg_files
from hoptrain.trainers.models.inference import chunks, gather_parts
from hoptrain.trainers.models.layers import Dropout, relu_dropout
from hoptrain.trainers.models.ranks import MOST_NUMBERS


class EntityEncoder(nn.Module):
    """A module with an embedding (C,) for each of V entities, with sparse gradients, and R-GCN layers over them (Schlichtkrull et al. 2018).

    The output of a layer is a sum of two terms: the mean over in-neighbours, each multiplied by the block-diagonal matrix of its relation, and the
    entity's own vector multiplied by a full matrix. This is PyG's ``FastRGCNConv`` normalised across relations, as the paper does for links, so that
    sampled edges give an unbiased estimate. ReLU is applied between layers. Without layers, the output is the embeddings.

    Attributes:
        table: the embeddings.
        layers: one layer for each hop of a mini-batch.
    """

    def __init__(self, num_nodes: int, num_relations: int, channels: int, num_layers: int, num_blocks: int, dropout: float) -> None:
        """Make the embeddings and the layers.

        Args:
            num_nodes: number of entities, V.
            num_relations: number of relations of edges, including inverse ones.
            channels: width of the vectors, C.
            num_layers: number of layers, which equals the hops of a mini-batch.
            num_blocks: number of diagonal blocks of a relation's matrix, which divide the channels evenly.
            dropout: dropout probability of each layer's input and of the last layer's output.

        Raises:
            InputError: a size is below 1, or ``num_blocks`` does not divide ``channels``.
        """
        super().__init__()
        if channels < 1 or num_blocks < 1 or (num_layers and channels % num_blocks):
            raise InputError(
                f"hidden_channels is {channels} and num_blocks {num_blocks}: both must be at least 1, and hidden_channels a multiple of num_blocks; "
                "change one"
            )
        self.table: nn.Embedding = nn.Embedding(num_nodes, channels, sparse=True)
        nn.init.normal_(self.table.weight, std=channels**-0.5)
        with temporary_pyg_files():
            self.layers: nn.ModuleList = nn.ModuleList(_layer(channels, num_relations, num_blocks) for _ in range(num_layers))
        self.dropout: Dropout = Dropout(dropout)

    def forward(self, node_ids: Tensor, blocks: Sequence[Block], relations: Sequence[Tensor]) -> Tensor:
        """Compute vectors (B, C) of a batch's seeds.

        Args:
            node_ids: ids (S,) of the input nodes.
            blocks: one block per layer, outermost first.
            relations: relations (M,) int64 of each block's edges.
        """
        hidden = self.table(node_ids.long())
        for i, (block, own) in enumerate(zip(blocks, relations, strict=True)):
            hidden = self.layer(i, hidden, block, own)
        dropped: Tensor = self.dropout(hidden)
        return dropped

    def layer(self, i: int, hidden: Tensor, block: Block, relations: Tensor) -> Tensor:
        """Apply layer ``i`` after ReLU and dropout: (num_src, C) to (num_dst, C)."""
        hidden = relu_dropout(hidden, self.dropout.p, self.training) if i else self.dropout(hidden)
        out: Tensor = self.layers[i]((hidden, hidden[: block.num_dst]), block.edge_index(), relations)
        return out

    @property
    def num_layers(self) -> int:
        """Number of layers, and of blocks that ``forward`` takes."""
        return len(self.layers)


def _layer(channels: int, num_relations: int, num_blocks: int) -> nn.Module:
    from torch_geometric.nn import FastRGCNConv
    from torch_geometric.utils import scatter

    class MeanOfEdges(FastRGCNConv):
        """A ``FastRGCNConv`` that computes one mean over the edges of all relations. PyG's sum of a mean per relation grows with the sampled relations."""

        def aggregate(self, inputs: Tensor, edge_type: Tensor, index: Tensor, dim_size: int | None = None) -> Tensor:
            means: Tensor = scatter(inputs, index, dim=0, dim_size=dim_size, reduce="mean")
            return means

    return MeanOfEdges(channels, channels, num_relations, num_blocks=num_blocks)


@torch.no_grad()
def exact_vectors(
    encoder: EntityEncoder, graph: Graph, relations: Tensor, *, device: torch.device, rank: int = 0, world_size: int = 1
) -> Tensor:
    """Compute the vectors (V, C) of all entities from all of their edges, layer by layer. The encoder must be in eval mode.

    Each rank computes a part of the entities, in chunks of bounded size, so every rank must call this.

    Args:
        encoder: the model, in eval mode.
        graph: graph of the triples, from ``Triples.graph``.
        relations: relations (E,) int64 of the edges, by CSC position, on ``device``.
        device: device to compute on.
        rank: number of this rank.
        world_size: number of ranks.
    """
    every, sampler, workspace = np.arange(graph.num_nodes), NeighborSampler([-1]), Workspace()
    share = -(-graph.num_nodes // world_size)
    hidden: Tensor = encoder.table.weight
    for i in range(len(encoder.layers)):
        weight: Any = encoder.layers[i].weight
        parts = []
        for chunk in chunks(graph.indptr, every[rank * share : (rank + 1) * share], most=max(1, MOST_NUMBERS // weight[0].numel())):
            batch = sampler.sample(graph, chunk, workspace=workspace).to(device)
            (block,) = batch.blocks
            parts.append(encoder.layer(i, hidden[batch.node_ids.long()], block, relations[block.edge_ids.long()]))
        made = torch.cat(parts) if parts else hidden[:0]  # an empty tensor if this rank has no entities
        hidden = made if world_size == 1 else gather_parts(made, share, graph.num_nodes, device).to(device)
    return hidden
