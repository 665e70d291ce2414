"""DGL's samplers of blocks, over hoptrain's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from hoptrain.dgl.graphs import as_ids, converted, is_hetero, on_host
from hoptrain.dgl.hetero import hetero_sampler, items_by_type, typed_blocks_of
from hoptrain.dgl.outputs import blocks_of, dgl
from hoptrain.dgl.sampler import Sampled, as_fanouts
from hoptrain.engine import InputError
from hoptrain.samplers import HeteroLaborSampler, HeteroSampler, Sampler
from hoptrain.samplers import LaborSampler as Labor
from hoptrain.samplers import NeighborSampler as Neighbor
from hoptrain.samplers.batch.copies import distinct
from hoptrain.samplers.wrappers.excluding import ExcludingSampler, items_of


class BlockSampler(Sampled):
    """From nodes to blocks; what DGL's samplers of blocks do besides is done by DGL's code."""

    edge_dir: str
    prefetch_node_feats: Any
    output_device: Any
    weighted = False

    def features(self) -> Any:
        """Names of the features of input nodes that are to be fetched; of heterogeneous graphs by type."""
        return self.prefetch_node_feats

    def sample_blocks(self, g: Any, seed_nodes: Any, exclude_eids: Any = None) -> tuple[Any, Any, list[Any]]:
        """Input nodes, the seeds, and a block for each layer; no edge of ``exclude_eids`` is in any. Of heterogeneous graphs all three are by type.

        Raises:
            InputError: a seed or an edge that does not exist.
        """
        nodes, blocks, is_whole = (self._sampled_typed if is_hetero(on_host(g)) else self._sampled)(g, seed_nodes, exclude_eids)
        self.keep(self.gathered(g) if is_whole else {}, self.output_device)
        if self.output_device is None:
            return nodes, seed_nodes, blocks
        nodes, seed_nodes = (moved(ids, self.output_device) for ids in (nodes, seed_nodes))
        return nodes, seed_nodes, [block.to(self.output_device) for block in blocks]

    def _sampled(self, g: Any, seed_nodes: Tensor, exclude_eids: Any) -> tuple[Tensor, list[Any], bool]:
        """Input nodes, blocks, and whether the nodes are those of the batch, so that no seed stands there several times."""
        seeds, copies = distinct(as_ids(seed_nodes))
        excluded = None if exclude_eids is None else self.of(g)[1].csc_positions(as_ids(exclude_eids))
        return *blocks_of(g, self.batch(g, items_of(seeds, excluded)), copies, weighted=self.weighted), copies is None

    def _sampled_typed(self, g: Any, seed_nodes: Any, exclude_eids: Any) -> tuple[dict[str, Tensor], list[Any], bool]:
        """The same of a heterogeneous graph, by type."""
        items, copies = items_by_type(g, self.of(g)[1], seed_nodes, exclude_eids)
        return *typed_blocks_of(g, self.batch(g, items), copies, weighted=self.weighted), not copies

    def assign_lazy_features(self, result: Any) -> Any:
        """DGL's, but for features that are there already."""
        made = super().assign_lazy_features(result)  # type: ignore[misc]  # of DGL's class, the next one
        for kind, rows in self.rows.items():
            made[2][0].srcnodes[kind].data.update(rows)
        return made


class NeighborSampler(BlockSampler, dgl.dataloading.NeighborSampler):
    """DGL's, by name, arguments and results; see ``dgl.dataloading.NeighborSampler``. ``fused`` has no meaning: there is one way.

    With ``edge_dir="out"`` the sources of a block are the ends of the edges that leave its destinations.
    """

    fanouts: Any
    prob: str | None
    replace: bool

    def of(self, g: Any) -> tuple[Sampler[Any, Any], Any]:
        """The sampler and the graph of hoptrain's."""
        if is_hetero(g):
            of_type = {"replace": self.replace, "weighted": self.prob is not None}
            return hetero_sampler(g, self.fanouts, HeteroSampler, self.edge_dir, self.prob, **of_type)
        fanouts, replace, weighted = as_fanouts(self.fanouts), self.replace, self.prob is not None
        made = converted(g, self.edge_dir, self.prob)
        options = NeighborSampler, *fanouts, replace, weighted
        return made.kept(options, lambda: ExcludingSampler(Neighbor(fanouts, replace=replace, weighted=weighted))), made


MultiLayerNeighborSampler = NeighborSampler


class MultiLayerFullNeighborSampler(NeighborSampler):
    """DGL's, by name, arguments and results: all neighbours."""

    def __init__(self, num_layers: int, **kwargs: Any) -> None:
        """State the layers; what else ``NeighborSampler`` takes."""
        super().__init__([-1] * num_layers, **kwargs)


class LaborSampler(BlockSampler, dgl.dataloading.LaborSampler):
    """DGL's, by name, arguments and results; see ``dgl.dataloading.LaborSampler``."""

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
        """State the layers.

        Raises:
            InputError: rounds until convergence, or random numbers that layers or batches share.
        """
        if importance_sampling < 0:
            raise InputError(f"importance_sampling is {importance_sampling}: rounds are counted; give their number, 0 or more")
        if layer_dependency or batch_dependency != 1:
            raise InputError(
                f"layer_dependency={layer_dependency} and batch_dependency={batch_dependency}: every layer of every batch draws by itself; "
                "leave them out"
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
        """Nothing: draws follow from torch's generator, or from a batch's address.

        Raises:
            InputError: a seed is given.
        """
        if random_seed is not None:
            raise InputError(f"random_seed is {random_seed}: draws follow from torch's seed; call torch.manual_seed")

    def of(self, g: Any) -> tuple[Sampler[Any, Any], Any]:
        """The sampler and the graph of hoptrain's."""
        if is_hetero(g):
            of_type = {"importance_rounds": int(self.importance_sampling), "weighted": self.prob is not None}
            return hetero_sampler(g, self.fanouts, HeteroLaborSampler, self.edge_dir, self.prob, **of_type)
        fanouts, rounds, weighted = as_fanouts(self.fanouts), int(self.importance_sampling), self.prob is not None
        made = converted(g, self.edge_dir, self.prob)
        return made.kept((LaborSampler, *fanouts, rounds, weighted), lambda: ExcludingSampler(Labor(fanouts, rounds, weighted))), made


def moved(ids: Any, device: Any) -> Any:
    """Ids, or those of each type, on a device."""
    return {kind: own.to(device) for kind, own in ids.items()} if isinstance(ids, Mapping) else ids.to(device)
