"""Graphs as users of PyG have them, with unsorted edges and all kinds of attributes, and checks of their batches."""

import torch
from torch_geometric.data import Data, HeteroData


def some_data():
    """Return a graph of 200 nodes and 1,200 unsorted edges, with parallel edges, self-loops, and attributes of all kinds."""
    generator = torch.Generator().manual_seed(5)

    def rand(*shape):
        return torch.rand(*shape, generator=generator)

    edge_index = (rand(2, 1200) * torch.tensor([[200.0], [190.0]])).long()
    return Data(
        x=rand(200, 7),
        edge_index=edge_index,
        edge_attr=rand(1200, 3),
        y=(rand(200) * 4).long(),
        train_mask=rand(200) < 0.4,
        born=(rand(200) * 50).long(),
        made=(rand(1200) * 50).long(),
        weight=rand(1200),
        name="graph",
    )


def some_hetero_data():
    """Return a graph of papers, authors and venues; two of the types have features."""
    generator = torch.Generator().manual_seed(6)

    def rand(*shape):
        return torch.rand(*shape, generator=generator)

    data = HeteroData()
    data["paper"].x, data["paper"].y, data["paper"].born = rand(120, 5), (rand(120) * 3).long(), (rand(120) * 40).long()
    data["paper"].train_mask = rand(120) < 0.4
    data["author"].x, data["author"].born = rand(80, 3), (rand(80) * 40).long()
    data["venue"].num_nodes, data["venue"].born = 6, torch.arange(6)
    numbers = {"paper": 120, "author": 80, "venue": 6}
    edges = {
        ("paper", "cites", "paper"): 500,
        ("author", "writes", "paper"): 400,
        ("paper", "of", "author"): 300,
        ("paper", "in", "venue"): 100,
    }
    for (source, name, destination), number in edges.items():
        store = data[source, name, destination]
        store.edge_index = (rand(2, number) * torch.tensor([[numbers[source]], [numbers[destination] * 0.9]])).long()
        store.edge_attr, store.made, store.weight = rand(number, 2), (rand(number) * 40).long(), rand(number)
    data.name = "graph"
    return data


def node_stores(data):
    """Return the node attributes by node type; those of a homogeneous graph have the type None."""
    return dict(data.node_items()) if isinstance(data, HeteroData) else {None: data}


def edge_stores(data):
    """Return the edge attributes by relation; those of a homogeneous graph join the type None."""
    return dict(data.edge_items()) if isinstance(data, HeteroData) else {(None, None, None): data}


def check_meaning(batch, data):
    """Check that all ids of a batch have PyG's meaning."""
    stores = node_stores(batch)
    for kind, whole in node_stores(data).items():
        for name in ("x", "y", "born"):
            assert (name in stores[kind]) == (name in whole)
            if name in whole:
                assert torch.equal(stores[kind][name], whole[name][stores[kind].n_id])
        if kind is not None:
            assert ("num_nodes" in stores[kind]) == ("num_nodes" in whole)
        assert stores[kind].num_nodes == len(stores[kind].n_id)
    for relation, whole in edge_stores(data).items():
        store, (source, _, destination) = edge_stores(batch)[relation], relation
        if "e_id" not in store:
            continue  # PyG omits the ids if it adds the reversed edges of another relation
        assert torch.equal(store.edge_attr, whole.edge_attr[store.e_id])
        ends = torch.stack([stores[source].n_id[store.edge_index[0]], stores[destination].n_id[store.edge_index[1]]])
        wanted = whole.edge_index[:, store.e_id]
        assert ((ends == wanted) | (ends == wanted.flip(0))).all()


def check_induced(batch, data):
    """Check that a batch has all edges between its nodes, and no numbers of nodes and edges by hop."""
    check_meaning(batch, data)
    stores = node_stores(batch)
    for relation, whole in edge_stores(data).items():
        source, _, destination = relation
        inside = torch.isin(whole.edge_index[0], stores[source].n_id) & torch.isin(whole.edge_index[1], stores[destination].n_id)
        assert torch.equal(edge_stores(batch)[relation].e_id.sort().values, inside.nonzero().flatten())
    assert not any("num_sampled_nodes" in store for store in stores.values())


def form(batch):
    """Return names, types, dtypes, numbers of dimensions, and the sizes that do not depend on random draws, of each store."""
    return {
        str(store._key): {
            name: (value.dtype, value.dim(), value.shape[1:] if value.dim() > 1 and not name.endswith("index") else None)
            if isinstance(value, torch.Tensor)
            else type(value)
            for name, value in store.items()
        }
        for store in batch.stores
    }


def numbers(batch):
    """Return the nodes of a batch in a form that can be compared."""
    stores = batch.node_stores if hasattr(batch, "node_stores") else batch.stores
    return [store.x.tolist() for store in stores if "x" in store]


def batches_of(loader):
    """Return the contents of an epoch's batches."""
    torch.manual_seed(7)
    return [numbers(batch) + list(batch.to_dict().values()) for batch in loader]
