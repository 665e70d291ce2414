"""Scripts like PyG's examples reach the same metrics with hoptrain's import line as with PyG, within the spread of random seeds.

PyG's loaders use the reference sampler, or do not need PyG's compiled libraries. The graph has planted communities.
"""

import copy

import pyg_reference
import pytest
import torch
import torch.nn.functional as F
import torch_geometric.loader
from cases.planted import CLASSES, NODES, auc, check_scores, planted, train
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GAT, GCN, GraphConv, GraphSAGE, to_hetero
from torch_geometric.utils import degree

import hoptrain.pyg

SEEDS = range(3)


@pytest.fixture(scope="module")
def data():
    edge_index, x, y, is_training, time = planted()
    return Data(x=x, y=y, edge_index=edge_index, time=time, train_mask=is_training)


@torch.no_grad()
def accuracy(model, data):
    is_right = model(data.x, data.edge_index).argmax(1) == data.y
    return float(is_right[~data.train_mask].float().mean())


def of_seeds(model, batch):
    out = model(batch.x, batch.edge_index)[: batch.batch_size]
    return F.cross_entropy(out, batch.y[: batch.batch_size])


def of_nodes(model, batch):
    out = model(batch.x, batch.edge_index)
    return F.cross_entropy(out[batch.train_mask], batch.y[batch.train_mask])


def of_links(model, batch):
    z = model(batch.x, batch.edge_index)
    scores = (z[batch.edge_label_index[0]] * z[batch.edge_label_index[1]]).sum(1)
    return F.binary_cross_entropy_with_logits(scores, batch.edge_label)


def of_triplets(model, batch):
    z = model(batch.x, batch.edge_index)
    near = (z[batch.src_index] * z[batch.dst_pos_index]).sum(1)
    far = (z[batch.src_index] * z[batch.dst_neg_index]).sum(1)
    return -(F.logsigmoid(near) + F.logsigmoid(-far)).mean()


@torch.no_grad()
def auc_of(model, data):
    return auc(model(data.x, data.edge_index), data.y)


def sage(loaders, data):
    loader = loaders.NeighborLoader(data, num_neighbors=[5, 5], input_nodes=data.train_mask, batch_size=64, shuffle=True)
    return accuracy(train(GraphSAGE(16, 32, 2, CLASSES), loader, of_seeds, 6), data)


def gat(loaders, data):
    loader = loaders.NeighborLoader(data, num_neighbors=[5, 5], input_nodes=data.train_mask, batch_size=64, shuffle=True)
    return accuracy(train(GAT(16, 32, 2, CLASSES, heads=4), loader, of_seeds, 6), data)


def layer_wise_inference(loaders, data):
    loader = loaders.NeighborLoader(data, num_neighbors=[5, 5], input_nodes=data.train_mask, batch_size=64, shuffle=True)
    model = train(GraphSAGE(16, 32, 2, CLASSES), loader, of_seeds, 6)
    with torch.no_grad():
        out = model.inference(loaders.NeighborLoader(data, num_neighbors=[-1], batch_size=128))
    return float((out.argmax(1) == data.y)[~data.train_mask].float().mean())


def link_prediction(loaders, data):
    loader = loaders.LinkNeighborLoader(data, num_neighbors=[5, 5], batch_size=256, neg_sampling_ratio=1.0, shuffle=True)
    return auc_of(train(GraphSAGE(16, 32, 2), loader, of_links, 3), data)


def unsupervised_sage(loaders, data):
    loader = loaders.LinkNeighborLoader(data, num_neighbors=[5, 5], batch_size=256, neg_sampling="triplet", shuffle=True)
    return auc_of(train(GraphSAGE(16, 32, 2), loader, of_triplets, 3), data)


def temporal_links(loaders, data):
    order = data.time.argsort()[-1000:]
    loader = loaders.LinkNeighborLoader(
        data,
        num_neighbors=[5, 5],
        edge_label_index=data.edge_index[:, order],
        edge_label_time=data.time[order] - 1,
        time_attr="time",
        temporal_strategy="last",
        neg_sampling="binary",
        batch_size=100,
    )
    return auc_of(train(GraphSAGE(16, 32, 2), loader, of_links, 3), data)


def cluster_gcn(loaders, data):
    clusters = hoptrain.pyg.ClusterData(data, num_parts=20, log=False)
    loader = getattr(loaders, "ClusterLoader", torch_geometric.loader.ClusterLoader)(clusters, batch_size=5, shuffle=True)
    return accuracy(train(GCN(16, 32, 2, CLASSES), loader, of_nodes, 30), data)


def random_nodes(loaders, data):
    loader = getattr(loaders, "RandomNodeLoader", torch_geometric.loader.RandomNodeLoader)(data, num_parts=3, shuffle=True)
    return accuracy(train(GraphSAGE(16, 32, 2, CLASSES), loader, of_nodes, 20), data)


def with_authors(data):
    """Return a heterogeneous graph with the nodes of ``data`` as papers, and authors who mostly write in one community."""
    generator = torch.Generator().manual_seed(5)
    papers, authors = torch.arange(NODES).repeat(3), torch.randint(200, (3 * NODES,), generator=generator)
    strays = torch.rand(3 * NODES, generator=generator) < 0.2
    authors = torch.where(strays, authors, authors // CLASSES * CLASSES + data.y[papers])
    hetero = HeteroData({"paper": {"x": data.x, "y": data.y, "train_mask": data.train_mask}, "author": {"x": torch.ones(200, 2)}})
    hetero["paper", "cites", "paper"].edge_index = data.edge_index
    hetero["author", "writes", "paper"].edge_index = torch.stack([authors, papers])
    hetero["paper", "written", "author"].edge_index = torch.stack([papers, authors])
    return hetero


def hetero_sage(loaders, data):
    data = with_authors(data)
    model = to_hetero(GraphSAGE((-1, -1), 32, 2, CLASSES), data.metadata())
    with torch.no_grad():
        model(data.x_dict, data.edge_index_dict)  # sets the widths of the lazy layers

    def of_papers(model, batch):
        out = model(batch.x_dict, batch.edge_index_dict)["paper"][: batch["paper"].batch_size]
        return F.cross_entropy(out, batch["paper"].y[: batch["paper"].batch_size])

    papers = ("paper", data["paper"].train_mask)
    train(model, loaders.NeighborLoader(data, num_neighbors=[5, 5], input_nodes=papers, batch_size=64, shuffle=True), of_papers, 6)
    with torch.no_grad():
        is_right = model(data.x_dict, data.edge_index_dict)["paper"].argmax(1) == data["paper"].y
    return float(is_right[~data["paper"].train_mask].float().mean())


class Saint(torch.nn.Module):
    """The model of PyG's GraphSAINT example, whose edge weights turn sums into means of the whole graph."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([GraphConv(16, 32, "add"), GraphConv(32, 32, "add")])
        self.last = torch.nn.Linear(64, CLASSES)

    def forward(self, x, edge_index, edge_weight=None):
        seen = []
        for layer in self.layers:
            x = layer(x, edge_index, edge_weight).relu()
            seen.append(x)
        return self.last(torch.cat(seen, 1))


def graph_saint(loaders, data):
    data = copy.copy(data)
    del data.time
    column = data.edge_index[1]
    data.edge_weight = 1.0 / degree(column, data.num_nodes)[column]
    loader = loaders.GraphSAINTRandomWalkSampler(copy.copy(data), batch_size=60, walk_length=2, num_steps=5, sample_coverage=50, log=False)

    def normalised(model, batch):
        out = model(batch.x, batch.edge_index, batch.edge_norm * batch.edge_weight)
        return (F.cross_entropy(out, batch.y, reduction="none") * batch.node_norm)[batch.train_mask].sum()

    model = train(Saint(), loader, normalised, 15)
    with torch.no_grad():
        is_right = model(data.x, data.edge_index, data.edge_weight).argmax(1) == data.y
    return float(is_right[~data.train_mask].float().mean())


SCRIPTS = [
    sage,
    gat,
    layer_wise_inference,
    link_prediction,
    unsupervised_sage,
    temporal_links,
    cluster_gcn,
    random_nodes,
    hetero_sage,
    graph_saint,
]


@pytest.mark.parametrize("script", SCRIPTS)
def test_one_changed_line(data, script):
    if script is cluster_gcn:
        pytest.importorskip("pymetis", reason="pymetis is not installed: pip install hoptrain[cluster]")
    scores = {}
    for loaders in (pyg_reference, hoptrain.pyg):
        scores[loaders] = []
        for seed in SEEDS:
            torch.manual_seed(seed)
            scores[loaders].append(script(loaders, data))
    theirs, ours = scores.values()
    check_scores(ours, theirs)
