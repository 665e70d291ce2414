"""What a sampler of typed edges makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hoptrain.engine.arrays import Array
from hoptrain.engine.hetero_graph import Relation
from hoptrain.samplers.batch.minibatch import Block
from hoptrain.samplers.batch.transfer import copies_to


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class HeteroMiniBatch:
    """Seeds of one type, and for every hop a block of each relation. The arrays are NumPy arrays, or torch tensors after ``.to(device)``.

    Global and local ids count within a type: local id i of type t is the vertex ``node_ids[t][i]``. A block of relation (s, name, d) has the
    first ``num_dst`` nodes of type d as destinations and the first ``num_src`` nodes of type s as sources; only where s is d are the
    destinations among the sources.

    Attributes:
        node_ids: (S_t,) global ids of each type's nodes: the seeds first, then every other vertex in order of first appearance.
        blocks: one dictionary a hop, in the order in which a model applies them; the last one's destinations of the seeds' type are the seeds.
        seed_type: the type of the seeds.
        num_seeds: B.
        x: features of the nodes, by type; empty where none were gathered.
        y: labels of the seeds, or None.
        seed: the user's seed; with epoch and batch it is the address of all the batch's random numbers.
        epoch: the epoch it belongs to.
        batch: its number within the epoch.
    """

    node_ids: dict[str, Any]
    blocks: tuple[dict[Relation, Block], ...]
    seed_type: str
    num_seeds: int
    x: dict[str, Any] = field(default_factory=dict)
    y: Any = None
    seed: int = 0
    epoch: int = 0
    batch: int = 0

    @property
    def seeds(self) -> Any:
        """(B,) global ids of the seeds."""
        return self.node_ids[self.seed_type][: self.num_seeds]

    @property
    def num_edges(self) -> int:
        """Sampled edges of all hops and relations."""
        return sum(block.num_edges for hop in self.blocks for block in hop.values())

    def to(self, device: Any) -> HeteroMiniBatch:
        """The mini-batch as torch tensors on ``device``; see ``MiniBatch.to``."""
        with copies_to(device) as copy:
            return self.map(copy)

    def map(self, function: Callable[[Any], Any]) -> HeteroMiniBatch:
        """With ``function`` of each array in its place."""
        return replace(
            self,
            node_ids={name: function(ids) for name, ids in self.node_ids.items()},
            blocks=tuple({relation: block.map(function) for relation, block in hop.items()} for hop in self.blocks),
            x={name: function(rows) for name, rows in self.x.items()},
            y=None if self.y is None else function(self.y),
        )

    def arrays(self) -> dict[str, Array]:
        """The structure's arrays by name, for the queue; ``from_arrays`` puts them together again."""
        arrays = {f"node_ids.{name}": ids for name, ids in self.node_ids.items()}
        for h, hop in enumerate(self.blocks):
            for number, block in enumerate(hop.values()):
                arrays |= {f"block.{h}.{number}.{name}": array for name, array in block.arrays().items()}
        return arrays

    @classmethod
    def from_arrays(
        cls, arrays: dict[str, Array], *, num_src: Sequence[Sequence[int]], relations: Sequence[Relation], **facts: Any
    ) -> HeteroMiniBatch:
        """A mini-batch from ``arrays()`` (and ``x.TYPE`` and ``y`` beside them), each block's number of sources and the other fields."""
        of: dict[str, dict[str, Array]] = {"node_ids": {}, "x": {}, "block": {}, "y": {}}
        for name, array in arrays.items():
            kind, _, key = name.partition(".")
            of[kind][key] = array
        of_block: dict[tuple[int, int], dict[str, Array]] = {}
        for key, array in of["block"].items():
            h, number, name = key.split(".")
            of_block.setdefault((int(h), int(number)), {})[name] = array
        blocks = tuple(
            {relation: Block(num_src=sizes[i], **of_block[h, i]) for i, relation in enumerate(relations)} for h, sizes in enumerate(num_src)
        )
        return cls(node_ids=of["node_ids"], blocks=blocks, x=of["x"], y=of["y"].get(""), **facts)
