"""Serialisation of a batch into a header and arrays: separate in a slot of the queue, concatenated in a message to another process."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.hetero_graph import Relation, relation_name
from hoptrain.samplers.batch.minibatch import Block, HeteroMiniBatch, MiniBatch, SampledBatch, array_name, count_nodes, named, nested_hops

EdgeIds: TypeAlias = Mapping[str, Array]
"""Edge ids of a batch, by the name of the edges' feature array in the batch; they are used to look up feature rows. Empty if CSC positions index the features
directly."""

_ARRAYS = ("indptr", "indices", "edge_ids", "weights")
_NO_FACTS = {"node_ids", "blocks", "x", "y", "seed_weights", "extra", "graph_edge_ids"}


class Header(NamedTuple):
    """The contents of a batch except its arrays, in types that JSON supports.

    Attributes:
        num_src: for each hop the number of sources by relation (``relation_name``).
        facts: other fields of the batch, by name.
    """

    num_src: list[dict[str, int]]
    facts: dict[str, Any]

    def filled(self, arrays: Mapping[str, Any]) -> MiniBatch | HeteroMiniBatch:
        """Return the batch of this header and ``arrays``: those of ``SampledBatch.arrays``, and rows by the names of their stores."""
        facts = self.facts
        kind = HeteroMiniBatch if "seed_counts" in facts else MiniBatch
        of: dict[str, dict[str, Any]] = {"node_ids": {}, "extra": {}, "x": {}}
        of_seeds = {}
        for name, array in arrays.items():
            what, _, key = name.partition(".")
            if what in of:
                of[what][key] = array
            elif name in kind.of_seeds:
                of_seeds[name] = array
        num_src = [{_relation(name): number for name, number in hop.items()} for hop in self.num_src]
        hops = [_hop_of(arrays, h, hop) for h, hop in enumerate(num_src[:1] if facts["nested"] else num_src)]
        if facts["nested"]:
            hops = list(nested_hops(hops[0], count_nodes(facts.get("seed_counts") or {"": facts["num_seeds"]}, num_src)))
        nodes, x = kind.joined(of["node_ids"]), kind.joined(of["x"])
        return kind(node_ids=nodes, blocks=tuple(map(kind.joined, hops)), x=x, extra=of["extra"], **of_seeds, **facts)


def header_of(batch: SampledBatch, **changes: Any) -> Header:
    """Return the header of a batch, with ``changes`` of fields that are not arrays."""
    num_src = [{relation_name(relation): block.num_src for relation, block in hop.items()} for hop in batch.hops]
    names, values_of = _facts_of(type(batch))
    return Header(num_src, dict(zip(names, values_of(batch), strict=True)) | changes)


def written(batch: SampledBatch, edge_ids: EdgeIds | None = None) -> list[Array]:
    """Return the structure of a batch as a list of byte arrays (n,) uint8 that ``read`` takes."""
    ids = edge_ids or {}
    arrays = [*batch.arrays().items(), *ids.items()]
    head = [header_of(batch), [[name, array.dtype.str, array.shape] for name, array in arrays], len(ids)]
    as_bytes = np.frombuffer(json.dumps(head, default=int).encode(), np.uint8)  # default=int converts NumPy's integers
    return [as_bytes, *(np.ascontiguousarray(array).reshape(-1).view(np.uint8) for _, array in arrays)]


def read(parts: Sequence[Array]) -> tuple[SampledBatch, EdgeIds]:
    """Return the batch and edge ids that ``written`` serialised; their arrays are views of ``parts``."""
    (num_src, facts), specs, num_ids = json.loads(parts[0].tobytes())
    found = [(name, part.view(dtype).reshape(shape)) for (name, dtype, shape), part in zip(specs, parts[1:], strict=True)]
    facts = {name: tuple(fact) if isinstance(fact, list) else fact for name, fact in facts.items()}
    number = len(found) - num_ids
    return Header(num_src, facts).filled(dict(found[:number])), dict(found[number:])


@cache
def _facts_of(kind: type[SampledBatch]) -> tuple[list[str], Callable[[SampledBatch], tuple[Any, ...]]]:
    """Return the names of the batch class's fields that are not arrays, and a function that returns their values for a batch."""
    names = [own.name for own in fields(kind) if own.name not in _NO_FACTS]
    return names, attrgetter(*names)


def _relation(name: str) -> Relation:
    source, kind, destination = name.split(":")
    return source, kind, destination


def _hop_of(arrays: Mapping[str, Any], hop: int, num_src: Mapping[Relation, int]) -> dict[Relation, Block]:
    """Return the blocks of a hop by relation, from the arrays of a batch."""
    made = {}
    for number, (relation, own) in enumerate(num_src.items()):
        structure: dict[str, Any] = {name: arrays.get(array_name(relation, hop, number, name)) for name in _ARRAYS}
        made[relation] = Block(num_src=own, edge_attr=arrays.get(f"{named('edge_attr', relation)}.{hop}"), **structure)
    return made
