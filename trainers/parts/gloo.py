"""An exchange by gloo's collectives, which run on host memory over TCP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import distributed

from hoptrain.engine import InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.errors import see
from hoptrain.engine.partition.exchange import NOTHING

MOST_BYTES = 1 << 29
"""Of one collective, sent or received: counts are 32 bits wide below it."""


class GlooExchange:
    """One of a process group that exchange: counts first, then what they count, in as many pieces as all need.

    Attributes:
        rank: in the group.
        size: of the group.
    """

    def __init__(self, group: Any = None) -> None:
        """Take a group of gloo's; by default that of this process."""
        self._group = group
        self.rank, self.size = distributed.get_rank(group), distributed.get_world_size(group)

    def exchange(self, to: Sequence[Array]) -> list[Array]:
        """See ``hoptrain.engine.partition.exchange.Exchange``."""
        try:
            return self._exchange(to)
        except RuntimeError as error:  # torch has no other class for what its connections do
            text = " ".join(str(error).split())
            raise InputError(
                f"rows of other machines do not come any more: one of them has ended, and says why (gloo: {text})" + see("rows")
            ) from None

    def _exchange(self, to: Sequence[Array]) -> list[Array]:
        counts = [torch.zeros(self.size, dtype=torch.int64) for _ in range(self.size)]
        distributed.all_gather(counts, torch.tensor([len(array) for array in to]), group=self._group)
        sizes = torch.stack(counts).numpy()  # of what each sends to each
        piece = MOST_BYTES // self.size
        got: list[list[Array]] = []
        for begin in range(0, int(sizes.max()), piece):
            splits = np.clip(sizes - begin, 0, piece)
            sent = [array[begin : begin + piece] for array in to]
            received = torch.empty(int(splits[:, self.rank].sum()), dtype=torch.uint8)
            inputs, outputs = splits[self.rank].tolist(), splits[:, self.rank].tolist()
            distributed.all_to_all_single(received, torch.from_numpy(np.concatenate(sent)), outputs, inputs, group=self._group)
            got.append(np.split(received.numpy(), np.cumsum(outputs)[:-1]))
        return [np.concatenate(pieces) for pieces in zip(*got, strict=True)] if len(got) > 1 else got[0] if got else [NOTHING] * self.size
