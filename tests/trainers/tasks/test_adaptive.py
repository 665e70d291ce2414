"""AS-GCN's variance term equals the exact variance, and the classifier trains the scores of its sampler."""

import numpy as np
import pytest
import torch
from cases.mistakes import refused
from conftest import make_graph
from pytorch_lightning import Callback, Trainer
from pytorch_lightning.callbacks import ModelCheckpoint

from hoptrain.samplers import ASGCNSampler, LadiesSampler, Workspace
from hoptrain.trainers import AdaptiveNodeClassifier, NodeDataModule
from hoptrain.trainers.tasks.adaptive import sampling_variance


def exact_variance(graph, seeds, hidden, scores, count):
    """Return the variance of the mean of ``count`` draws, summed over destinations and channels, as a dense function of ``scores``."""
    degrees = graph.in_degrees()
    p = torch.zeros(len(seeds), graph.num_nodes, dtype=torch.float64)
    for i, v in enumerate(seeds):
        for u in graph.indices[graph.indptr[v] : graph.indptr[v + 1]]:
            p[i, u] += 1 / degrees[v]
    q = p.sum(0) * scores / (p.sum(0) * scores).sum()
    near = q > 0
    second = ((p[:, near] ** 2).sum(0) * (hidden[near] ** 2).sum(1) / q[near]).sum()
    return (second - (p @ hidden).square().sum()) / count


def test_value_and_gradient_are_unbiased():
    graph, seeds, count = make_graph(40, 300), np.arange(0, 40, 5), 30
    rng = np.random.default_rng(0)
    hidden = torch.from_numpy(rng.standard_normal((40, 3)))
    scores = torch.from_numpy(rng.integers(1, 17, 40) / 16)
    scores[0] = 1
    sampler, workspace = ASGCNSampler([count]), Workspace()
    sampler.set_scores(scores.numpy())
    log_scores = scores.log().requires_grad_()
    exact = exact_variance(graph, seeds, hidden, log_scores.exp(), count)
    (exact_gradient,) = torch.autograd.grad(exact, log_scores)
    degrees = torch.from_numpy(graph.in_degrees()).double()
    values, gradients = [], []
    for batch in range(400):
        sampled = sampler.sample(graph, seeds, batch=batch, workspace=workspace).to("cpu")
        nodes, block = sampled.node_ids.long(), sampled.blocks[0]
        draws, probabilities = sampled.extra["draws0"], sampled.extra["probabilities0"].double()
        value = sampling_variance(block, hidden[nodes], degrees[nodes[: block.num_dst]], draws, probabilities, log_scores[nodes])
        values.append(value.item())
        gradients.append(torch.autograd.grad(value, log_scores)[0].numpy())
    for found, expected in ((np.array(values)[:, None], exact.item()), (np.array(gradients), exact_gradient.numpy())):
        error, spread = found.mean(0) - expected, found.std(0, ddof=1) / np.sqrt(len(found))
        seen = np.count_nonzero(found, 0) > 60  # the mean of a rarely drawn node is not normally distributed
        assert seen.any()
        assert (np.abs(error)[seen] < 4 * spread[seen]).all()
    assert (np.abs(exact_gradient.numpy()) > 10 * spread).any()  # a zero gradient, or one with the wrong sign, would fail


@pytest.mark.parametrize("count", [0, 1])
def test_too_few_draws_change_nothing(graph, count):
    seeds = np.array([0]) if count else np.array([graph.num_nodes - 1])  # the last nodes have no in-edges
    sampled = ASGCNSampler([1]).sample(graph, seeds).to("cpu")
    nodes, block = sampled.node_ids.long(), sampled.blocks[0]
    scores = torch.zeros(len(nodes), requires_grad=True)
    draws, probabilities = sampled.extra["draws0"], sampled.extra["probabilities0"]
    assert draws.sum() == count
    assert sampling_variance(block, torch.ones(len(nodes), 2), torch.ones(1), draws, probabilities, scores).item() == 0


class Stop(Callback):
    def __init__(self, step):
        self.step = step

    def on_train_batch_end(self, trainer, *arguments):
        if trainer.global_step == self.step:
            raise KeyError("power cut")


def fit(dataset, folder, num_workers, variance_weight=0.5, callbacks=(), ckpt_path=None, epochs=3):
    if not (folder / "data").exists():
        dataset.save(folder / "data")
    torch.manual_seed(0)
    module = NodeDataModule(str(folder / "data"), ASGCNSampler([40, 40]), batch_size=30, num_workers=num_workers, seed=4)
    model = AdaptiveNodeClassifier(module.num_features, module.num_classes, module.num_hops, variance_weight, hidden_channels=8, lr=0.02)
    trainer = Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        callbacks=list(callbacks),
        use_distributed_sampler=False,
        num_sanity_val_steps=0,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=bool(callbacks),
        logger=False,
    )
    trainer.fit(model, module, ckpt_path=ckpt_path)
    return module.sampler, model


@pytest.mark.promise
@pytest.mark.filterwarnings("ignore")  # Lightning's warnings about a small run
def test_scores_are_learnt_and_reach_the_sampler(dataset, tmp_path):
    sampler, model = fit(dataset, tmp_path, 0, epochs=2)
    assert model.sampled_epoch == 1
    assert model.scorer.weight.abs().min() > 0
    expected = ASGCNSampler([1])
    x = torch.from_numpy(dataset.x)
    expected.set_scores((x @ model.sampled_by[:-1] + model.sampled_by[-1]).clamp(min=2**-10).numpy())
    found, wanted = (own.checked_scores(dataset.graph) for own in (sampler, expected))
    assert len(set(found.tolist())) > 100
    assert np.abs(found.astype(int) - wanted).max() <= 1  # sums in another order may round differently
    _, with_workers = fit(dataset, tmp_path, 1, epochs=2)
    for name, value in model.state_dict().items():
        assert torch.equal(value, with_workers.state_dict()[name]), name


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("stop", [6, 8])
def test_a_resumed_run_ends_the_same(dataset, tmp_path, stop):
    """A run stopped within or at the end of the second epoch and resumed ends with the same weights; an epoch has 4 steps."""
    _, whole = fit(dataset, tmp_path, 0)
    checkpoints = ModelCheckpoint(tmp_path / "checkpoints", every_n_train_steps=1, save_top_k=-1, filename="{step}")
    with pytest.raises(KeyError):
        fit(dataset, tmp_path, 0, callbacks=[checkpoints, Stop(stop + 1)])
    _, resumed = fit(dataset, tmp_path, 0, ckpt_path=tmp_path / "checkpoints" / f"step={stop}.ckpt")
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name


@pytest.mark.filterwarnings("ignore")
def test_without_the_variance_scores_stay(dataset, tmp_path):
    sampler, _ = fit(dataset, tmp_path, 0, variance_weight=0.0, epochs=2)
    assert len(set(sampler.checked_scores(dataset.graph).tolist())) == 1


@pytest.mark.filterwarnings("ignore")
def test_it_needs_its_sampler(dataset, tmp_path):
    dataset.save(tmp_path / "data")
    module = NodeDataModule(str(tmp_path / "data"), LadiesSampler([5]), num_workers=0)
    model = AdaptiveNodeClassifier(module.num_features, module.num_classes, 1)
    trainer = Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
    with refused("LadiesSampler", "AdaptiveNodeClassifier learns scores", "ASGCNSampler use"):
        trainer.fit(model, module)
    with refused("variance_weight is -1", "least 0", "0 more"):
        AdaptiveNodeClassifier(3, 2, 1, -1)
