"""Exchange of arrays between processes with gloo, whose collectives transfer host memory over TCP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import distributed

from hoptrain.engine import InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.errors import explain_hint
from hoptrain.engine.partition.exchange import exchange_by
from hoptrain.engine.queue.message_slot import Message, split

MOST_BYTES = 1 << 29
"""Maximum bytes that one collective sends or receives, since gloo counts bytes with 32 bits."""


class GlooExchange:
    """An exchange of data between the processes of a gloo group. It sends sizes first, and then the data in pieces of limited size.

    Attributes:
        rank: rank of this process in the group.
        size: number of processes in the group.
    """

    def __init__(self, group: Any = None) -> None:
        """Use the process group ``group``, by default the one of all processes."""
        self._group = group
        self.rank, self.size = distributed.get_rank(group), distributed.get_world_size(group)

    def exchange(self, to: Sequence[Message]) -> list[Array]:
        """Send each process its message and return the received ones, as ``Exchange`` in ``hoptrain.engine.partition.exchange`` describes."""
        return exchange_by(self, to)

    def swap(self, sent: Array, sizes: Sequence[int], reserve: Callable[[Sequence[int]], Array]) -> list[int]:
        """Send the data of one buffer and receive data into another, as ``Swap`` in ``hoptrain.engine.partition.exchange`` describes.

        Raises:
            InputError: the connection to another machine has broken.
        """
        try:
            return self._swap(sent, sizes, reserve)
        except RuntimeError as error:  # torch raises no other class for broken connections
            text = " ".join(str(error).split())
            raise InputError(
                f"the connection to another machine is lost: one of them has ended, and has printed why (gloo: {text})"
                + explain_hint("rows")
            ) from None

    def _swap(self, sent: Array, sizes: Sequence[int], reserve: Callable[[Sequence[int]], Array]) -> list[int]:
        counts = [torch.zeros(self.size, dtype=torch.int64) for _ in range(self.size)]
        distributed.all_gather(counts, torch.tensor(sizes, dtype=torch.int64), group=self._group)
        of_all = torch.stack(counts).numpy()  # number of bytes that each rank (row) sends to each rank (column)
        came: list[int] = of_all[:, self.rank].tolist()
        received, piece = reserve(came), MOST_BYTES // self.size
        if of_all.max() <= piece:
            self._all_to_all(received, sent, came, list(sizes))
            return came
        outs, ins = split(received, came), split(sent, sizes)
        for begin in range(0, int(of_all.max()), piece):
            splits = np.clip(of_all - begin, 0, piece)
            outputs, inputs = splits[:, self.rank].tolist(), splits[self.rank].tolist()
            own = np.empty(sum(outputs), np.uint8)
            self._all_to_all(own, np.concatenate([each[begin : begin + piece] for each in ins]), outputs, inputs)
            for out, message in zip(outs, split(own, outputs), strict=True):
                out[begin : begin + piece] = message
        return came

    def _all_to_all(self, received: Array, sent: Array, outputs: list[int], inputs: list[int]) -> None:
        distributed.all_to_all_single(torch.from_numpy(received), torch.from_numpy(sent), outputs, inputs, group=self._group)
