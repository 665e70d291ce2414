"""Ripple walks (Bai, Ren, Zhang 2021, "Ripple walk training: a subgraph-based training framework for large and deep graph neural network")."""

from __future__ import annotations

from hoptrain.engine import Graph, InputError
from hoptrain.engine.arrays import Array
from hoptrain.kernels.cpu.address import HopAddress
from hoptrain.kernels.cpu.subgraphs import ripple as kernels
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.subgraphs.induced import MAX_ATTEMPTS, Members, SingleSubgraphSampler, find_members


class RippleWalkSampler(SingleSubgraphSampler):
    """A ripple walk sampler: a batch is a subgraph that grows from one node of the split, and takes a random share of its neighbours in each step.

    The first node is uniform in the split. In each step the share ``ratio`` of the in-neighbours of the subgraph (rounded down, at least one) is
    added, every subset equally likely, until it has ``size`` nodes. If no neighbour is left, it continues from another node of the split; it
    stays smaller if 100 such nodes in a row are already in it. Neither losses nor edges have weights, as in the paper. A batch is one
    subgraph; see ``SingleSubgraphSampler``.

    Examples:
        >>> from hoptrain import RippleWalkSampler, SampleLoader, load_dataset
        >>> batch = next(iter(SampleLoader(load_dataset("digits-knn"), RippleWalkSampler(200), batch_size=1)))
        >>> len(batch.node_ids), batch.num_seeds, batch.num_edges  # distinct nodes, seeds among them, edges between the nodes
        (200, 118, 1146)
    """

    def __init__(self, size: int, ratio: float = 0.5, num_layers: int = 2, num_subgraphs: int | None = None) -> None:
        """Check and keep the options.

        Args:
            size: maximum number of nodes of a subgraph.
            ratio: share of the neighbours taken in a step, in (0, 1]: near 0 the subgraph grows by single nodes, with 1 by whole hops.
            num_layers: number of layers of the model, and of blocks of a batch.
            num_subgraphs: subgraphs of an epoch; by default the number of nodes / ``size``, rounded up.

        Raises:
            InputError: a number is out of range.
        """
        super().__init__(num_layers)
        if size < 1 or (num_subgraphs is not None and num_subgraphs < 1):
            raise InputError(f"size is {size} and num_subgraphs {num_subgraphs}: both must be at least 1; give 1 or more")
        if not 0 < ratio <= 1:
            raise InputError(f"ratio is {ratio}: it must be a share of the neighbours in (0, 1]; give for instance 0.5")
        self.size = size
        self.ratio = ratio
        self.num_subgraphs = num_subgraphs

    def prepare(self, graph: Graph, seeds: Array) -> RippleWalkSampler:
        """Return a copy for a split, with the number of subgraphs of an epoch."""
        other = self.prepared_copy(graph, seeds)
        other.num_subgraphs = self.num_subgraphs or -(-graph.num_nodes // self.size)
        return other

    def members(self, graph: Graph, items: Array, address: HopAddress, workspace: Workspace) -> Members:
        """Return the nodes of the subgraph that the random numbers at ``address`` give."""
        self.check_item(items)
        num_nodes, dtype = graph.num_nodes, graph.indices.dtype
        workspace.table.start(num_nodes, num_nodes)
        ripple = kernels.Ripple(
            seen=workspace.array("found", num_nodes + 1, dtype),
            waiting=workspace.array("waiting", num_nodes, dtype),
            sources=workspace.array("sources", kernels.CHUNK, dtype),
        )
        drawn = workspace.array("drawn", min(self.size, num_nodes), dtype)
        ratio, roots = self.ratio_units, self.split.seeds
        number = kernels.grow(
            graph.indptr, graph.indices, roots, len(drawn), ratio, MAX_ATTEMPTS, address, workspace.table.view(), ripple, drawn
        )
        return find_members(graph, drawn[:number], self.split.is_seed, workspace)

    @property
    def ratio_units(self) -> int:
        """``ratio`` in units of 2**-32."""
        return round(self.ratio * (1 << kernels.RATIO_BITS))
