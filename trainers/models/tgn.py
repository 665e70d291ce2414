"""Temporal graph networks (Rossi et al. 2020, "Temporal graph networks for deep learning on dynamic graphs") built from PyG's layers."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch_geometric.nn import TransformerConv
from torch_geometric.nn.models.tgn import IdentityMessage, LastAggregator, TGNMemory

from hoptrain.engine import InputError
from hoptrain.samplers import MiniBatch
from hoptrain.trainers.models.sums import lookup


class EventTensors(NamedTuple):
    """All events of a data set, as tensors on the device of the memory.

    Attributes:
        src: sources (E,) int64.
        dst: destinations (E,) int64.
        t: times (E,) int64.
        messages: messages (E, D) float32.
    """

    src: Tensor
    dst: Tensor
    t: Tensor
    messages: Tensor


class EventMemory(TGNMemory):
    """A PyG ``TGNMemory`` whose whole state is in tensors, so that it can be saved and copied.

    PyG stores the messages of each node's last batch in lists, of which ``LastAggregator`` uses the latest. Here, two tensors store the index of each node's
    latest event, as a source and as a destination. Three things differ from PyG:

    * If a node has several events at the same time, the last of them counts; PyG takes an arbitrary event.
    * A node without a message never gets another node's message, as may happen with ``LastAggregator`` if there are more messages than nodes.
    * ``eval()`` does not update the memory; ``settled`` does.

    Attributes:
        events: events of the data set; not part of a checkpoint.
        num_taken: number of events that the memory has read.
    """

    events: EventTensors
    num_taken: Tensor

    def __init__(self, num_nodes: int, message_channels: int, memory_channels: int, time_channels: int) -> None:
        sizes = message_channels, memory_channels, time_channels
        super().__init__(num_nodes, *sizes, IdentityMessage(*sizes), LastAggregator())
        self.register_buffer("_assoc", torch.zeros(num_nodes, dtype=torch.long), persistent=False)  # scratch

    def reset_state(self) -> None:
        """Forget all events."""
        super().reset_state()
        self.register_buffer("num_taken", self.last_update.new_zeros(()))

    def train(self, mode: bool = True) -> EventMemory:
        """Set training or evaluation mode. Unlike PyG's method, this method does not change the memory."""
        return nn.Module.train(self, mode)

    def settled(self) -> EventMemory:
        """Return a copy for evaluation in which pending messages have been applied. ``self`` does not change."""
        copy: EventMemory = deepcopy(self, {id(self.events): self.events}).eval()
        copy._update_memory(torch.arange(self.num_nodes, device=self.device))
        copy._reset_message_store()
        return copy

    def update(self, begin: int, end: int) -> None:
        """Read the events ``begin`` to ``end`` - 1, which must be the next ones.

        Raises:
            InputError: ``begin`` is not the index of the next event.
        """
        if begin != int(self.num_taken):
            raise InputError(
                f"events {begin} to {end - 1} for a memory that has read {int(self.num_taken)}: it must read them in order; use the events "
                "and split that it was trained with"
            )
        src, dst, t, _ = (column[begin:end] for column in self.events)
        self.update_state(src, dst, t, torch.arange(begin, end, device=src.device))
        self.num_taken += end - begin

    def _reset_message_store(self) -> None:
        """Reset the index of each node's latest event (V,) to -1 (none). PyG's ``_get_updated_memory`` and ``update_state`` pass these tensors through."""
        for name in ("msg_s_store", "msg_d_store"):
            self.__dict__.pop(name, None)
            self.register_buffer(name, self.last_update.new_full((self.num_nodes,), -1))

    def _update_msg_store(self, src: Tensor, dst: Tensor, t: Tensor, raw_msg: Tensor, msg_store: Tensor) -> None:
        """Store the index of each node's latest event; ``raw_msg`` (N,) are the indices of the events."""
        msg_store.scatter_reduce_(0, src, raw_msg, "amax")

    def _compute_msg(self, n_id: Tensor, msg_store: Tensor, msg_module: nn.Module) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Select the nodes of ``n_id`` (N,) whose latest event is in ``msg_store``. Return their messages, times, ids and the events' other ends."""
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
    """A temporal graph network: memory, attention over the latest neighbours, and an MLP that computes logits of pairs at the time of a batch.

    It is the model of PyG's ``examples/tgn.py``.
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
        """Compute logits (P,) of the batch's ``pairs``, from an ``EventMemory`` of all earlier events."""
        (block,) = batch.blocks
        x, last_update = memory(batch.node_ids.long())
        sources, _ = edges = block.edge_index()
        events = batch.extra["events"]
        since = memory.time_enc((last_update[sources] - memory.events.t[events]).to(x.dtype))
        edge_attr = torch.cat([since, memory.events.messages[events]], dim=1)
        x = self.attention((x, x[: batch.num_seeds]), edges, edge_attr)
        source, destination = batch.extra["pairs"].long()
        scores: Tensor = self.last((lookup(self.source(x), source) + lookup(self.destination(x), destination)).relu())
        return scores[:, 0]
