"""DGL's block samplers over hoptrain's samplers: ``NeighborSampler``, ``MultiLayerFullNeighborSampler`` and ``LaborSampler``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hoptrain.dgl.graphs import as_ids, convert, is_hetero, on_host
from hoptrain.dgl.hetero import get_hetero_sampler, items_by_type
from hoptrain.dgl.outputs import as_blocks, dgl
from hoptrain.dgl.sampler import Sampled, as_fanouts
from hoptrain.engine import InputError
from hoptrain.samplers import HeteroLaborSampler, HeteroSampler, Sampler
from hoptrain.samplers import LaborSampler as Labor
from hoptrain.samplers import NeighborSampler as Neighbor
from hoptrain.samplers.batch.copies import distinct
from hoptrain.samplers.wrappers.excluding import ExcludingSampler, items_of


class BlockSampler(Sampled):
    """A mixin that makes a DGL block sampler sample with hoptrain. DGL's code does everything else."""

    edge_dir: str
    prefetch_node_feats: Any
    output_device: Any
    weighted = False

    def features(self) -> Any:
        """Return the names of the input nodes' features to gather; for heterogeneous graphs a dictionary by node type."""
        return self.prefetch_node_feats

    def sample_blocks(self, g: Any, seed_nodes: Any, exclude_eids: Any = None) -> tuple[Any, Any, list[Any]]:
        """Return the input nodes, the seeds, and a block for each layer, without the edges ``exclude_eids``. In heterogeneous graphs ids are by type.

        Raises:
            InputError: a seed or an edge does not exist.
        """
        if is_hetero(on_host(g)):
            items, copies = items_by_type(g, self.of(g)[1], seed_nodes, exclude_eids)
        else:
            seeds, found = distinct(as_ids(seed_nodes))
            excluded = None if exclude_eids is None else self.of(g)[1].csc_positions(as_ids(exclude_eids))
            items, copies = items_of(seeds, excluded), {} if found is None else {"": found}
        nodes, blocks = as_blocks(g, self.batch(g, items), copies, weighted=self.weighted)
        self.keep({} if copies else self.gathered(g), self.output_device)  # gathered rows lack copies for repeated seeds
        if self.output_device is None:
            return nodes, seed_nodes, blocks
        nodes, seed_nodes = (move_to(ids, self.output_device) for ids in (nodes, seed_nodes))
        return nodes, seed_nodes, [block.to(self.output_device) for block in blocks]

    def assign_lazy_features(self, result: Any) -> Any:
        """Mark the features that DGL fetches later, except for features that workers have gathered."""
        made = super().assign_lazy_features(result)  # type: ignore[misc]  # defined by the DGL class, the next base
        for kind, rows in self.rows.items():
            made[2][0].srcnodes[kind].data.update(rows)
        return made


class NeighborSampler(BlockSampler, dgl.dataloading.NeighborSampler):
    """A drop-in replacement for ``dgl.dataloading.NeighborSampler`` with the same arguments and results. ``fused`` has no effect.

    With ``edge_dir="out"`` the sources of a block are the nodes at the other end of the edges that leave its destinations.
    """

    fanouts: Any
    prob: str | None
    replace: bool

    def of(self, g: Any) -> tuple[Sampler[Any, Any], Any]:
        """Return hoptrain's sampler, prepared for ``g``, and the converted graph."""
        if is_hetero(g):
            options = {"replace": self.replace, "weighted": self.prob is not None}
            return get_hetero_sampler(g, self.fanouts, HeteroSampler, self.edge_dir, self.prob, **options)
        fanouts, replace, weighted = as_fanouts(self.fanouts), self.replace, self.prob is not None
        made = convert(g, self.edge_dir, self.prob)
        key = NeighborSampler, *fanouts, replace, weighted
        return made.get_or_make(key, lambda: ExcludingSampler(Neighbor(fanouts, replace=replace, weighted=weighted))), made


MultiLayerNeighborSampler = NeighborSampler


class MultiLayerFullNeighborSampler(NeighborSampler):
    """A drop-in replacement for ``dgl.dataloading.MultiLayerFullNeighborSampler``, which takes all neighbours."""

    def __init__(self, num_layers: int, **kwargs: Any) -> None:
        """Make a sampler of ``num_layers`` layers; ``kwargs`` are further arguments of ``NeighborSampler``."""
        super().__init__([-1] * num_layers, **kwargs)


class LaborSampler(BlockSampler, dgl.dataloading.LaborSampler):
    """A drop-in replacement for ``dgl.dataloading.LaborSampler`` with the same arguments and results."""

    def __init__(
        self,
        fanouts: Any,
        edge_dir: str = "in",
        prob: str | None = None,
        importance_sampling: int = 0,
        layer_dependency: bool = False,
        batch_dependency: int = 1,
        prefetch_node_feats: Any = None,
        prefetch_labels: Any = None,
        prefetch_edge_feats: Any = None,
        output_device: Any = None,
    ) -> None:
        """Set the arguments of the sampler, which are the same as in DGL's class.

        Raises:
            InputError: ``importance_sampling`` is negative (iteration until convergence), or layers or batches are to share random numbers.
        """
        if importance_sampling < 0:
            raise InputError(f"importance_sampling is {importance_sampling}: must be a number of rounds; give 0 or more")
        if layer_dependency or batch_dependency != 1:
            raise InputError(
                f"layer_dependency={layer_dependency} and batch_dependency={batch_dependency}: every layer of every batch draws its own random "
                "numbers; leave them out"
            )
        super().__init__(
            fanouts,
            edge_dir,
            prob,
            importance_sampling,
            prefetch_node_feats=prefetch_node_feats,
            prefetch_labels=prefetch_labels,
            prefetch_edge_feats=prefetch_edge_feats,
            output_device=output_device,
        )
        self.weighted: bool = importance_sampling > 0 or prob is not None

    def set_seed(self, random_seed: int | None = None) -> None:
        """Do nothing: the random seed comes from torch's generator.

        Raises:
            InputError: ``random_seed`` is given.
        """
        if random_seed is not None:
            raise InputError(f"random_seed is {random_seed}: random draws depend only on torch's seed; call torch.manual_seed")

    def of(self, g: Any) -> tuple[Sampler[Any, Any], Any]:
        """Return hoptrain's sampler, prepared for ``g``, and the converted graph."""
        if is_hetero(g):
            options = {"importance_rounds": int(self.importance_sampling), "weighted": self.prob is not None}
            return get_hetero_sampler(g, self.fanouts, HeteroLaborSampler, self.edge_dir, self.prob, **options)
        fanouts, rounds, weighted = as_fanouts(self.fanouts), int(self.importance_sampling), self.prob is not None
        made = convert(g, self.edge_dir, self.prob)
        return made.get_or_make(
            (LaborSampler, *fanouts, rounds, weighted), lambda: ExcludingSampler(Labor(fanouts, rounds, weighted))
        ), made


def move_to(ids: Any, device: Any) -> Any:
    """Return ids, or a dictionary of ids by type, on ``device``."""
    return {kind: own.to(device) for kind, own in ids.items()} if isinstance(ids, Mapping) else ids.to(device)
