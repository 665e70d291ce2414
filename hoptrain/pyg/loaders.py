"""PyG's ``NeighborLoader`` and ``LinkNeighborLoader``, fed by hoptrain."""

from __future__ import annotations

from typing import Any

import torch_geometric.loader
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler.base import SubgraphType

from hoptrain.engine import InputError
from hoptrain.pyg.arguments import check_lengths, checked_links, checked_seeds
from hoptrain.pyg.hops import HopFed
from hoptrain.pyg.sampler import NeighborSampler


class NeighborLoader(HopFed, torch_geometric.loader.NeighborLoader):
    """PyG's, by name, arguments and batches; see ``torch_geometric.loader.NeighborLoader``.

    Sampling, and gathering ``x``, are hoptrain's: ``num_workers`` are processes that cannot hang the training, and the batches are the same to the
    bit with any number of them. ``torch.initial_seed()``, as ``seed_everything`` sets it, is the seed.
    """

    def __init__(
        self,
        data: Data | HeteroData,
        num_neighbors: Any,
        input_nodes: Any = None,
        input_time: Any = None,
        replace: bool = False,
        subgraph_type: SubgraphType | str = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: str | None = None,
        weight_attr: str | None = None,
        transform: Any = None,
        transform_sampler_output: Any = None,
        is_sorted: bool = False,
        filter_per_worker: bool | None = None,
        neighbor_sampler: NeighborSampler | None = None,
        directed: bool = True,
        **kwargs: Any,
    ) -> None:
        """Convert the graph, once for a ``Data`` object; nothing is started yet.

        Raises:
            InputError: an option that hoptrain does not have, or that goes with no other.
            ValueError: as PyG.
        """
        hops = neighbor_sampler or NeighborSampler(
            data, num_neighbors, subgraph_type, replace, disjoint, temporal_strategy, time_attr, weight_attr, is_sorted, directed=directed
        )
        checked(hops)
        self.data: Any = data
        input_nodes, seeds = checked_seeds(data, input_nodes)
        check_lengths(seeds, "seeds", input_time=input_time)
        super().__init__(
            data,
            num_neighbors,
            input_nodes,
            input_time,
            time_attr=time_attr,
            transform=transform,
            transform_sampler_output=transform_sampler_output,
            filter_per_worker=False,
            neighbor_sampler=hops,
            **self.torch_options(kwargs, hops.sampler, filter_per_worker=filter_per_worker, **on_host(hops, transform_sampler_output)),
        )

    @property
    def hops(self) -> NeighborSampler:
        """The sampler."""
        return checked(self.node_sampler)


class LinkNeighborLoader(HopFed, torch_geometric.loader.LinkNeighborLoader):
    """PyG's, by name, arguments and batches; see ``torch_geometric.loader.LinkNeighborLoader``, and ``NeighborLoader`` here.

    Negatives are drawn by PyG's own code, with workers a few steps ahead.
    """

    def __init__(
        self,
        data: Data | HeteroData,
        num_neighbors: Any,
        edge_label_index: Any = None,
        edge_label: Any = None,
        edge_label_time: Any = None,
        replace: bool = False,
        subgraph_type: SubgraphType | str = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        neg_sampling: Any = None,
        neg_sampling_ratio: float | None = None,
        time_attr: str | None = None,
        weight_attr: str | None = None,
        transform: Any = None,
        transform_sampler_output: Any = None,
        is_sorted: bool = False,
        filter_per_worker: bool | None = None,
        neighbor_sampler: NeighborSampler | None = None,
        directed: bool = True,
        **kwargs: Any,
    ) -> None:
        """Convert the graph, once for a ``Data`` object; nothing is started yet.

        Raises:
            InputError: an option that hoptrain does not have, or that goes with no other.
            ValueError: as PyG.
        """
        hops = neighbor_sampler or NeighborSampler(
            data, num_neighbors, subgraph_type, replace, disjoint, temporal_strategy, time_attr, weight_attr, is_sorted, directed=directed
        )
        checked(hops)
        self.data: Any = data
        edge_label_index, number = checked_links(data, edge_label_index)
        check_lengths(number, "links", edge_label=edge_label, edge_label_time=edge_label_time)
        super().__init__(
            data,
            num_neighbors,
            edge_label_index,
            edge_label,
            edge_label_time,
            neg_sampling=neg_sampling,
            neg_sampling_ratio=neg_sampling_ratio,
            time_attr=time_attr,
            transform=transform,
            transform_sampler_output=transform_sampler_output,
            filter_per_worker=False,
            neighbor_sampler=hops,
            **self.torch_options(kwargs, hops.sampler, filter_per_worker=filter_per_worker, **on_host(hops, transform_sampler_output)),
        )

    @property
    def hops(self) -> NeighborSampler:
        """The sampler."""
        return checked(self.link_sampler)


def on_host(hops: NeighborSampler, transform_sampler_output: Any) -> dict[str, bool]:
    """Return whether options are given that run on the host, by the name of each."""
    return {
        "transform_sampler_output": transform_sampler_output is not None,
        "subgraph_type='bidirectional'": hops.subgraph_type == SubgraphType.bidirectional,
    }


def checked(sampler: object) -> NeighborSampler:
    """The sampler, if it is hoptrain's.

    Raises:
        InputError: it is not.
    """
    if not isinstance(sampler, NeighborSampler):
        raise InputError(
            f"neighbor_sampler is a {type(sampler).__name__}: these loaders sample by hoptrain; give hoptrain.pyg.NeighborSampler"
        )
    return sampler
