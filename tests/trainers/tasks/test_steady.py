"""Steady states (SSE): updates follow the definition, gradients do not change the table, and resumed runs have bit-identical tables."""

import numpy as np
import pytest
import torch
from cases.mistakes import Mistake, each_of
from pytorch_lightning import Trainer, seed_everything

from hoptrain.engine import Dataset
from hoptrain.samplers import NeighborSampler
from hoptrain.trainers.tasks.sse import SteadyDataModule, SteadyStateClassifier

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's warnings about a small run
NUM = 50


@pytest.fixture(scope="module")
def data():
    """Return 50 nodes with parallel edges and self loops, some without in-edges, whose features determine their classes."""
    rng = np.random.default_rng(4)
    x = rng.random((NUM, 6), dtype=np.float32)
    edges = np.stack([rng.integers(0, NUM, 300), rng.integers(0, NUM - 4, 300)])
    order = rng.permutation(NUM)
    splits = {"train": order[:25], "val": order[25:35], "test": order[35:]}
    return Dataset(name="fifty", edge_index=edges, x=x, y=x[:, :3].argmax(1), splits=splits)


def run(data, folder, epochs, ckpt_path=None, **options):
    """Return the task after training, with its trainer."""
    seed_everything(7)
    module = SteadyDataModule(data, NeighborSampler([-1]), batch_size=10, num_workers=0, seed=3)
    sizes = (module.num_features, module.num_classes, module.num_hops, module.num_nodes)
    task = SteadyStateClassifier(*sizes, **{"state_channels": 4, "hidden_channels": 8, "num_updates": 30, "lr": 0.02} | options)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "use_distributed_sampler": False}
    trainer = Trainer(default_root_dir=folder, max_epochs=epochs, accelerator="cpu", num_sanity_val_steps=0, **quiet)
    trainer.fit(task, module, ckpt_path=ckpt_path, weights_only=True)
    return task, trainer


def by_definition(task, data, nodes):
    """Compute T(v) of each node by a loop over its in-edges."""
    graph, states = data.graph, task.states
    rows = torch.cat([torch.from_numpy(data.x), states], 1)
    found = []
    for node in nodes:
        sources = torch.from_numpy(graph.indices[graph.indptr[node] : graph.indptr[node + 1]].astype(np.int64))
        mean = rows[sources].mean(0) if len(sources) else torch.zeros(rows.shape[1])
        found.append(task.steady.operator(torch.cat([torch.from_numpy(data.x[node]), mean])))
    return torch.stack(found)


def test_an_update_is_that_of_the_definition(data, tmp_path):
    task, _ = run(data, tmp_path, 1, update_rate=0.25)
    before = task.states.clone()
    task.eval()
    with torch.no_grad():
        wanted = 0.75 * before + 0.25 * by_definition(task, data, range(NUM))
    drawn = task.update_states(3, 9, 1).numpy()
    others = np.setdiff1d(np.arange(NUM), drawn)
    assert 10 < len(drawn) <= 30
    torch.testing.assert_close(task.states[drawn], wanted[drawn], rtol=1e-5, atol=1e-6)
    assert torch.equal(task.states[others], before[others])
    assert not np.array_equal(drawn, task.update_states(3, 9, 2).numpy())


def test_scores_are_the_readout_of_the_operator(data, tmp_path):
    task, _ = run(data, tmp_path, 2)
    nodes = np.array([49, 0, 7])
    with torch.no_grad():
        wanted = task.eval().steady.readout(by_definition(task, data, nodes))
    torch.testing.assert_close(task.infer(nodes), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.promise
def test_it_learns_and_the_states_come_to_rest(data, tmp_path):
    task, trainer = run(data, tmp_path, 60, num_updates=200)
    assert trainer.callback_metrics["train_acc"] > 0.9
    task.eval()
    for step in range(60):
        task.update_states(1, 0, step)
    before = task.states.clone()
    task.update_states(1, 1, 0)
    assert (task.states - before).norm() < 1e-2 * before.norm()
    assert not task.states.requires_grad


def test_a_resumed_run_has_a_bit_identical_table(data, tmp_path):
    whole, _ = run(data, tmp_path, 4, dropout=0.3)
    _, first = run(data, tmp_path, 2, dropout=0.3)
    first.save_checkpoint(tmp_path / "two.ckpt")
    resumed, _ = run(data, tmp_path, 4, tmp_path / "two.ckpt", dropout=0.3)
    assert whole.states.abs().sum() > 0
    assert all(torch.equal(tensor, whole.state_dict()[name]) for name, tensor in resumed.state_dict().items())


def classifier(**options):
    return SteadyStateClassifier(**{"in_channels": 6, "num_classes": 3, "num_layers": 1, "num_nodes": NUM} | options)


MISTAKES = {
    "a sampler of two hops": Mistake(
        lambda: classifier(num_layers=2), value="2 hops", rule="sampler sse states one", remedy="one fanout [-1]"
    ),
    "no updates": Mistake(lambda: classifier(num_updates=0), value="num_updates is 0", rule="least 1", remedy="give 64"),
    "a step of nothing": Mistake(
        lambda: classifier(update_rate=0.0), value="update_rate is 0.0", rule="weight new state (0, 1]", remedy="give 0.5"
    ),
    "all dropped": Mistake(lambda: classifier(dropout=1.0), value="dropout is 1.0", rule="share drop [0, 1)", remedy="give 0.5"),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
