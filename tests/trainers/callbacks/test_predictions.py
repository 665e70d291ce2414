"""Predictions: of graphs without labels, of new nodes and of some nodes, and the files that they are written into."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas
import pytest
import torch
from cases.mistakes import refused
from pytorch_lightning import LightningModule, Trainer
from torchmetrics.classification import MulticlassF1Score

from hoptrain.engine import Dataset, Graph
from hoptrain.engine.datasets.tables.plain import write_ids
from hoptrain.samplers import NeighborSampler
from hoptrain.trainers import NodeClassifier, NodeDataModule
from hoptrain.trainers.callbacks.predictions import PredictionWriter, own_ids, read_nodes
from hoptrain.trainers.metrics.labels import Labels

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's advice on a run this small


def predict(task, module, *callbacks):
    trainer = Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False, callbacks=[*callbacks])
    return torch.cat(trainer.predict(task, module))


def module_of(data, **options):
    return NodeDataModule(data, NeighborSampler([3, 3]), num_workers=0, batch_size=64, seed=0, **options)


@pytest.fixture
def larger(dataset):
    """Return the random data set without labels, and with one more node, whose only in-neighbour is node 3."""
    graph, number = dataset.graph, dataset.graph.num_nodes
    ends = np.append(graph.indices, 3), np.append(graph.destinations(), number)
    return Dataset(name="larger", graph=Graph.from_edges(*ends, number + 1), x=np.concatenate([dataset.x, dataset.x[:1]]))


def test_new_nodes_of_a_graph_without_labels(dataset, larger):
    torch.manual_seed(0)
    task = NodeClassifier(7, 3, 2, hidden_channels=8)
    rows = predict(task, module_of(larger))
    assert rows.shape == (len(larger.x), 3)
    torch.testing.assert_close(rows[:-1], predict(task, module_of(dataset)))
    module = module_of(larger)
    module.predict_ids = [len(larger.x) - 1, 5]
    torch.testing.assert_close(predict(task, module), rows[[-1, 5]])
    sampled = module_of(larger, eval_sampler=NeighborSampler([-1, -1]))
    torch.testing.assert_close(predict(task, sampled), rows, rtol=1e-4, atol=1e-5)
    with refused("larger", "no labels", "task: links"):
        Trainer(accelerator="cpu", logger=False, enable_progress_bar=False).validate(task, module)


@pytest.mark.parametrize("suffix", ["npy", "csv"])
def test_outputs_are_written_with_the_ids_of_the_user(dataset, tmp_path, capsys, suffix):
    dataset.save(tmp_path / "data")
    write_ids(tmp_path / "data", np.array([f"n{number}" for number in range(dataset.graph.num_nodes)]))
    module, path = module_of(str(tmp_path / "data")), tmp_path / f"made.{suffix}"
    (tmp_path / "ids.txt").write_text("n5\nn2\n")
    module.predict_ids = read_nodes(tmp_path / "ids.txt", module.data)
    torch.manual_seed(0)
    rows = predict(NodeClassifier(7, 3, 2, hidden_channels=8), module, PredictionWriter(str(path))).numpy()
    if suffix == "npy":
        written, ids = np.load(path), np.load(tmp_path / "made_ids.npy").tolist()
    else:
        table = pandas.read_csv(path)
        assert table["class"].tolist() == rows.argmax(1).tolist()
        written, ids = table[["logit_0", "logit_1", "logit_2"]].to_numpy(np.float32), table["id"].tolist()
    assert ids == ["n5", "n2"]
    np.testing.assert_array_equal(written, rows)
    assert capsys.readouterr().out.splitlines()[-1] == f"all outputs of 2 ids, in order: {path}"


def test_rows_are_in_the_order_of_the_ids_however_ranks_shared_them(tmp_path):
    path, writer = tmp_path / "made.csv", PredictionWriter(str(tmp_path / "made.csv"))
    data = SimpleNamespace(meta={"classes": ["bird", "cat"]}, path=None)
    module = SimpleNamespace(data=data, predict_ids=None, items_to_predict=lambda: np.arange(4))
    trainer = SimpleNamespace(datamodule=module, world_size=1, is_global_zero=True, log_dir=None, default_root_dir=str(tmp_path))
    task, outputs = SimpleNamespace(labels=Labels("classes", 2)), torch.eye(2)[[0, 1, 1, 0]]
    writer.on_predict_start(trainer, task)
    for number, seeds in enumerate((torch.tensor([2, 0]), torch.tensor([3, 1]))):
        batch = SimpleNamespace(seeds=seeds)
        writer.on_predict_batch_end(trainer, task, outputs[2 * number : 2 * number + 2], batch, number)
    writer.write_on_epoch_end(trainer, task, list(outputs.split(2)), None)
    assert path.read_text().splitlines() == ["id,class,logit_0,logit_1", "0,cat,0,1", "1,bird,1,0", "2,bird,1,0", "3,cat,0,1"]


def test_ids_are_read_from_arrays_and_tables(dataset, tmp_path):
    np.save(tmp_path / "ids.npy", [4, 1])
    (tmp_path / "ids.csv").write_text("name,id\nx,4\ny,1\n")
    assert [read_nodes(tmp_path / name, dataset).tolist() for name in ("ids.npy", "ids.csv")] == [[4, 1]] * 2
    dataset.save(tmp_path / "data")
    write_ids(tmp_path / "data", 1000 + np.arange(dataset.graph.num_nodes))
    data = Dataset.open(tmp_path / "data")
    assert own_ids(data)[:2].tolist() == [1000, 1001]
    np.save(tmp_path / "ids.npy", [1004, 1001])
    assert read_nodes(tmp_path / "ids.npy", data).tolist() == [4, 1]
    with refused("4", "ids.csv random no node id", "drop"):
        read_nodes(tmp_path / "ids.csv", data)
    with refused("none.npy", "cannot be read", "give .npy .csv .txt .parquet"):
        read_nodes(tmp_path / "none.npy", data)


def test_predict_ids_may_be_ids_of_the_tables(dataset, tmp_path):
    """Strings are ids of the tables, integers are node numbers; an id given as an integer is an error that names its node."""
    dataset.save(tmp_path / "data")
    write_ids(tmp_path / "data", 1000 + np.arange(dataset.graph.num_nodes))
    module = module_of(str(tmp_path / "data"))
    for ids in (["1005", "1002"], np.array(["1005", "1002"]), [5, 2], torch.tensor([5, 2])):
        module.predict_ids = ids
        assert module.items_to_predict().tolist() == [5, 2]
    module.predict_ids = [1005]
    with refused("1005", "predict_ids integers node numbers 200", "node 5 string"):
        module.items_to_predict()
    module.predict_ids = ["5"]
    with refused("5", "predict_ids random no node id", "drop"):
        module.items_to_predict()


class Flat(torch.nn.Module):
    """A model over blocks that returns the first columns of the seeds' features."""

    def __init__(self, width=3):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width))

    def forward(self, x, blocks):
        return x[: blocks[-1].num_dst, : len(self.weight)] * self.weight


class Alone(LightningModule):
    """A LightningModule that is no task of hoptrain."""

    def __init__(self, width=3):
        super().__init__()
        self.net = Flat(width)

    def predict_step(self, batch, batch_idx):
        return self.net(batch.x, batch.blocks)


def header_and_line(task, module, path, capsys):
    """Predict, and return the table's header, its column class and the printed line about classes."""
    capsys.readouterr()
    predict(task, module, PredictionWriter(str(path)))
    table = pandas.read_csv(path)
    said = [line for line in capsys.readouterr().out.splitlines() if "no column class" in line]
    return ",".join(table.columns), table.get("class"), said


def test_own_models_get_classes(dataset, larger, tmp_path, capsys):
    """With a loss, a metric and a model of one's own; also for data without labels, since the checkpoint knows what was learnt."""
    metric, loss = MulticlassF1Score(3, average="macro"), torch.nn.CrossEntropyLoss(label_smoothing=0.1)
    task = NodeClassifier(model=Flat(), loss=loss, metric=metric)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = Trainer(max_epochs=1, accelerator="cpu", **quiet)
    trainer.fit(task, module_of(dataset))
    trainer.save_checkpoint(tmp_path / "own.ckpt")
    logits = "logit_0,logit_1,logit_2"
    names = replace(dataset, meta={"classes": ["ant", "bee", "cat"]})
    header, classes, said = header_and_line(task, module_of(names), tmp_path / "own.csv", capsys)
    assert (header, set(classes) <= {"ant", "bee", "cat"}, said) == (f"id,class,{logits}", True, [])
    loaded = NodeClassifier.load_from_checkpoint(tmp_path / "own.ckpt", model=Flat(), metric=metric, loss=loss)
    header, classes, said = header_and_line(loaded, module_of(larger), tmp_path / "new.csv", capsys)
    assert (header, set(classes) <= {0, 1, 2}, said) == (f"id,class,{logits}", True, [])


def test_a_module_of_ones_own_gets_classes_if_its_outputs_may_be_logits(dataset, larger, tmp_path, capsys):
    whole = {"eval_sampler": NeighborSampler([-1, -1])}
    header, classes, said = header_and_line(Alone(), module_of(dataset, **whole), tmp_path / "a.csv", capsys)
    assert (header, classes.notna().all(), said) == ("id,class,output_0,output_1,output_2", True, [])
    named = replace(larger, meta={"classes": ["ant", "bee", "cat"]})
    header, classes, said = header_and_line(Alone(), module_of(named, **whole), tmp_path / "b.csv", capsys)
    assert (header, set(classes) <= {"ant", "bee", "cat"}, said) == ("id,class,output_0,output_1,output_2", True, [])
    header, classes, (said,) = header_and_line(Alone(), module_of(larger, **whole), tmp_path / "c.csv", capsys)
    assert header == "id,output_0,output_1,output_2"
    assert "larger has neither labels nor names of classes" in said
    header, classes, (said,) = header_and_line(Alone(2), module_of(dataset, **whole), tmp_path / "d.csv", capsys)
    assert header == "id,output_0,output_1"
    assert "outputs have 2 columns, and there are 3 classes" in said
    header, _, said = header_and_line(
        Alone(2), module_of(replace(dataset, y=np.linspace(0, 1, 200), num_classes=1), **whole), tmp_path / "e.csv", capsys
    )
    assert (header, said) == ("id,output_0,output_1", [])


def test_the_first_line_of_a_file_of_ids(dataset, tmp_path):
    dataset.save(tmp_path / "data")
    write_ids(tmp_path / "data", np.array(["time", "ann", *map(str, range(dataset.graph.num_nodes - 2))], object))
    data, path = Dataset.open(tmp_path / "data"), tmp_path / "ids.csv"
    path.write_text("id\ntime\nann\n")
    assert read_nodes(path, data).tolist() == [0, 1]
    path.write_text("time\nann\n")
    with refused("time", "ids.csv read column name also id node", "write line id above"):
        read_nodes(path, data)
    path.write_text("person\nann\n")
    with refused("person", "random no node id", "column name, replace id"):
        read_nodes(path, data)


def test_mistakes(dataset, monkeypatch):
    with refused("'.txt'", "suffix one .npy, .csv, .parquet"):
        PredictionWriter("made.txt")
    monkeypatch.setattr("hoptrain.trainers.callbacks.predictions.find_spec", lambda name: None)
    with refused("made.parquet", "pyarrow not installed", "pip install hoptrain[parquet] .csv .npy"):
        PredictionWriter("made.parquet")
    module = module_of(replace(dataset, name="few"))
    for ids, value, rule, remedy in (
        ([0.5], "float64", "predict_ids node number id", "give array integers strings"),
        ([3, 10_000], "10000", "few predict_ids node numbers 200", "drop"),
        (["3", "n5"], "n5", "few predict_ids no node id", "drop"),
        ([3, 3], "3", "seed twice", "each once"),
    ):
        module.predict_ids = ids
        with refused(value, rule, remedy):
            module.predict_dataloader()
