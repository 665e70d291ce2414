"""Vectors of the entities of a knowledge graph: learnt ones, or made from those of their neighbours by R-GCN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hoptrain.engine import Graph, InputError
from hoptrain.samplers import Block, NeighborSampler, Workspace
from hoptrain.trainers.models.edge_layers import temporary_files_that_go
from hoptrain.trainers.models.inference import chunks, gather_parts
from hoptrain.trainers.models.layers import Dropout
from hoptrain.trainers.models.ranks import MOST_NUMBERS


class EntityEncoder(nn.Module):
    """A vector (C,) for each of V entities, whose gradients are sparse, and R-GCN's layers over it (Schlichtkrull et al. 2018), of PyG.

    A layer adds the mean over an entity's edges, each by its relation's matrix of blocks on the diagonal, and the entity's own vector by a full
    matrix: ``FastRGCNConv``, normalised across relations, as the paper has it for links, so that sampled edges estimate it without bias.
    Between two layers stands a ReLU. Without layers the vectors are those of the table.

    Attributes:
        table: the vectors that are learnt.
        layers: one for each hop of a mini-batch.
    """

    def __init__(self, num_nodes: int, num_relations: int, channels: int, num_layers: int, num_blocks: int, dropout: float) -> None:
        """Make the table and the layers.

        Args:
            num_nodes: V.
            num_relations: of edges, inverse ones counted.
            channels: C.
            num_layers: hops of a mini-batch.
            num_blocks: blocks of a relation's matrix, which share the channels evenly.
            dropout: share of each layer's input that is dropped, and of the vectors that leave the last one.

        Raises:
            InputError: sizes that do not fit.
        """
        super().__init__()
        if channels < 1 or num_blocks < 1 or (num_layers and channels % num_blocks):
            raise InputError(
                f"hidden_channels is {channels} and num_blocks {num_blocks}: both are at least 1, and the blocks share the channels evenly; correct one"
            )
        self.table: nn.Embedding = nn.Embedding(num_nodes, channels, sparse=True)
        nn.init.normal_(self.table.weight, std=channels**-0.5)
        with temporary_files_that_go():
            self.layers: nn.ModuleList = nn.ModuleList(_layer(channels, num_relations, num_blocks) for _ in range(num_layers))
        self.dropout: Dropout = Dropout(dropout)

    def forward(self, node_ids: Tensor, blocks: Sequence[Block], relations: Sequence[Tensor]) -> Tensor:
        """Vectors (B, C) of a batch's seeds.

        Args:
            node_ids: (S,) of the input nodes.
            blocks: one a layer, the outermost first.
            relations: (M,) int64, those of each block's edges.
        """
        hidden = self.table(node_ids.long())
        for i, (block, own) in enumerate(zip(blocks, relations, strict=True)):
            hidden = self.layer(i, hidden, block, own)
        dropped: Tensor = self.dropout(hidden)
        return dropped

    def layer(self, i: int, hidden: Tensor, block: Block, relations: Tensor) -> Tensor:
        """Layer ``i`` alone, with what stands before it: (num_src, C) to (num_dst, C)."""
        hidden = self.dropout(F.relu(hidden) if i else hidden)
        out: Tensor = self.layers[i]((hidden, hidden[: block.num_dst]), block.edge_index(), relations)
        return out

    @property
    def num_layers(self) -> int:
        """Number of blocks that ``forward`` takes."""
        return len(self.layers)


def _layer(channels: int, num_relations: int, num_blocks: int) -> nn.Module:
    from torch_geometric.nn import FastRGCNConv
    from torch_geometric.utils import scatter

    class MeanOfEdges(FastRGCNConv):
        """PyG's layer with one mean over all edges, where its own adds up means over each relation: what that gives grows with the edges sampled."""

        def aggregate(self, inputs: Tensor, edge_type: Tensor, index: Tensor, dim_size: int | None = None) -> Tensor:
            means: Tensor = scatter(inputs, index, dim=0, dim_size=dim_size, reduce="mean")
            return means

    return MeanOfEdges(channels, channels, num_relations, num_blocks=num_blocks)


@torch.no_grad()
def exact_vectors(
    encoder: EntityEncoder, graph: Graph, relations: Tensor, *, device: torch.device, rank: int = 0, world_size: int = 1
) -> Tensor:
    """The vectors (V, C) of all entities, on ``device``, by all of their edges. The encoder has to be in eval mode.

    Layer by layer and in chunks of bounded size, shared out among ranks: each of them has to call this.

    Args:
        encoder: the model.
        graph: ``Triples.graph``.
        relations: (E,) int64 those of the edges at their places, on ``device``.
        device: where to compute.
        rank: of this process.
        world_size: ranks.
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
        made = torch.cat(parts) if parts else hidden[:0]  # a rank that is left with none
        hidden = made if world_size == 1 else gather_parts(made, share, graph.num_nodes, device).to(device)
    return hidden
