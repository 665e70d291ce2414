"""Link prediction: what is trained on, what is evaluated, and a run of the command line that learns."""

import numpy as np
import pytest
import torch
import yaml
from pytorch_lightning import Trainer
from pytorch_lightning.callbacks import RichProgressBar

from hoptrain.engine import Dataset, Graph, InputError
from hoptrain.samplers import LinkSampler, NeighborSampler
from hoptrain.trainers.commands.lightning import run
from hoptrain.trainers.runs.callbacks import ProgressBar
from hoptrain.trainers.tasks.links import LinkDataModule, LinkPredictor, scores_of

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's advice on a run this small


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Four groups with links inside, told by noisy features; no labels."""
    rng = np.random.default_rng(0)
    group = np.arange(200) % 4
    src, dst = rng.integers(0, 200, (2, 6000))
    near = (group[src] == group[dst]) & (src != dst)
    src, dst = src[near], dst[near]
    x = np.eye(4, dtype=np.float32)[group] + rng.normal(0, 0.5, (200, 4)).astype(np.float32)
    path = tmp_path_factory.mktemp("links") / "data"
    Dataset(name="groups", graph=Graph.from_edges(np.r_[src, dst], np.r_[dst, src], 200), x=x).save(path)
    return path


def sampler(**options):
    return LinkSampler(NeighborSampler([5, 5]), **options)


@pytest.mark.long
def test_a_run_learns(folder, tmp_path, capsys, monkeypatch):
    options = {
        "task": "links",
        "data": {
            "dataset": str(folder),
            "sampler": {
                "class_path": "hoptrain.samplers.LinkSampler",
                "init_args": {"sampler": {"class_path": "hoptrain.samplers.NeighborSampler", "init_args": {"fanouts": [5, 5]}}},
            },
            "batch_size": 256,
            "num_workers": 0,
        },
        "model": {"hidden_channels": 16, "out_channels": 16, "lr": 0.02},
        "trainer": {
            "max_epochs": 6, "accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False,
            "default_root_dir": str(tmp_path),
        },
    }  # fmt: skip
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(options))
    cli = run(["fit", "--config", str(tmp_path / "run.yaml")])
    assert cli.trainer.callback_metrics["test_auc"] > 0.8
    assert cli.trainer.checkpoint_callback.monitor == "val_auc"
    assert cli.trainer.checkpoint_callback.best_model_score > 0.8
    monkeypatch.setattr(RichProgressBar, "get_metrics", lambda *_: {"val_loss": 1.0, "val_auc": 0.5})
    assert ProgressBar().get_metrics(cli.trainer, cli.model) == {"val": "0.500"}
    assert f"test ROC AUC {cli.trainer.callback_metrics['test_auc']:.3f}" in capsys.readouterr().out


def test_held_out_links_pass_no_message(folder):
    module = LinkDataModule(dataset=str(folder), sampler=sampler(), num_workers=0, batch_size=64)
    graph = module.data.graph
    left = set(zip(graph.indices.tolist(), np.repeat(np.arange(200), graph.in_degrees()).tolist(), strict=True))
    for held in module.held_out.values():
        pairs = held.pairs[:, held.labels > 0].T.tolist()
        assert pairs
        assert not left & ({(u, v) for u, v in pairs} | {(v, u) for u, v in pairs})
    batch = next(iter(module.train_dataloader())).to("cpu")
    nodes, links = batch.node_ids, batch.extra["pairs"][:, batch.extra["labels"] > 0]
    assert {(int(nodes[u]), int(nodes[v])) for u, v in links.T} <= left
    assert len(module.val_dataloader().dataset[0].labels) == len(module.held_out["val"].labels)


def test_scores():
    vectors = torch.tensor([[1.0, 2.0], [3.0, -1.0], [0.0, 2.0]])
    assert scores_of(vectors, torch.tensor([[0, 1], [2, 0]])).tolist() == [4.0, 1.0]


def test_mistakes(folder):
    for wrong in (NeighborSampler([5]), sampler(edges=[0, 1])):
        with pytest.raises(InputError, match="links are dealt out by a LinkSampler without edges"):
            LinkDataModule(dataset=str(folder), sampler=wrong, num_workers=0)
    trainer = Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
    with pytest.raises(InputError, match=r"run it with trainer.fit\(model, datamodule=LinkDataModule"):
        trainer.fit(LinkPredictor(4, 2), [0])
