"""PyG's ``NeighborLoader`` and ``LinkNeighborLoader`` over hoptrain's samplers."""

from __future__ import annotations

from typing import Any

import torch_geometric.loader
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler.base import SubgraphType

from hoptrain.engine import InputError
from hoptrain.pyg.arguments import check_lengths, check_links, check_seeds
from hoptrain.pyg.hops import HopLoaderMixin, NodeLoaderMixin
from hoptrain.pyg.sampler import NeighborSampler


class NeighborLoader(NodeLoaderMixin, torch_geometric.loader.NeighborLoader):
    """A drop-in replacement for ``torch_geometric.loader.NeighborLoader`` with the same arguments and batches.

    hoptrain samples and gathers ``x``. ``num_workers`` is the number of hoptrain's worker processes; a dead worker raises an error instead of hanging
    the training. Batches are bit-identical for any number of workers. The seed is ``torch.initial_seed()``, which ``seed_everything`` sets.
    """

    hops_type = NeighborSampler

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
        """Convert the graph, once for each data object. Workers start with the first epoch.

        Raises:
            InputError: hoptrain does not support an argument, or two arguments exclude each other.
            ValueError: PyG raises it for the same arguments.
        """
        hops = neighbor_sampler or NeighborSampler(
            data, num_neighbors, subgraph_type, replace, disjoint, temporal_strategy, time_attr, weight_attr, is_sorted, directed=directed
        )
        check_sampler(hops)
        self.data: Any = data
        input_nodes, seeds = check_seeds(data, input_nodes)
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
        """Sampler that PyG's code calls."""
        return check_sampler(self.node_sampler)


class LinkNeighborLoader(HopLoaderMixin, torch_geometric.loader.LinkNeighborLoader):
    """A drop-in replacement for ``torch_geometric.loader.LinkNeighborLoader`` with the same arguments and batches.

    Workers and seed are those of ``hoptrain.pyg.NeighborLoader``. PyG's own code draws the negatives, with workers a few steps ahead.
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
        """Convert the graph, once for each data object. Workers start with the first epoch.

        Raises:
            InputError: hoptrain does not support an argument, or two arguments exclude each other.
            ValueError: PyG raises it for the same arguments.
        """
        hops = neighbor_sampler or NeighborSampler(
            data, num_neighbors, subgraph_type, replace, disjoint, temporal_strategy, time_attr, weight_attr, is_sorted, directed=directed
        )
        check_sampler(hops)
        self.data: Any = data
        edge_label_index, number = check_links(data, edge_label_index)
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
        """Sampler that PyG's code calls."""
        return check_sampler(self.link_sampler)


def on_host(hops: NeighborSampler, transform_sampler_output: Any) -> dict[str, bool]:
    """Return the options that need sampling on the host, by name; the value is True if the user set the option."""
    return {
        "transform_sampler_output": transform_sampler_output is not None,
        "subgraph_type='bidirectional'": hops.subgraph_type == SubgraphType.bidirectional,
    }


def check_sampler(sampler: object) -> NeighborSampler:
    """Return ``sampler`` if it is a ``hoptrain.pyg.NeighborSampler``.

    Raises:
        InputError: ``sampler`` is of another class.
    """
    if not isinstance(sampler, NeighborSampler):
        raise InputError(
            f"neighbor_sampler is a {type(sampler).__name__}: these loaders need a sampler of hoptrain; give hoptrain.pyg.NeighborSampler"
        )
    return sampler
