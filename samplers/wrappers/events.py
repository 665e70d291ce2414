"""Sampler and schedule of timestamped events, with negatives and the latest neighbours from before the step, for temporal link prediction."""

from __future__ import annotations

import numpy as np

from hoptrain.engine import Address, Graph, InputError, Schedule
from hoptrain.engine.arrays import Array
from hoptrain.engine.datasets.events import Events
from hoptrain.kernels.cpu.seeds.link import uniform_negatives
from hoptrain.samplers.base import Sampler
from hoptrain.samplers.batch.minibatch import Block, MiniBatch
from hoptrain.samplers.buffers.frontier import Frontier
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.nodewise.temporal import TemporalSampler
from hoptrain.samplers.wrappers.ends import distinct_ends


class EventSchedule(Schedule):
    """A schedule of the events of a split in the order of time, the same in every epoch. A step has consecutive events, divided among the ranks.

    The items of a batch are four indices of events: the range [begin, end) of the step, and the range [begin, end) of this rank's part.
    """

    def batch_items(self, epoch: int, step: int) -> Array:
        """Return the items (4,) of this rank's batch at a step."""
        own = super().batch_items(epoch, step)
        begin, end = self._step_bounds(step)
        return np.array([self.items[begin], self.items[end - 1] + 1, own[0], own[-1] + 1])


class EventSampler(Sampler):
    """A sampler of events: a batch holds the source and destination of each event, k negative destinations, and the latest neighbours of all these.

    The neighbours of a node are those of its last ``num_neighbors`` events before the *step*, which all ranks share: no event of the batch,
    or later, is read (PyG's ``LastNeighborLoader``, without a state: Rossi et al. 2020, "Temporal graph networks for deep learning on dynamic
    graphs"). The k negatives of an event are drawn independently and uniformly from the ``dst_range`` of the data, and may be its own
    destination. They depend only on the seed, the epoch and the event, not on the batch or the rank.

    The graph must be ``Events.graph``. The items, which ``sample`` takes as seeds, are those of ``EventSchedule``. The seeds of
    the batch are the distinct ends, in order of first appearance; the block leads to them from the neighbours. ``extra`` holds ``pairs``
    (2, P + P k), sources above destinations as local ids, the events first and then the negatives of each in turn; ``labels`` (P + P k,)
    float32, 1 for the events; ``events`` (M,) int64, the event of each edge; and ``step`` (2,), the range [begin, end) of the step.
    """

    by_seeds = False

    def __init__(self, events: Events, num_neighbors: int = 10, num_negatives: int = 1) -> None:
        """Check and keep the options.

        Args:
            events: events of the data set.
            num_neighbors: number of latest events of a node whose other ends are its neighbours.
            num_negatives: number of negatives for each event, at least 1.

        Raises:
            InputError: a number is out of range.
        """
        if num_negatives < 1:
            raise InputError(f"num_negatives is {num_negatives}: each event needs at least one negative; give 1 or more")
        if num_neighbors < 1:
            raise InputError(f"num_neighbors is {num_neighbors}: a node needs at least its last event; give 1 or more")
        self.num_neighbors = num_neighbors
        self.num_negatives = num_negatives
        self._neighbors = TemporalSampler([num_neighbors], strategy="recent")
        self._ends = np.stack([events.src, events.dst])
        self._destinations = events.destinations

    @property
    def num_hops(self) -> int:
        """Number of hops, 1."""
        return 1

    def prepare(self, graph: Graph, seeds: Array) -> EventSampler:
        """Return this sampler, after a check that the graph has times."""
        self._neighbors.prepare(graph, seeds)
        return self

    def sample_on_cpu(self, graph: Graph, seeds: Array, address: Address, workspace: Workspace) -> MiniBatch:
        """Sample the batch of the items ``seeds`` (4,); see ``Sampler.sample_on_cpu``.

        Raises:
            InputError: the items are not a range of events within a step, or the graph has no times.
        """
        begin, end, first, last = self._checked(seeds)
        if graph.times is None:
            raise InputError("the graph has no times: EventSampler samples the graph of Events.graph(); use that one")
        pairs = self.pairs(np.arange(first, last), graph, address)
        ends = distinct_ends(graph.num_nodes, pairs, workspace)
        found = self._neighbors.sample_on_cpu(graph, ends, address, workspace, times=np.full(len(ends), begin - 1))
        (block,) = found.blocks
        sources = found.node_ids[block.indices]
        # In the temporal batch each seed has a tree of its own; this batch has each node once.
        frontier = Frontier.of_seeds(graph, ends, workspace)
        frontier.relabel(sources)
        labels = np.zeros(pairs.shape[1], np.float32)
        labels[: last - first] = 1
        return MiniBatch(
            node_ids=frontier.nodes(),
            blocks=(Block(indptr=block.indptr, indices=sources, edge_ids=block.edge_ids, num_src=frontier.num_nodes),),
            num_seeds=len(ends),
            extra={"pairs": pairs, "labels": labels, "events": graph.times[block.edge_ids], "step": np.array([begin, end])},
        )

    def pairs(self, events: Array, graph: Graph, address: Address) -> Array:
        """Return the ends (2, P + P k) of ``events`` (P,) and of their negatives, as global ids."""
        drawn = np.empty(len(events) * self.num_negatives, np.int64)
        uniform_negatives(events, self.num_negatives, len(self._destinations), address._replace(batch=0).at_hop(0), drawn)
        src, dst = self._ends[:, events]
        others = np.stack([np.repeat(src, self.num_negatives), self._destinations[drawn]])
        return np.concatenate([np.stack([src, dst]), others], axis=1).astype(graph.indices.dtype)

    def _checked(self, items: Array) -> tuple[int, int, int, int]:
        items = np.asarray(items)
        num_events = self._ends.shape[1]
        if items.shape == (4,):
            begin, end, first, last = map(int, items)
            if 0 <= begin <= first < last <= end <= num_events:
                return begin, end, first, last
        raise InputError(
            f"items are {items.tolist()[:8]}: they must be the ranges of a step and of the batch within it, in the order of time, among "
            f"{num_events:,} events; use an EventSchedule, without shuffling"
        )
