"""Sampler of triples of a knowledge graph, with negative entities and the neighbourhoods of all ends, for link prediction by relation."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import numpy as np

from hoptrain.engine import Address, Graph, InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.datasets.triples import Triples
from hoptrain.kernels.cpu.seeds.link import uniform_negatives
from hoptrain.samplers.base import Sampler
from hoptrain.samplers.batch.minibatch import MiniBatch
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.checks import check_ids
from hoptrain.samplers.nodewise.neighbor import NeighborSampler
from hoptrain.samplers.wrappers.ends import MOST_NEGATIVES, distinct_ends
from hoptrain.samplers.wrappers.excluding import ExcludingSampler, items_of


class TripleSampler(Sampler):
    """A sampler of training triples: a batch holds B triples, K negative entities that all of them share, and the blocks that lead to all of these nodes.

    Every triple is corrupted at both ends: each of the K entities replaces its head, and then its tail. The K entities are drawn uniformly from all
    V entities, independently of the triples, so a corrupted triple may be true, or the triple itself. They depend only on the address of the batch.
    All triples of a batch share them (as in Lerer et al. 2019, "PyTorch-BigGraph"), so 2 B K corruptions need the embeddings of only 2 B + K
    entities. Without ``num_negatives`` the negatives are all entities, each once.

    The seeds of the batch are the distinct heads, tails and negatives, in order of first appearance. ``extra`` holds ``triples`` (3, B) int64: heads as
    local ids, relations, tails as local ids; and ``negatives`` (K,), local ids.

    The graph must be ``Triples.graph``. The edges of the batch's triples, in both directions, are dropped after sampling (``ExcludingSampler``), so
    that no message passes along them. Without a sampler of neighbours a batch has no blocks.
    """

    by_seeds = False

    def __init__(self, triples: Triples, sampler: NeighborSampler | None = None, num_negatives: int | None = None) -> None:
        """Check and keep the options.

        Args:
            triples: triples of the data set.
            sampler: sampler of the neighbourhoods of the seeds; None for batches without blocks.
            num_negatives: number of negative entities of a batch, at least 1; None for all entities.

        Raises:
            InputError: a number is out of range, or the sampler is not a NeighborSampler.
        """
        if num_negatives is not None and not 0 < num_negatives < MOST_NEGATIVES:
            raise InputError(
                f"num_negatives is {num_negatives}: a batch has 1 to {MOST_NEGATIVES - 1}; give a number in this range, or leave it out for all entities"
            )
        if sampler is not None and not isinstance(sampler, NeighborSampler):
            raise InputError(
                f"sampler is {sampler!r}: the layers need uniform samples, for means over the neighbours of each relation; use NeighborSampler, or "
                "leave it out"
            )
        self.sampler = sampler
        self.num_negatives = num_negatives
        self._rows = triples.splits["train"]
        self._messages = None if sampler is None else ExcludingSampler(sampler)
        self._places: Array | None = None

    @property
    def num_hops(self) -> int:
        """Number of hops of the sampler of neighbours, or 0 without one."""
        return 0 if self.sampler is None else self.sampler.num_hops

    def prepare(self, graph: Graph, seeds: Array) -> TripleSampler:
        """Return a copy with the wrapped sampler prepared and the CSC positions of the triples' edges."""
        prepared = copy(self)
        if self._messages is not None:
            prepared._messages = self._messages.prepare(graph, seeds)
            prepared._places = graph.csc_positions(np.arange(2 * len(self._rows)))
        return prepared

    def items(self, graph: Graph, seeds: Array) -> Array:
        """Return the indices (T,) of the training triples."""
        return np.arange(len(self._rows))

    def sample_on_cpu(self, graph: Graph, seeds: Array, address: Address, workspace: Workspace) -> MiniBatch:
        """Sample the batch of the triples with the indices ``seeds`` (B,); see ``Sampler.sample_on_cpu``."""
        numbers = check_ids(seeds, len(self._rows), "triple", "triple", "triples")
        heads, relations, tails = self._rows[numbers].T
        ends = np.concatenate([heads, tails, self.negatives(graph.num_nodes, address)]).astype(graph.indices.dtype)
        nodes = distinct_ends(graph.num_nodes, ends, workspace)  # distinct_ends has turned ends into local ids
        heads, tails, negatives = np.split(ends, [len(numbers), 2 * len(numbers)])
        extra = {"triples": np.stack([heads, relations, tails]), "negatives": negatives}
        if self._messages is None:
            return MiniBatch(node_ids=nodes, blocks=(), num_seeds=len(nodes), extra=extra)
        edges = np.concatenate([numbers, len(self._rows) + numbers])
        dropped = graph.csc_positions(edges) if self._places is None else self._places[edges]
        found = self._messages.sample_on_cpu(graph, items_of(nodes, dropped), address, workspace)
        return replace(found, extra=extra)

    def negatives(self, num_nodes: int, address: Address) -> Array:
        """Return the negative entities (K,) of a batch, drawn from ``num_nodes``."""
        if self.num_negatives is None:
            return np.arange(num_nodes)
        drawn = np.empty(self.num_negatives, np.int64)
        uniform_negatives(np.zeros(1, np.int64), self.num_negatives, num_nodes, address.at_hop(0), drawn)
        return drawn
