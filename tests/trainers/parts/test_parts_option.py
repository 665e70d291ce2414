"""The option ``partitions`` of a data module: one machine with all parts learns what it does without, and what does not go with parts is one line."""

import pytest
from pytorch_lightning import Trainer, seed_everything

from hoptrain import GraphDataModule, LinkDataModule, NeighborSampler, NodeClassifier
from hoptrain.engine import InputError, load_dataset
from hoptrain.engine.partition.folder import write_partition
from hoptrain.samplers import LinkSampler
from hoptrain.trainers.watch.member import report


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("option") / "parts"
    write_partition(load_dataset("digits-knn"), folder, 3, "range")
    return str(folder)


def learnt(**options):
    """Weights after two steps, and the scores of an exact evaluation."""
    seed_everything(1)
    data = GraphDataModule("digits-knn", NeighborSampler([3, 3]), batch_size=64, num_workers=0, seed=1, **options)
    task = NodeClassifier(data.num_features, data.num_classes, num_layers=2, hidden_channels=8)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = Trainer(max_epochs=1, limit_train_batches=2, accelerator="cpu", use_distributed_sampler=False, **quiet)
    trainer.fit(task, data)
    return {name: tensor.numpy().tobytes() for name, tensor in task.state_dict().items()}, float(trainer.callback_metrics["val_loss"])


@pytest.mark.filterwarnings("ignore")  # Lightning's advice on a run this small
def test_one_machine_with_all_parts(parts):
    assert learnt(partitions=parts) == learnt()


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"dataset": "cora"}, r"dataset is cora, and .*parts holds the parts of digits-knn: set dataset to digits-knn"),
        ({"features": "walks"}, r"features is walks with partitions: features lie in the parts, .* leave it out"),
        ({"in_memory": True}, r"in_memory is True with partitions: .* leave it out"),
        ({"root": "somewhere"}, r"root is somewhere with partitions: .* leave it out"),
        ({"scale": 0.5}, r"scale is 0.5, and .*parts holds the parts of digits-knn at 1.0: correct it"),
        ({"partitions": "nowhere"}, r"nowhere holds no parts of a data set"),
    ],
)
def test_what_does_not_go_with_parts(parts, options, line):
    with pytest.raises(InputError, match=line):
        GraphDataModule(**({"dataset": "digits-knn", "sampler": NeighborSampler([3]), "partitions": parts} | options))


def test_tasks_without_parts(parts):
    with pytest.raises(InputError, match=r"partitions with LinkDataModule: parts are for tasks on vertices, as task: nodes; leave it out"):
        LinkDataModule("digits-knn", LinkSampler(NeighborSampler([3])), partitions=parts)


def test_a_connection_that_broke_is_no_first_cause():
    kind, _ = report(InputError("rows of other machines do not come any more: one of them has ended, and says why (gloo: closed)"))
    assert kind == "lost"
