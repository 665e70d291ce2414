"""Feedback from training to samplers: VR-GCN's history and MVS's gradient norms work in a run of ``fit``."""

import numpy as np
import pytest
import torch
from cases.mistakes import refused
from pytorch_lightning import Trainer

from hoptrain.samplers import MVSSampler, NeighborSampler, VRGCNSampler, Workspace
from hoptrain.trainers import NodeClassifier, NodeDataModule
from hoptrain.trainers.feedback.gradient_norms import GradientNorms
from hoptrain.trainers.feedback.variance_reduction import VarianceReduction, feature_means

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's warnings about a small run


def fit(dataset, folder, sampler, epochs=2, **options):
    if not (folder / "data").exists():
        dataset.save(folder / "data")
    torch.manual_seed(0)
    module = NodeDataModule(str(folder / "data"), sampler, batch_size=40, num_workers=0, seed=4)
    model = NodeClassifier(module.num_features, module.num_classes, module.num_hops, hidden_channels=8, lr=0.02, **options)
    trainer = Trainer(
        max_epochs=epochs, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, use_distributed_sampler=False, num_sanity_val_steps=0,
    )  # fmt: skip
    trainer.fit(model, module)
    return model, module


def test_a_true_history_gives_the_exact_scores(dataset):
    """With constant weights, the estimate equals the exact logits once the history holds every activation."""
    torch.manual_seed(0)
    model = NodeClassifier(dataset.num_features, dataset.num_classes, 3, hidden_channels=8, dropout=0.0).model
    reduction = VarianceReduction(model, dataset, normalize=False)
    graph, every = dataset.graph, np.arange(dataset.graph.num_nodes)
    degrees, x = torch.from_numpy(graph.in_degrees()).float(), torch.from_numpy(dataset.x).float()
    full = NeighborSampler([-1] * 3).sample(graph, every, workspace=Workspace()).to("cpu")
    exact = model(x[full.node_ids.long()], full.blocks, degrees[full.node_ids.long()])
    errors = []
    for number in range(3):  # each pass makes the history of one more layer exact
        batch = VRGCNSampler([2, 2, 2]).sample(graph, every, batch=number).to("cpu")
        nodes = batch.node_ids.long()
        errors.append((reduction(x[nodes], batch, degrees[nodes]) - exact[nodes[: len(every)]]).abs().max().item())
        reduction.commit()
    assert errors[0] > 0.01
    assert errors[2] < 1e-5


def test_means_of_features(dataset, monkeypatch):
    monkeypatch.setattr("hoptrain.trainers.feedback.variance_reduction.CHUNK_EDGES", 50)
    graph = dataset.graph
    columns = [dataset.x[graph.indices[graph.indptr[v] : graph.indptr[v + 1]]] for v in range(graph.num_nodes)]
    expected = np.stack([rows.mean(0) if len(rows) else np.zeros(dataset.num_features) for rows in columns])
    assert np.allclose(feature_means(dataset, normalize=False), expected, atol=1e-6)


def test_history_in_a_run(dataset, tmp_path):
    model, _ = fit(dataset, tmp_path, VRGCNSampler([2, 2]), arch="sage")
    table = model.feedback["history"].history.table(1)
    assert (table.abs().sum(1) > 0).float().mean() > 0.5
    assert not any(name.startswith("feedback") for name in model.state_dict())
    plain, _ = fit(dataset, tmp_path, NeighborSampler([2, 2]), arch="sage")
    assert len(plain.feedback) == 0
    with refused("VRGCNSampler", "another model estimates means", "use sage pyg"):
        fit(dataset, tmp_path, VRGCNSampler([2, 2]), arch="gcn")


def test_norms_in_a_run(dataset, tmp_path):
    sampler = MVSSampler(VRGCNSampler([2, 2]), num_draws=20)
    model, module = fit(dataset, tmp_path, sampler, arch="sage")
    train = module.data.split("train")
    norms = module.sampler.norms
    others = np.setdiff1d(np.arange(len(norms)), train)
    assert (norms[others] == 1).all()
    assert (norms[train] != 1).mean() > 0.3
    assert norms.max() <= 2**0.5
    assert list(model.feedback) == ["gradient-norms", "history"]


@pytest.mark.parametrize("multilabel", [False, True])
def test_norms_are_those_of_the_gradient(multilabel):
    torch.manual_seed(0)
    logits = torch.randn(5, 3, requires_grad=True)
    y = torch.randint(0, 2, (5, 3)).to(torch.uint8) if multilabel else torch.tensor([0, 1, 2, 2, 1])
    nodes, seen = torch.tensor([4, 0, 7, 2, 6]), GradientNorms(MVSSampler(NeighborSampler([1]), 1), 9)
    if multilabel:
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, y.float(), reduction="none").mean(1).sum()
    else:
        loss = torch.nn.functional.cross_entropy(logits, y, reduction="sum")
    (gradient,) = torch.autograd.grad(loss, logits)
    seen.see(type("Batch", (), {"y": y, "seeds": nodes}), logits)
    assert torch.allclose(seen.norms[nodes], gradient.norm(dim=1))
    assert (seen.norms >= 0).sum() == 5
