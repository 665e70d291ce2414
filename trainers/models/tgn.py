"""Temporal graph networks (Rossi et al. 2020, "Temporal graph networks for deep learning on dynamic graphs") of PyG's layers."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch_geometric.nn import TransformerConv
from torch_geometric.nn.models.tgn import IdentityMessage, LastAggregator, TGNMemory

from hoptrain.engine import InputError
from hoptrain.samplers import MiniBatch


class EventTensors(NamedTuple):
    """The events that a memory takes in, on its device.

    Attributes:
        src: (E,) int64.
        dst: (E,) int64.
        t: (E,) int64.
        messages: (E, D) float32.
    """

    src: Tensor
    dst: Tensor
    t: Tensor
    messages: Tensor


class EventMemory(TGNMemory):
    """PyG's memory, whose whole state are tensors: a checkpoint has it, and a copy of it is one.

    PyG keeps the messages of each node's last batch, as lists by node, of which ``LastAggregator`` uses the latest; so here the number of the
    latest event is kept, as a source and as a destination. Three things differ from PyG: of events at the same time the last one counts, where PyG
    takes any; a node without a message never has another one's, which ``LastAggregator`` may give it where there are more messages than
    nodes; and ``eval()`` changes nothing: ``settled`` does what it does there.

    Attributes:
        events: what is taken in; not part of a checkpoint.
        num_taken: how many events were taken in.
    """

    events: EventTensors
    num_taken: Tensor

    def __init__(self, num_nodes: int, message_channels: int, memory_channels: int, time_channels: int) -> None:
        sizes = message_channels, memory_channels, time_channels
        super().__init__(num_nodes, *sizes, IdentityMessage(*sizes), LastAggregator())
        self.register_buffer("_assoc", torch.zeros(num_nodes, dtype=torch.long), persistent=False)  # scratch

    def reset_state(self) -> None:
        """Know of no event."""
        super().reset_state()
        self.register_buffer("num_taken", self.last_update.new_zeros(()))

    def train(self, mode: bool = True) -> EventMemory:
        """Set the mode and nothing else."""
        return nn.Module.train(self, mode)

    def settled(self) -> EventMemory:
        """A copy for evaluation, which has taken in the messages that waited: ``self`` stays as it is."""
        copy: EventMemory = deepcopy(self, {id(self.events): self.events}).eval()
        copy._update_memory(torch.arange(self.num_nodes, device=self.device))
        copy._reset_message_store()
        return copy

    def update(self, begin: int, end: int) -> None:
        """Take in the events ``begin`` to ``end`` - 1, the next ones.

        Raises:
            InputError: they are not.
        """
        if begin != int(self.num_taken):
            raise InputError(
                f"events {begin} to {end - 1} for a memory that has taken in {int(self.num_taken)}: it takes them in their order; use the events "
                "and shares that it was trained with"
            )
        src, dst, t, _ = (column[begin:end] for column in self.events)
        self.update_state(src, dst, t, torch.arange(begin, end, device=src.device))
        self.num_taken += end - begin

    def _reset_message_store(self) -> None:
        """The latest event of each node, (V,), -1 for none: PyG's ``_get_updated_memory`` and ``update_state`` hand them on as they are."""
        for name in ("msg_s_store", "msg_d_store"):
            self.__dict__.pop(name, None)
            self.register_buffer(name, self.last_update.new_full((self.num_nodes,), -1))

    def _update_msg_store(self, src: Tensor, dst: Tensor, t: Tensor, raw_msg: Tensor, msg_store: Tensor) -> None:
        """``raw_msg`` are the numbers of the events (N,)."""
        msg_store.scatter_reduce_(0, src, raw_msg, "amax")

    def _compute_msg(self, n_id: Tensor, msg_store: Tensor, msg_module: nn.Module) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Messages of those of the nodes ``n_id`` (N,) whose latest event is in ``msg_store``: with times, themselves, and the other ends."""
        as_source, as_destination = self.msg_s_store[n_id], self.msg_d_store[n_id]
        if msg_store is self.msg_s_store:
            latest, is_latest, ends = as_source, as_source > as_destination, self.events.dst
        else:
            latest, is_latest, ends = as_destination, (as_destination >= as_source) & (as_destination >= 0), self.events.src
        own, events = n_id[is_latest], latest[is_latest]
        others = ends[events]
        t = self.events.t[events]
        since = self.time_enc((t - self.last_update[own]).to(self.memory.dtype))
        return msg_module(self.memory[own], self.memory[others], self.events.messages[events], since), t, own, others


class TGN(nn.Module):
    """Scores of pairs of nodes at the time of a batch: memory, attention over the latest neighbours, and a perceptron for pairs.

    It is that of PyG's ``examples/tgn.py``.
    """

    def __init__(
        self,
        num_nodes: int,
        message_channels: int,
        memory_channels: int = 100,
        time_channels: int = 100,
        hidden_channels: int = 100,
        heads: int = 2,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.memory: Any = EventMemory(num_nodes, message_channels, memory_channels, time_channels)
        self.attention: Any = TransformerConv(
            memory_channels, hidden_channels // heads, heads=heads, dropout=dropout, edge_dim=message_channels + time_channels
        )
        self.source: nn.Linear = nn.Linear(hidden_channels, hidden_channels)
        self.destination: nn.Linear = nn.Linear(hidden_channels, hidden_channels)
        self.last: nn.Linear = nn.Linear(hidden_channels, 1)

    def forward(self, batch: MiniBatch, memory: Any) -> Tensor:
        """Scores (P,) of the batch's ``pairs``, by an ``EventMemory`` of what was before it."""
        (block,) = batch.blocks
        x, last_update = memory(batch.node_ids.long())
        sources, _ = edges = block.edge_index()
        events = batch.extra["events"]
        since = memory.time_enc((last_update[sources] - memory.events.t[events]).to(x.dtype))
        edge_attr = torch.cat([since, memory.events.messages[events]], dim=1)
        x = self.attention((x, x[: batch.num_seeds]), edges, edge_attr)
        source, destination = batch.extra["pairs"].long()
        scores: Tensor = self.last((self.source(x)[source] + self.destination(x)[destination]).relu())
        return scores[:, 0]
