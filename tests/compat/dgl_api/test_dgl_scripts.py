"""Scripts like DGL's examples reach the same metrics with hoptrain's import line as with DGL, within the spread of random seeds.

The graph has planted communities.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from cases.planted import CLASSES, NODES, auc, check_scores, planted, train
from dgl_case import dgl

import hoptrain.dgl

pytestmark = [
    pytest.mark.filterwarnings("ignore:Dataloader CPU affinity"),
    pytest.mark.filterwarnings("ignore:unclosed file"),
    pytest.mark.filterwarnings("ignore:__array_wrap__"),  # both are warnings of DGL's Cluster-GCN with a newer NumPy
]
SEEDS = range(5)


@pytest.fixture(autouse=True)
def _one_thread():
    """Use one thread, since on so small a graph several threads would mostly wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def planted_graph():
    edge_index, x, y, is_training, _ = planted()
    g = dgl.graph(tuple(edge_index), num_nodes=NODES)
    g.ndata["feat"], g.ndata["label"], g.ndata["train"] = x, y, is_training
    return g


class SAGE(torch.nn.Module):
    """GraphSAGE with two layers, for blocks or for the whole graph."""

    def __init__(self, out):
        super().__init__()
        self.layers = torch.nn.ModuleList([dgl.nn.SAGEConv(16, 32, "mean"), dgl.nn.SAGEConv(32, out, "mean")])

    def forward(self, blocks, x):
        return self.layers[1](blocks[-1], self.layers[0](blocks[0], x).relu())


@torch.no_grad()
def accuracy(model, g):
    is_right = model([g], g.ndata["feat"]).argmax(1) == g.ndata["label"]
    return float(is_right[~g.ndata["train"]].float().mean())


@torch.no_grad()
def auc_of(model, g):
    return auc(model([g], g.ndata["feat"]), g.ndata["label"])


def of_blocks(model, batch):
    _, _, blocks = batch
    return F.cross_entropy(model(blocks, blocks[0].srcdata["feat"]), blocks[-1].dstdata["label"])


def of_subgraphs(model, g):
    out, is_training = model([g], g.ndata["feat"]), g.ndata["train"]
    return F.cross_entropy(out[is_training], g.ndata["label"][is_training])


def of_pairs(model, batch):
    _, positive, negative, blocks = batch
    z = model(blocks, blocks[0].srcdata["feat"])
    scores = [(z[pairs.edges()[0]] * z[pairs.edges()[1]]).sum(1) for pairs in (positive, negative)]
    labels = torch.cat([torch.ones_like(scores[0]), torch.zeros_like(scores[1])])
    return F.binary_cross_entropy_with_logits(torch.cat(scores), labels)


def node_classification(loading, g, folder):
    sampler = loading.NeighborSampler([5, 5], prefetch_node_feats=["feat"], prefetch_labels=["label"])
    loader = loading.DataLoader(g, g.ndata["train"].nonzero().flatten(), sampler, batch_size=64, shuffle=True)
    return accuracy(train(SAGE(CLASSES), loader, of_blocks, 6), g)


def labor(loading, g, folder):
    sampler = loading.LaborSampler([5, 5], importance_sampling=1, prefetch_node_feats=["feat"], prefetch_labels=["label"])
    loader = loading.DataLoader(g, g.ndata["train"].nonzero().flatten(), sampler, batch_size=64, shuffle=True)
    return accuracy(train(SAGE(CLASSES), loader, of_blocks, 6), g)


def link_prediction(loading, g, folder):
    inner, half = loading.NeighborSampler([5, 5], prefetch_node_feats=["feat"]), g.num_edges() // 2
    reverse = torch.cat([torch.arange(half, 2 * half), torch.arange(half)])
    draws = loading.negative_sampler.Uniform(1)
    sampler = loading.as_edge_prediction_sampler(inner, exclude="reverse_id", reverse_eids=reverse, negative_sampler=draws)
    loader = loading.DataLoader(g, torch.arange(2 * half), sampler, batch_size=256, shuffle=True)
    return auc_of(train(SAGE(32), loader, of_pairs, 6), g)


def cluster_gcn(loading, g, folder):
    sampler = loading.ClusterGCNSampler(
        g, 20, cache_path=str(folder / f"{loading.__name__}.npz"), prefetch_ndata=["feat", "label", "train"]
    )
    loader = loading.DataLoader(g, torch.arange(20), sampler, batch_size=5, shuffle=True)
    return accuracy(train(SAGE(CLASSES), loader, of_subgraphs, 20), g)


def saint(loading, g, folder):
    sampler = loading.SAINTSampler("node", 150, prefetch_ndata=["feat", "label", "train"])
    loader = loading.DataLoader(g, torch.arange(5), sampler, num_workers=0)
    return accuracy(train(SAGE(CLASSES), loader, of_subgraphs, 12), g)


SCRIPTS = [node_classification, labor, link_prediction, cluster_gcn, saint]


@pytest.mark.parametrize("script", SCRIPTS)
def test_one_changed_line(script, tmp_path):
    g, scores = planted_graph(), {}
    for loading in (dgl.dataloading, hoptrain.dgl):
        scores[loading] = []
        for seed in SEEDS:
            torch.manual_seed(seed)
            dgl.seed(seed)
            scores[loading].append(script(loading, g, tmp_path))
    check_scores(scores[hoptrain.dgl], scores[dgl.dataloading], 0.6 if script is link_prediction else 0.65)


RANK = """
import sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from test_dgl_scripts import CLASSES, SAGE, SEEDS, accuracy, dgl, of_blocks, planted_graph, train
import hoptrain.dgl

class Blocks(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model
    def forward(self, blocks, x):
        return self.model(blocks, x)

dist.init_process_group("gloo")
g = planted_graph()
for loading in (dgl.dataloading, hoptrain.dgl):
    scores = []
    for seed in SEEDS:
        torch.manual_seed(seed)
        sampler = loading.NeighborSampler([5, 5], prefetch_node_feats=["feat"], prefetch_labels=["label"])
        loader = loading.DataLoader(g, g.ndata["train"].nonzero().flatten(), sampler, batch_size=32, shuffle=True, use_ddp=True)
        model = SAGE(CLASSES)
        parallel = train(DistributedDataParallel(model), loader, of_blocks, 6)
        scores.append(accuracy(model, g))
        weights = torch.cat([p.detach().flatten() for p in model.parameters()])
        both = [torch.empty_like(weights) for _ in range(2)]
        dist.all_gather(both, weights)
        assert torch.equal(*both), "the ranks have the same weights"
    if dist.get_rank() == 0:
        print(*scores)
dist.destroy_process_group()
"""


def test_one_changed_line_with_two_ranks(tmp_path):
    """A script with ``use_ddp`` runs on two CPU ranks with gloo."""
    (tmp_path / "rank.py").write_text(RANK)
    here = Path(__file__).parent
    paths = os.pathsep.join([str(here), str(here.parents[1]), str(here.parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(tmp_path / "rank.py")]
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    theirs, ours = ([float(score) for score in line.split()] for line in done.stdout.splitlines()[-2:])
    check_scores(ours, theirs)
