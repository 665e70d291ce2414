"""Plain PyG on a whole heterogeneous graph has the outputs of hoptrain's full-neighbour inference, and a model trained this way learns."""

import numpy as np
import torch
from reference.hetero_data import hetero_classifier, hetero_data, hetero_module

from hoptrain.benchmarks.baselines.full_batch_hetero import WholeGraphModel, edge_index_of, whole_graph_accuracy, whole_graph_links_auc
from hoptrain.engine import HeteroDataset, HeteroGraph
from hoptrain.trainers.models.hetero.inference import hetero_layerwise_inference


def test_the_same_model():
    data = hetero_data()
    ours = hetero_classifier(hetero_module(data)).model.eval()
    theirs = WholeGraphModel(data, 2, {"arch": "rgcn", "hidden_channels": 8}, ["paper"], 3).eval()
    weights = {name.replace(".conv.", "."): rows for name, rows in ours.state_dict().items()}
    assert theirs.load_state_dict(weights, strict=False).unexpected_keys == []
    x = {name: torch.from_numpy(rows) for name, rows in data.x.items()}
    edges = {relation: edge_index_of(columns) for relation, columns in data.graph.relations.items()}
    nodes = np.arange(90)
    expected = hetero_layerwise_inference(ours, data, {"paper": nodes}, normalize=False, device=torch.device("cpu"))["paper"]
    torch.testing.assert_close(theirs(x, edges)["paper"].detach(), expected, rtol=1e-4, atol=1e-5)


def test_it_learns(tmp_path):
    data = hetero_data()
    named = hetero_data(splits={f"{split}_1": ids for split, ids in data.splits.items()})
    named.save(tmp_path / "data")
    config = {
        "data": {"dataset": str(tmp_path / "data"), "splits": "1", "sampler": {"init_args": {"fanouts": [4, 4]}}},
        "model": {"arch": "hgt", "hidden_channels": 16, "heads": 2, "dropout": 0.2, "lr": 0.02},
        "trainer": {"max_epochs": 30, "check_val_every_n_epoch": 5},
    }
    assert whole_graph_accuracy(config, 1) > 0.6


def test_it_learns_links(tmp_path):
    """The model learns that users buy items of their own group, although the batch's own edges pass no messages."""
    rng = np.random.default_rng(1)
    user, item = rng.integers(0, 60, 900), rng.integers(0, 10, 900)
    item = user % 4 + 4 * item
    edges = {("user", "buys", "item"): (user, item), ("item", "bought", "user"): (item, user)}
    x = {"user": np.eye(4, dtype=np.float32)[np.arange(60) % 4]}
    HeteroDataset(graph=HeteroGraph.from_edges({"user": 60, "item": 40}, edges), seed_type="item", x=x).save(tmp_path / "shop")
    within = {"class_path": "s.HeteroSampler", "init_args": {"fanouts": [4, 4]}}
    relations = {"relation": ["user", "buys", "item"], "exclude": "reverse", "reverse_relation": ["item", "bought", "user"]}
    sampler = {"class_path": "s.HeteroLinkSampler", "init_args": {"sampler": within, **relations}}
    config = {
        "data": {"dataset": str(tmp_path / "shop"), "batch_size": 64, "sampler": sampler},
        "model": {"arch": "rgcn", "hidden_channels": 16, "out_channels": 8, "dropout": 0.0, "lr": 0.03},
        "trainer": {"max_epochs": 5},
    }
    assert whole_graph_links_auc(config, 1) > 0.8
