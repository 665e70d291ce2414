"""Classification on heterogeneous graphs: training, resumed runs, and invalid data."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml
from cases.mistakes import Mistake, each_of
from pytorch_lightning import Callback, Trainer
from pytorch_lightning.callbacks import ModelCheckpoint
from reference.hetero_data import ENDS, NUM_NODES, hetero_classifier, hetero_data, hetero_graph, hetero_module, sizes_of

from hoptrain.engine import Dataset, HeteroGraph
from hoptrain.samplers import HeteroSampler, NeighborSampler, SampleLoader
from hoptrain.trainers import HeteroClassifier, HeteroDataModule
from hoptrain.trainers.commands.lightning import run
from hoptrain.trainers.pipeline import PipelineStrategy

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's warnings about a small run


class Stop(Callback):
    def on_train_batch_end(self, trainer, *arguments):
        if trainer.global_step == 6:
            raise KeyError("power cut")


def fit(folder, workers=0, callbacks=(), **options):
    """Train three epochs of four steps, and return the weights and the optimiser's state."""
    torch.manual_seed(0)
    module = hetero_module(str(folder / "data"), num_workers=workers)
    model = hetero_classifier(module)
    checkpoints = ModelCheckpoint(folder / "checkpoints", every_n_train_steps=1, save_top_k=-1, filename="{step}")
    trainer = Trainer(
        max_epochs=3, accelerator="cpu", callbacks=[checkpoints, *callbacks], use_distributed_sampler=False, num_sanity_val_steps=0,
        enable_progress_bar=False, enable_model_summary=False, logger=False, default_root_dir=folder,
    )  # fmt: skip
    trainer.fit(model, module, weights_only=True, **options)
    state = trainer.optimizers[0].state_dict()["state"]
    moments = {f"{number}.{name}": torch.as_tensor(value) for number, own in state.items() for name, value in own.items()}
    return {name: value.clone() for name, value in model.state_dict().items()} | moments


def test_killed_and_resumed_with_other_workers(tmp_path):
    """A run with two workers that is killed in the second epoch and resumed without workers is bit-identical, even in Adam's moments."""
    hetero_data().save(tmp_path / "data")
    whole = fit(tmp_path)
    for file in (tmp_path / "checkpoints").iterdir():
        file.unlink()
    with pytest.raises(KeyError):
        fit(tmp_path, workers=2, callbacks=[Stop()])
    resumed = fit(tmp_path, ckpt_path=tmp_path / "checkpoints" / "step=5.ckpt")
    assert any("exp_avg" in name for name in whole)
    assert whole.keys() == resumed.keys()
    assert [name for name in whole if not torch.equal(whole[name], resumed[name])] == []


@pytest.mark.promise
def test_the_command_line_learns_tests_and_predicts(tmp_path, capsys):
    hetero_data().save(tmp_path / "data")
    sampler = {"class_path": "hoptrain.samplers.HeteroSampler", "init_args": {"fanouts": [4, 4], "seed_type": "paper"}}
    options = {
        "task": "hetero",
        "data": {"dataset": str(tmp_path / "data"), "sampler": sampler, "batch_size": 16, "num_workers": 0},
        "model": {"hidden_channels": 16, "embeddings": True, "lr": 0.02, "dropout": 0.2},
        "trainer": {
            "max_epochs": 15, "accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False,
            "default_root_dir": str(tmp_path / "runs"),
        },
    }  # fmt: skip
    config = tmp_path / "run.yaml"
    config.write_text(yaml.safe_dump(options))
    cli = run(["fit", "--config", str(config)])
    assert cli.trainer.callback_metrics["test_acc"] > 0.7
    assert f"test accuracy {cli.trainer.callback_metrics['test_acc']:.3f}" in capsys.readouterr().out
    best = cli.trainer.checkpoint_callback.best_model_path
    run(["predict", "--config", str(config), "--trainer.default_root_dir", str(tmp_path / "scores"), "--ckpt_path", best])
    assert np.load(tmp_path / "scores" / "predictions.npy").shape == (90, 3)


def test_a_model_learns_from_edge_features(tmp_path):
    """A model learns classes from edge features, as node features are noise; the command line gets their width from the data."""
    data, relation = hetero_data(), ("author", "writes", "paper")
    columns, x = data.graph.relations[relation], np.random.default_rng(1).random((90, 3), dtype=np.float32)
    rows = np.empty((columns.num_edges, 3), np.float32)
    rows[columns.ids_of(np.arange(columns.num_edges))] = np.eye(3)[data.y[columns.destinations()]]
    splits = {split: ids[ids < 80] for split, ids in data.splits.items()}  # the other nodes have no neighbours
    replace(data, x=data.x | {"paper": x}, edge_attr={relation: rows}, splits=splits).save(tmp_path / "data")
    sampler = {"class_path": "hoptrain.samplers.HeteroSampler", "init_args": {"fanouts": [4], "seed_type": "paper"}}
    options = {
        "task": "hetero",
        "data": {"dataset": str(tmp_path / "data"), "sampler": sampler, "batch_size": 16, "num_workers": 0},
        "model": {"arch": "transformer", "hidden_channels": 16, "embeddings": True, "lr": 0.05, "dropout": 0.0},
        "trainer": {
            "max_epochs": 8, "check_val_every_n_epoch": 4, "accelerator": "cpu", "logger": False, "enable_progress_bar": False,
            "enable_model_summary": False, "default_root_dir": str(tmp_path / "runs"),
        },
    }  # fmt: skip
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(options))
    cli = run(["fit", "--config", str(tmp_path / "run.yaml")])
    assert cli.model.hparams["edge_channels"] == {"author:writes:paper": 3}
    assert cli.trainer.callback_metrics["test_acc"] > 0.8  # from noise alone, one third


def test_a_step_weighs_seeds_alike(monkeypatch):
    """The loss of a step is the sum over a rank's seeds, divided by the number of seeds of all ranks."""
    module = hetero_module(hetero_data())
    model = hetero_classifier(module, dropout=0.0)
    trainer = Trainer(accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
                      enable_model_summary=False, use_distributed_sampler=False, limit_train_batches=1)  # fmt: skip
    trainer.fit(model, module)
    batch = next(iter(module.train_dataloader())).to("cpu")
    monkeypatch.setattr(model, "log", lambda *arguments, **options: None)
    one = model.training_step(batch, 0)
    two = model.training_step(replace(batch, num_step_seeds=2 * batch.num_seeds), 0)
    torch.testing.assert_close(one, 2 * two)
    torch.testing.assert_close(one, torch.nn.functional.cross_entropy(model(batch), batch.y))


def without(relation=None, kind=None, left=0):
    """Return the graph without edges of a relation, or without edges and nodes of a type, except for some nodes."""
    graph = hetero_graph()
    numbers = NUM_NODES | ({kind: left} if kind else {})
    none = np.empty(0, np.int64)
    columns = {}
    for key, own in graph.relations.items():
        is_bare = key[1] == relation or kind in key
        columns[key] = (np.zeros(numbers[key[2]] + 1, np.int64), none) if is_bare else (own.indptr, own.indices)
    return HeteroGraph(numbers, columns)


def test_relations_out_of_reach_are_left_out():
    module = hetero_module(hetero_data(graph=without("on")), fanouts=(3,))  # a model with one layer
    assert len(ENDS) == len(module.relations)


def with_named_splits(data):
    return replace(data, splits={f"{name}_20": ids for name, ids in data.splits.items()})


def test_splits_by_name():
    data = hetero_data()
    module = hetero_module(with_named_splits(data), splits="20")
    assert {name: len(ids) for name, ids in module.data.splits.items()} == {"train": 50, "val": 20, "test": 20}


def test_the_type_of_seeds_is_that_of_the_data_unless_it_is_given():
    data, given = hetero_data(), HeteroSampler([2])
    module = HeteroDataModule(data, given, num_workers=0, seed=0, batch_size=8)
    assert (module.sampler.seed_type, given.seed_type) == ("paper", None)
    one, other = (next(iter(SampleLoader(data, sampler, batch_size=8))) for sampler in (given, HeteroSampler([2], "paper")))
    assert one.node_ids["paper"].tolist() == other.node_ids["paper"].tolist()
    assert f"x.author {one.x['author'].shape}" in repr(one)
    assert f"y {one.y.shape}" in repr(one)


def test_nodes_of_a_graph_without_labels_are_predicted():
    torch.manual_seed(0)
    module, bare = hetero_module(hetero_data()), hetero_module(hetero_data(y=None, splits={}))
    task = hetero_classifier(module)
    scores = [torch.cat(quiet_trainer().predict(task, own)) for own in (module, bare)]
    assert torch.equal(*scores)
    bare.predict_ids = [3, 1]
    torch.testing.assert_close(torch.cat(quiet_trainer().predict(task, bare)), scores[0][[3, 1]])


@pytest.mark.parametrize("arch", ["rgcn", "hgt", "han"])
def test_a_type_without_nodes_counts_as_one_without_edges(arch):
    """New data may lack nodes of a type, such as papers whose authors are unknown."""
    torch.manual_seed(0)
    task = hetero_classifier(hetero_module(hetero_data()), arch=arch)
    papers = hetero_data().x["paper"]
    graphs = {left: without(kind="author", left=left) for left in (0, 1)}
    data = [
        hetero_data(graph=graph, x={"paper": papers, "author": np.ones((left, 5))}, y=None, splits={}) for left, graph in graphs.items()
    ]
    scores = [torch.cat(quiet_trainer().predict(task, hetero_module(own))) for own in data]
    torch.testing.assert_close(*scores)


def load(**changes):
    """Return the training loader of a data module whose data have the given changes."""
    return hetero_module(hetero_data(**changes)).train_dataloader()


def quiet_trainer():
    return Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False)


def data_of_one_type(dataset):
    HeteroDataModule(Dataset(name="plain", graph=dataset.graph, x=dataset.x, y=dataset.y), HeteroSampler([2], "paper"))


def fit_a_model_of_fewer_nodes():
    module = hetero_module(hetero_data())
    fewer = HeteroClassifier(**sizes_of(module) | {"num_nodes": {"subject": 11}, "embeddings": True})
    quiet_trainer().fit(fewer, module)


def fit_a_model_without_edge_features():
    without_edges = hetero_classifier(hetero_module(hetero_data()), arch="gatv2")
    with_edges = hetero_module(hetero_data(edge_attr={("author", "writes", "paper"): np.ones((400, 2))}))
    quiet_trainer().fit(without_edges, with_edges)


def run_without_a_data_module():
    module = hetero_module(hetero_data())
    quiet_trainer().test(hetero_classifier(module), module.test_dataloader(), verbose=False)


def run_in_a_pipeline():
    strategy = PipelineStrategy(stages=2, chunks=2, balance=[1, 1])
    strategy.check(hetero_classifier(hetero_module(hetero_data())), SimpleNamespace(world_size=2))


MISTAKES = {
    "no labels": Mistake(
        lambda: hetero_module(hetero_data(y=None)).num_classes, value="mixed", rule="no labels hetero type paper", remedy="give y"
    ),
    "a relation without edges": Mistake(
        lambda: load(graph=without("of")), value="subject:of:paper", rule="relation no edges learnt", remedy="remove"
    ),
    "a type without nodes": Mistake(
        lambda: load(graph=without(kind="subject")), value="type subject", rule="no nodes learnt", remedy="remove relations"
    ),
    "no splits": Mistake(
        lambda: load(splits={}), value="'train'", rule="mixed no split none", remedy="with_random_splits() --data.splits random ids"
    ),
    "an unknown split": Mistake(
        lambda: hetero_module(with_named_splits(hetero_data()), splits="40"),
        value="'40'",
        rule="splits mixed no split train_40 train_20 val_20 test_20",
        remedy="--data.splits null random own_hetero",
    ),
    "a sampler of plain graphs": Mistake(
        lambda: HeteroDataModule(hetero_data(), NeighborSampler([2])),
        value="NeighborSampler",
        rule="heterogeneous graph homogeneous",
        remedy="HeteroSampler",
    ),
    "a sampler for seeds of another type": Mistake(
        lambda: HeteroDataModule(hetero_data(), HeteroSampler([2], "author")),
        value="'author'",
        rule="seed_type mixed 'paper'",
        remedy="sampler data",
    ),
    "data of one type": Mistake(data_of_one_type, value="a Dataset", rule="data name HeteroDataset", remedy="give one"),
    "a model of fewer nodes": Mistake(
        fit_a_model_of_fewer_nodes, value="{'subject': 11}", rule="model num_nodes mixed 12", remedy="data sampler"
    ),
    "a model without features of edges": Mistake(
        fit_a_model_without_edge_features, value="{}", rule="model edge_channels mixed 'author:writes:paper': 2", remedy="data sampler"
    ),
    "batches without a data module": Mistake(
        run_without_a_data_module, value="HeteroClassifier", rule="needs graph", remedy="datamodule=HeteroDataModule("
    ),
    "a pipeline": Mistake(run_in_a_pipeline, value="HeteroClassifier", rule="pipeline", remedy="NodeClassifier chunks"),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
