"""PyG's own loader without PyG's compiled libraries."""

import torch_geometric.loader

import hoptrain.pyg


def use_original_loader(monkeypatch):
    """Make PyG's own ``NeighborLoader`` sample with hoptrain's sampler, which does not need PyG's compiled libraries."""

    class Original(torch_geometric.loader.NeighborLoader):
        def __init__(self, data, num_neighbors, **options):
            super().__init__(data, num_neighbors, neighbor_sampler=hoptrain.pyg.NeighborSampler(data, num_neighbors), **options)

    monkeypatch.setattr(torch_geometric.loader, "NeighborLoader", Original)
    monkeypatch.setattr("torch_geometric.typing.WITH_TORCH_SPARSE", True)
