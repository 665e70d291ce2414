"""Serialisation of a batch into a header and arrays: separate in a slot of the queue, in one array of bytes in a message to another process."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.hetero_graph import Relation, relation_name
from hoptrain.samplers.batch.minibatch import (
    Block,
    HeteroMiniBatch,
    MiniBatch,
    SampledBatch,
    array_name,
    count_nodes,
    dotted,
    named,
    nested_hops,
)

EdgeIds: TypeAlias = Mapping[str, Array]
"""Edge ids of a batch, by the name of the edges' feature array in the batch; they are used to look up feature rows. Empty if CSC positions index the features
directly."""

_ARRAYS = ("indptr", "indices", "edge_ids", "weights")
_ALIGN = 8
"""Alignment of arrays in a message, and size of the number at its end, in bytes."""
_NO_FACTS = {"node_ids", "blocks", "x", "y", "seed_weights", "extra", "graph_edge_ids"}


class Header(NamedTuple):
    """The contents of a batch except its arrays: numbers, strings, and collections of these.

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


class PackedBatch(NamedTuple):
    """A batch that consists of its header and its arrays, for a worker that only adds rows: building its blocks would take longer than reading it.

    Attributes:
        header: its header.
        structure: arrays of its structure, by the names of ``SampledBatch.arrays``.
    """

    header: Header
    structure: dict[str, Array]

    @property
    def num_seeds(self) -> int:
        """Number of seeds."""
        number: int = self.header.facts["num_seeds"]
        return number

    def arrays(self) -> dict[str, Array]:
        """Return the arrays of the structure, as ``SampledBatch.arrays`` does."""
        return self.structure

    def row_ids(self) -> dict[str, Array]:
        """Return the global ids of the nodes whose rows the batch takes from each store, as ``SampledBatch.row_ids`` does."""
        nodes = {name.removeprefix("node_ids"): ids for name, ids in self.structure.items() if name.partition(".")[0] == "node_ids"}
        ids, seed_type = {f"x{kind}": own for kind, own in nodes.items()}, self.header.facts.get("seed_type", "")
        return ids if seed_type is None else ids | {"y": nodes[dotted("", seed_type)][: self.num_seeds]}

    def edge_places(self, store: str = "edge_attr") -> dict[str, Array]:
        """Return the CSC positions of the edges whose features the batch takes from a store, as ``SampledBatch.edge_places`` does."""
        num_src, is_nested = self.header.num_src, self.header.facts["nested"]
        found = {}
        for h, hop in enumerate(num_src[:1] if is_nested else num_src):
            for number, relation in enumerate(map(_relation, hop)):
                if named("edge_attr", relation) == store:
                    found[f"{store}.{h}"] = self.structure[array_name(relation, h, number, "edge_ids")]
        return found


def header_of(batch: SampledBatch | PackedBatch, **changes: Any) -> Header:
    """Return the header of a batch, with ``changes`` of fields that are not arrays."""
    if isinstance(batch, PackedBatch):
        return batch.header._replace(facts=batch.header.facts | changes)
    num_src = [{relation_name(relation): block.num_src for relation, block in hop.items()} for hop in batch.hops]
    names, values_of = _facts_of(type(batch))
    return Header(num_src, dict(zip(names, values_of(batch), strict=True)) | changes)


def written(batch: SampledBatch, edge_ids: EdgeIds | None = None) -> Array:
    """Return the structure of a batch as bytes (n,) uint8 that ``read`` takes: the arrays, the pickled header, and its length."""
    ids = edge_ids or {}
    arrays = {**batch.arrays(), **ids}
    specs = [(name, array.dtype.str, array.shape) for name, array in arrays.items()]
    head = pickle.dumps((*header_of(batch), specs, len(ids)), pickle.HIGHEST_PROTOCOL)
    parts: list[Any] = []
    for array in arrays.values():
        parts += [np.ascontiguousarray(array).data, bytes(-array.nbytes % _ALIGN)]
    return np.frombuffer(b"".join([*parts, head, len(head).to_bytes(_ALIGN, "little")]), np.uint8)


def read(message: Array) -> tuple[PackedBatch, EdgeIds]:
    """Return the batch and edge ids that ``written`` serialised; their arrays are views of ``message``."""
    length = int.from_bytes(message[-_ALIGN:], "little")
    # safe to unpickle: a process of the same loader wrote it, in anonymous memory
    num_src, facts, specs, num_ids = pickle.loads(message[-_ALIGN - length : -_ALIGN].data)
    arrays, begin = dict[str, Array](), 0
    for name, dtype, shape in specs:
        arrays[name] = array = np.ndarray(shape, dtype, message, begin)
        begin += array.nbytes + -array.nbytes % _ALIGN
    ids = dict([arrays.popitem() for _ in range(num_ids)])
    return PackedBatch(Header(num_src, facts), arrays), ids


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
