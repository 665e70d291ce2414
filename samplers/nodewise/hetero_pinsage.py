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
    """A PinSAGE sampler among the nodes of one type, for example items that share users; each step of a walk follows a whole metapath.

    Along (item, user, item) a walk goes from an item to a user by a uniformly drawn in-edge, and in the same way from the user to an item. It visits
    only that item. After each visit the walk ends with probability ``restart``; it also ends after ``walk_length`` visits or at a node without in-edges.
    DGL's ``PinSAGESampler`` differs in two ways: its walks follow edges forward, and it counts visits to the walk's own root, which are left out here.

    A batch is a ``MiniBatch`` of nodes of the type at the metapath's ends, with their features and labels. Weights are the shares of the counted
    visits and sum to 1 at every destination that has neighbours, so PinSAGE's importance pooling is the weighted sum. ``edge_ids`` are -1.
    """

    by_degree = False

    def __init__(
        self, num_neighbors: Sequence[int], metapath: Sequence[str], num_walks: int = 10, walk_length: int = 2, restart: float = 0.5
    ) -> None:
        """Check and keep the options.

        Args:
            num_neighbors: neighbours taken for each node, one number for each hop, from the seeds outward.
            metapath: node types along the metapath, such as [item, user, item], with equal first and last type; or its steps as relations,
                ``source:name:destination``, if several relations join two types.
            num_walks: number of walks from each node.
            walk_length: maximum number of visits of a walk.
            restart: probability in [0, 1) that a walk ends after a visit.

        Raises:
            InputError: there is no hop, a number is out of range, or the metapath does not end at the type where it begins.
        """
        super().__init__(num_neighbors, num_walks, walk_length, restart)
        self.metapath: tuple[str, ...] = tuple(metapath)
        self.stride: int = len(self.metapath) - (":" not in "".join(self.metapath[:1]))
        if self.stride < 1 or self.metapath[0].split(":")[0] != self.metapath[-1].split(":")[-1]:
            raise InputError(
                f"metapath {list(metapath)} does not lead back: it must end at the type where it begins; give for instance [item, user, item]"
            )
        self.seed_type: str = self.metapath[0].split(":")[0]
        self._walked = OncePerGraph[Graph]()

    def check_data(self, data: Dataset | HeteroDataset) -> None:
        """Raise ``InputError`` for a homogeneous data set, or one whose seeds are of another type than the metapath's ends."""
        if not isinstance(data, HeteroDataset):
            raise InputError(
                f"HeteroPinSAGESampler on {data.name}, a homogeneous data set: it samples a HeteroDataset; make one, or use PinSAGESampler"
            )
        if self.seed_type != data.seed_type:
            raise InputError(
                f"metapath {list(self.metapath)} ends at {self.seed_type}: the seeds of {data.name} are {data.seed_type}s; "
                "give a metapath that begins and ends there"
            )

    def prepare(self, graph: Any, seeds: Array) -> HeteroPinSAGESampler:
        """Return this sampler, after it has joined the relations of the metapath into the graph for its walks.

        Raises:
            InputError: the graph lacks a type or relation of the metapath.
        """
        self.graph_of(graph)
        return self

    def graph_of(self, graph: Any) -> Graph:
        """Return the homogeneous graph that the walks follow.

        Its nodes are those of the types along the metapath, one type after another, that of the seeds first. Its edges are those of the metapath's steps.
        """
        return self._walked.get(graph, self._along)

    def stores_of(self, data: Any) -> dict[str, Rows]:
        """Return the tables of features and labels of the seeds' type."""
        stores = data.stores()
        return {name: stores[key] for name, key in (("x", f"x.{self.seed_type}"), ("y", "y")) if key in stores}

    def sample_on_cpu(self, graph: Any, seeds: Array, address: Address, workspace: Workspace) -> MiniBatch:
        """Sample one mini-batch; see ``Sampler.sample_on_cpu``."""
        return super().sample_on_cpu(self.graph_of(graph), check_nodes(seeds, graph.num_nodes[self.seed_type]), address, workspace)

    def _along(self, graph: HeteroGraph) -> Graph:
        steps = [graph.relations[relation] for relation in reversed(steps_of(graph, self.metapath))]
        begins = np.cumsum([0, *(columns.num_nodes for columns in steps)])
        sources = [columns.indices + np.int64(begins[(k + 1) % len(steps)]) for k, columns in enumerate(steps)]
        degrees = np.concatenate([np.diff(columns.indptr) for columns in steps])
        return Graph(np.concatenate([[0], np.cumsum(degrees)]), np.concatenate(sources))
