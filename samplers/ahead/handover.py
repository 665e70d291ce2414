"""From the process that samples for a machine to those that make its ranks' batches: by memory without a name, places for steps that each is used again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from hoptrain.engine import InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.placement.meeting import Meeting
from hoptrain.engine.queue.message_slot import SharedMessageSlot
from hoptrain.engine.storage.shared_rows import SharedRows, tag_of
from hoptrain.samplers.batch.hetero_minibatch import HeteroMiniBatch
from hoptrain.samplers.batch.minibatch import Block, MiniBatch
from hoptrain.samplers.batch.sampled import SampledBatch

EdgeIds = Mapping[str, Array]
"""Of edges whose features a batch takes the rows of these, by the name that the features have in it; nothing where places in the graph are rows."""


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Handed:
    """Where a rank's batches come from that another process sampled.

    Attributes:
        boxes: the rank's places.
        shared: tells which steps are there.
        rank: number of the rank among those of its machine.
        patience_s: how long to wait for a step.
    """

    boxes: Sequence[SharedMessageSlot]
    shared: SharedRows
    rank: int
    patience_s: float

    def batch(self, run: int, step: int) -> tuple[SampledBatch, EdgeIds]:
        """The batch of a step, without its address.

        Raises:
            WorkerError: as ``SharedRows.wait_until_ready``.
            InputError: another step is at its place.
        """
        self.shared.wait_until_ready(self.rank, run, step, self.patience_s)
        tag = tag_of(run, step)
        box = self.boxes[tag % len(self.boxes)]
        parts = box.get()[1]
        if box.number != tag:  # now, since it may have been overwritten meanwhile
            raise InputError(f"the sample of step {step} is not there any more: its loader was iterated anew; take a new iterator")
        return read(parts)


def put(boxes: Sequence[SharedMessageSlot], tag: int, message: Sequence[Array]) -> None:
    """Hand over what ``written`` made of a step's batch, in the place of a step that nobody asks for any more: who still reads that one is told."""
    box = boxes[tag % len(boxes)]
    box.put(0, [])
    box.put(tag, message)


def boxes_of(num_places: int, rank: int, ranks: Sequence[int], meeting: Meeting | None) -> list[list[SharedMessageSlot]]:
    """Of each of ``ranks``, those of this machine, the places of its samples: the first one makes them, the others find them."""
    own = [[SharedMessageSlot.make() for _ in range(num_places)] for _ in ranks] if rank == ranks[0] else []
    paths = [[box.path for box in boxes] for boxes in own]
    told = meeting.exchange("where its samples lie", paths)[ranks[0]] if meeting else paths
    return own or [[SharedMessageSlot(path) for path in boxes] for boxes in told]


def written(batch: SampledBatch, edge_ids: EdgeIds | None = None) -> list[Array]:
    """A batch's structure as parts (n,) uint8 of a message; ``read`` makes it again."""
    arrays, ids = batch.arrays(), edge_ids or {}
    head = {
        "arrays": [[name, array.dtype.str, array.shape] for name, array in chain(arrays.items(), ids.items())],
        "num_ids": len(ids),
        "fields": _fields(batch),
    }
    as_bytes = np.frombuffer(json.dumps(head).encode(), np.uint8)
    return [as_bytes, *(np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in chain(arrays.values(), ids.values()))]


def _fields(batch: Any) -> dict[str, Any]:
    """What a batch has besides its arrays."""
    if isinstance(batch, HeteroMiniBatch):
        blocks: list[Any] = [[[relation, block.num_src] for relation, block in hop.items()] for hop in batch.blocks]
        own = {"seed_counts": batch.seed_counts, "seed_type": batch.seed_type, "seed_relation": batch.seed_relation}
    else:
        blocks, own = [block.num_src for block in batch.blocks], {}
    return {"blocks": blocks, "num_seeds": batch.num_seeds, "nested": batch.nested, **own}


def _header(blocks: Sequence[Any], **fields: Any) -> MiniBatch | HeteroMiniBatch:
    """The batch of ``_fields``, without its arrays."""
    empty = Block(indptr=None, indices=None, edge_ids=None, num_src=0)
    if "seed_counts" in fields:
        hops = tuple({tuple(relation): replace(empty, num_src=number) for relation, number in hop} for hop in blocks)
        relation = fields.pop("seed_relation")
        return HeteroMiniBatch(node_ids={}, blocks=hops, seed_relation=relation and tuple(relation), **fields)
    return MiniBatch(node_ids=None, blocks=tuple(replace(empty, num_src=number) for number in blocks), **fields)


def read(parts: Sequence[Array]) -> tuple[SampledBatch, EdgeIds]:
    """What was ``written``, whose arrays are views of the parts."""
    head = json.loads(parts[0].tobytes())
    found = [(name, part.view(dtype).reshape(shape)) for (name, dtype, shape), part in zip(head["arrays"], parts[1:], strict=True)]
    number = len(found) - head["num_ids"]
    return _header(**head["fields"]).filled(dict(found[:number])), dict(found[number:])
