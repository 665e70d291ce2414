"""The option ``partitions``: one machine with all partitions trains as without the option; conflicts are reported in one line."""

import pytest
from cases.mistakes import Mistake, each_of
from pytorch_lightning import Trainer, seed_everything

from hoptrain import LinkDataModule, NeighborSampler, NodeClassifier, NodeDataModule
from hoptrain.engine import InputError, load_dataset
from hoptrain.engine.partition.folder import write_partition
from hoptrain.samplers import LinkSampler
from hoptrain.trainers.watchdog.rank_agent import report


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("option") / "parts"
    write_partition(load_dataset("digits-knn"), folder, 3, "range")
    return str(folder)


def learnt(**options):
    """Return the weights after two training steps, and the logits of full-neighbour evaluation."""
    seed_everything(1)
    data = NodeDataModule("digits-knn", NeighborSampler([3, 3]), batch_size=64, num_workers=0, seed=1, **options)
    task = NodeClassifier(data.num_features, data.num_classes, num_layers=2, hidden_channels=8)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = Trainer(max_epochs=1, limit_train_batches=2, accelerator="cpu", use_distributed_sampler=False, **quiet)
    trainer.fit(task, data)
    return {name: tensor.numpy().tobytes() for name, tensor in task.state_dict().items()}, float(trainer.callback_metrics["val_loss"])


@pytest.mark.filterwarnings("ignore")  # Lightning's warnings about a small run
def test_one_machine_with_all_parts(parts):
    assert learnt(partitions=parts) == learnt()


def test_a_connection_that_broke_is_no_first_cause():
    kind, _ = report(InputError("the connection to another machine is lost: one of them has ended, and has printed why (gloo: closed)"))
    assert kind == "lost"


def with_parts(parts, **options):
    return NodeDataModule(**({"dataset": "digits-knn", "sampler": NeighborSampler([3]), "partitions": parts} | options))


MISTAKES = {
    "parts of another data set": Mistake(
        lambda parts: with_parts(parts, dataset="cora"),
        value="dataset is cora",
        rule="holds partitions digits-knn",
        remedy="set digits-knn",
    ),
    **{
        f"{name} with parts": Mistake(
            lambda parts, name=name, value=value: with_parts(parts, **{name: value}),
            value=f"{name} is {value}",
            rule="partitions read folder",
            remedy="leave out",
        )
        for name, value in (("features", "walks"), ("in_memory", True), ("root", "somewhere"))
    },
    "parts of another scale": Mistake(
        lambda parts: with_parts(parts, scale=0.5), value="scale is 0.5", rule="holds partitions digits-knn 1.0", remedy="give scale"
    ),
    "a folder without parts": Mistake(
        lambda: with_parts("nowhere"), value="nowhere", rule="no partitioned data set", remedy="folder hoptrain data partition"
    ),
    "a task without parts": Mistake(
        lambda parts: LinkDataModule("digits-knn", LinkSampler(NeighborSampler([3])), partitions=parts),
        value="LinkDataModule",
        rule="partitions node-level tasks",
        remedy="task: nodes leave out",
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
