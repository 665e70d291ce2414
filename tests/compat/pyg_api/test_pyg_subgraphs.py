"""The subgraph loaders equal PyG's loaders, if these run without compiled libraries."""

import pytest
import torch
import torch_geometric.loader
from cases.mistakes import refused
from pyg_case import form, node_stores, some_data, some_hetero_data
from torch_geometric.data import Data, HeteroData
from torch_geometric.utils import k_hop_subgraph

import hoptrain.pyg
from hoptrain.pyg import ShaDowKHopSampler


@pytest.fixture
def data():
    return some_data()


def check_same(mine, wanted):
    """Check that all attributes are bit-identical."""
    for one, other in zip(mine.stores, wanted.stores, strict=True):
        assert set(one.keys()) == set(other.keys())
        for name, value in other.items():
            assert torch.equal(one[name], value) if isinstance(value, torch.Tensor) else one[name] == value, name


@pytest.mark.parametrize(("make", "num_workers"), [(some_data, 0), (some_data, 2), (some_hetero_data, 0), (some_hetero_data, 1)])
def test_random_nodes_are_those_of_pyg(make, num_workers):
    data = make()
    for store in node_stores(data).values():
        store.number = torch.arange(store.num_nodes)
    with refused("batch_size is 9", "num_parts 5", "leave out"):
        hoptrain.pyg.RandomNodeLoader(data, 5, batch_size=9)
    ours = hoptrain.pyg.RandomNodeLoader(data, 5, shuffle=True, num_workers=num_workers)
    mine = [batch.clone() for batch in ours]
    theirs = list(torch_geometric.loader.RandomNodeLoader(data, 5, shuffle=True))
    assert sorted(batch.num_nodes for batch in mine) == sorted(batch.num_nodes for batch in theirs)
    for batch in mine:
        nodes = {kind: store.number for kind, store in node_stores(batch).items()}
        wanted = data.subgraph(nodes if isinstance(data, HeteroData) else nodes[None])
        check_same(batch, wanted)
        assert form(batch) == form(wanted) == form(theirs[0])
    for kind, store in node_stores(data).items():
        assert torch.cat([node_stores(batch)[kind].number for batch in mine]).sort().values.equal(store.number)
    ours.close()


@pytest.mark.parametrize("sparse_format", ["csr", "csc"])
@pytest.mark.parametrize("num_workers", [0, 1])
def test_clusters_are_those_of_pyg(data, sparse_format, num_workers, monkeypatch):
    monkeypatch.setattr(torch_geometric.loader.ClusterData, "_metis", lambda self, edge_index, num_nodes: torch.arange(num_nodes) % 8)
    clusters = torch_geometric.loader.ClusterData(data, 8, log=False, sparse_format=sparse_format)
    ours = hoptrain.pyg.ClusterLoader(clusters, batch_size=3, num_workers=num_workers)
    for mine, wanted in zip(ours, torch_geometric.loader.ClusterLoader(clusters, batch_size=3), strict=True):
        check_same(mine, wanted)
    ours.close()


def test_metis_finds_the_clusters(data):
    pytest.importorskip("pymetis", reason="pymetis is not installed: pip install hoptrain[cluster]")
    clusters = hoptrain.pyg.ClusterData(data, 6, log=False)
    sizes = clusters.partition.partptr.diff()
    assert int(sizes.sum()) == 200
    assert sizes.min() > 15
    assert len(list(hoptrain.pyg.ClusterLoader(clusters, batch_size=2))) == 3


@pytest.mark.filterwarnings("error")
def test_clusters_are_saved_and_nothing_is_unpickled(data, tmp_path):
    pytest.importorskip("pymetis", reason="pymetis is not installed: pip install hoptrain[cluster]")
    first, again = (hoptrain.pyg.ClusterData(data, 6, save_dir=str(tmp_path), log=False) for _ in range(2))
    assert torch.equal(first.partition.node_perm, again.partition.node_perm)
    with refused("200 nodes", "metis.pt clusters 1,200 another", "remove another save_dir"):
        hoptrain.pyg.ClusterData(torch_geometric.data.Data(edge_index=data.edge_index[:, :5], num_nodes=200), 6, save_dir=str(tmp_path))
    (file,) = tmp_path.glob("*/metis.pt")
    torch.save({"code": Exploding()}, file)
    with refused("metis.pt", "no clusters", "remove another save_dir"):
        hoptrain.pyg.ClusterData(data, 6, save_dir=str(tmp_path), log=False)
    assert not Exploding.opened
    with refused("HeteroData", "loaders homogeneous Data", "PyG's own"):
        hoptrain.pyg.ClusterData(torch_geometric.data.HeteroData(), 2)


class Exploding:
    opened = False

    def __setstate__(self, _):
        type(self).opened = True

    def __getstate__(self):
        return {"some": 1}


def test_subgraphs_of_shadow(data):
    loader = hoptrain.pyg.ShaDowKHopSampler(
        data, depth=2, num_neighbors=1000, node_idx=data.train_mask & (torch.arange(200) < 20), batch_size=4
    )
    roots = data.train_mask[:20].nonzero().flatten()
    batches = list(loader)
    assert sum(len(batch.root_n_id) for batch in batches) == len(roots)
    assert torch.equal(torch.cat([batch.y for batch in batches]), data.y[roots])
    for batch, first in zip(batches, range(0, len(roots), 4), strict=True):
        assert torch.equal(batch.root_n_id, batch.ptr[:-1])
        assert torch.equal(batch.batch, torch.repeat_interleave(torch.arange(len(batch.root_n_id)), batch.ptr.diff()))
        for i, root in enumerate(roots[first : first + 4].tolist()):
            inside = slice(batch.ptr[i], batch.ptr[i + 1])
            nodes = k_hop_subgraph(root, 2, data.edge_index, num_nodes=200)[0]
            assert torch.equal(batch.x[inside].sort(0).values, data.x[nodes].sort(0).values)
            assert torch.equal(batch.x[inside][0], data.x[root])
            own = batch.batch[batch.edge_index[0]] == i
            assert (batch.batch[batch.edge_index[1]][own] == i).all()
            is_kept = torch.isin(data.edge_index, nodes).all(0)
            assert torch.equal(batch.edge_attr[own].sort(0).values, data.edge_attr[is_kept].sort(0).values)
            found = torch.cat([batch.x[batch.edge_index[0]], batch.x[batch.edge_index[1]], batch.edge_attr], 1)[own]
            wanted = torch.cat([data.x[data.edge_index[0]], data.x[data.edge_index[1]], data.edge_attr], 1)[is_kept]
            assert sorted(found.tolist()) == sorted(wanted.tolist())


def test_shadow_draws_distinct_neighbours_alone(data):
    with refused("replace is True", "ShaDow without replacement", "leave out"):
        hoptrain.pyg.ShaDowKHopSampler(data, 2, 5, replace=True)
    (batch,) = hoptrain.pyg.ShaDowKHopSampler(data, 1, 3, node_idx=torch.arange(50), batch_size=50)
    assert batch.ptr.diff().max() <= 4
    assert batch.ptr.diff().max() > 2


def test_attributes_of_nodes_and_of_edges_of_which_there_are_as_many():
    """If a graph has as many nodes as edges, attributes whose name contains ``edge`` belong to edges, as in PyG."""
    ring = torch.arange(12)
    data = Data(
        edge_index=torch.stack([ring, (ring + 1) % 12]),
        x=ring[:, None].float(),
        y=ring,
        edge_attr=100 + ring,
        edge_weight=200 + ring,
        own=300 + ring,
    )
    for batch in ShaDowKHopSampler(data, depth=1, num_neighbors=3, batch_size=3):
        nodes = batch.x[:, 0].long()
        edges = nodes[batch.edge_index[0]]  # edge i begins at node i
        assert torch.equal(nodes[batch.edge_index[1]], (edges + 1) % 12)
        assert torch.equal(batch.edge_attr, 100 + edges)
        assert torch.equal(batch.edge_weight, 200 + edges)
        assert torch.equal(batch.own, 300 + nodes)
        assert torch.equal(batch.y, nodes[batch.root_n_id])
