"""PinSAGE's neighbourhoods in a heterogeneous graph, by random walks along a metapath."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hoptrain.engine import Address, Dataset, Graph, HeteroDataset, InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.features.quantized import Rows
from hoptrain.engine.hetero_graph import HeteroGraph
from hoptrain.engine.transforms.metapaths import steps_of
from hoptrain.samplers.batch.minibatch import MiniBatch
from hoptrain.samplers.buffers.once import OncePerGraph
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.checks import check_nodes
from hoptrain.samplers.nodewise.pinsage import PinSAGESampler


class HeteroPinSAGESampler(PinSAGESampler):
    """``PinSAGESampler`` among the nodes of one type, such as items that the same users have: a step of a walk goes once along a metapath.

    Along (item, user, item) a walk at an item goes to a user, by a uniformly drawn one of the item's in-edges, and from there to an item, likewise, which is
    visited; after each visit the walk ends with probability ``restart``, and in any case after ``walk_length`` visits, or where there is no in-edge. As DGL's
    ``PinSAGESampler``, whose walks follow edges where these go against them, and which keeps visits to the walk's own root: here they are left out.

    A batch is a plain ``MiniBatch`` of the nodes of the metapath's ends, with their features and labels. Weights are the shares of the counted
    visits, whose sum is 1 at every destination that has neighbours: PinSAGE's importance pooling is the sum by them. ``edge_ids`` are -1.
    """

    by_degree = False

    def __init__(
        self, num_neighbors: Sequence[int], metapath: Sequence[str], num_walks: int = 10, walk_length: int = 2, restart: float = 0.5
    ) -> None:
        """State the hops and the walks.

        Args:
            num_neighbors: as ``PinSAGESampler``.
            metapath: the types along it, such as [item, user, item], the first one and the last one alike; or, where several relations join two
                types, its steps as relations, ``source:name:destination``.
            num_walks: walks from each node.
            walk_length: most visits of a walk.
            restart: probability in [0, 1) that a walk ends after a visit.

        Raises:
            InputError: as ``PinSAGESampler``; a metapath that does not lead back.
        """
        super().__init__(num_neighbors, num_walks, walk_length, restart)
        self.metapath: tuple[str, ...] = tuple(metapath)
        self.stride: int = len(self.metapath) - (":" not in "".join(self.metapath[:1]))
        if self.stride < 1 or self.metapath[0].split(":")[0] != self.metapath[-1].split(":")[-1]:
            raise InputError(f"metapath {list(metapath)} does not lead back: walks visit the type where it begins; give [item, user, item]")
        self.seed_type: str = self.metapath[0].split(":")[0]
        self._walked = OncePerGraph[Graph]()

    def check_data(self, data: Dataset | HeteroDataset) -> None:
        """Refuse a plain data set, or one whose seeds are of another type."""
        if not isinstance(data, HeteroDataset):
            raise InputError(f"HeteroPinSAGESampler on {data.name}, which is no HeteroDataset: make one, or take PinSAGESampler")
        if self.seed_type != data.seed_type:
            raise InputError(
                f"metapath {list(self.metapath)} ends at {self.seed_type}, the seeds of {data.name} are {data.seed_type}s: correct it"
            )

    def prepare(self, graph: Any, seeds: Array) -> HeteroPinSAGESampler:
        """With what walks go along, made of the graph's relations.

        Raises:
            InputError: the metapath is none of the graph's.
        """
        self.graph_of(graph)
        return self

    def graph_of(self, graph: Any) -> Graph:
        """See ``Sampler.graph_of``: the types along the metapath one after another, the seeds' first; a step leads from each to the one before it."""
        return self._walked.get(graph, self._along)

    def stores_of(self, data: Any) -> dict[str, Rows]:
        """See ``Sampler.stores_of``: those of the seeds' type."""
        stores = data.stores()
        return {name: stores[key] for name, key in (("x", f"x.{self.seed_type}"), ("y", "y")) if key in stores}

    def sample_on_cpu(self, graph: Any, seeds: Array, address: Address, workspace: Workspace) -> MiniBatch:
        """Sample one mini-batch; see ``Sampler.sample_on_cpu``."""
        return super().sample_on_cpu(self.graph_of(graph), check_nodes(seeds, graph.num_nodes[self.seed_type]), address, workspace)

    def _along(self, graph: HeteroGraph) -> Graph:
        """See ``graph_of``."""
        steps = [graph.relations[relation] for relation in reversed(steps_of(graph, self.metapath))]
        begins = np.cumsum([0, *(columns.num_nodes for columns in steps)])
        sources = [columns.indices + np.int64(begins[(k + 1) % len(steps)]) for k, columns in enumerate(steps)]
        degrees = np.concatenate([np.diff(columns.indptr) for columns in steps])
        return Graph(np.concatenate([[0], np.cumsum(degrees)]), np.concatenate(sources))
