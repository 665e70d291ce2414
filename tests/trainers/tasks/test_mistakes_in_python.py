"""Input errors in Python have the one-line messages of the command line."""

import re

import numpy as np
import pytest
import torch
from cases.mistakes import Mistake, each_of, refused
from pytorch_lightning import Trainer
from torch import nn

from hoptrain.engine import Dataset, HeteroDataset, HeteroGraph
from hoptrain.samplers import HeteroSampler, LinkSampler, NeighborSampler, SampleLoader
from hoptrain.trainers import LinkDataModule, NodeClassifier, NodeDataModule
from hoptrain.trainers.lightning_package import _WRONG_ADVICE
from hoptrain.trainers.models.batches import apply_model

SAMPLER = NeighborSampler([3, 3])


def data(**changed):
    random = np.random.default_rng(1)
    given = {"x": random.random((50, 8), np.float32), "y": np.arange(50) % 3, "splits": {"train": np.arange(20)}}
    return Dataset(**given | {"edge_index": random.integers(0, 50, (2, 300))} | changed)


@pytest.mark.parametrize("y", [torch.arange(50).to(torch.uint8) % 3, (np.arange(50) % 3)[:, None], (np.arange(50) % 3).astype(np.float32)])
def test_labels_as_others_have_them(y):
    made = data(y=y)
    assert made.y.dtype == np.int64
    assert made.num_classes == 3
    assert made.y.tolist() == (np.arange(50) % 3).tolist()


def test_a_model_that_returns_no_tensor():
    batch = SAMPLER.sample(data().graph, np.arange(4)).to("cpu")
    with refused("tuple", "TwoThings returned", "tensor logits row"):
        apply_model(TwoThings(), "blocks", torch.zeros(len(batch.node_ids), 8), batch, torch.zeros(len(batch.node_ids)))


class TwoThings(nn.Module):
    def forward(self, x, blocks):
        return x, blocks


def test_a_data_module_is_shown_without_a_batch_being_drawn():
    assert str(NodeDataModule(data(), SAMPLER)) == "NodeDataModule(batch_size=1024, seed=0)"


def test_links_take_data_and_sampler_in_their_order():
    assert LinkDataModule(data(), LinkSampler(SAMPLER), num_workers=0).num_features == 8


def test_a_hetero_data_set_takes_tensors_and_masks_and_relations_as_tuples():
    graph = HeteroGraph.from_edges({"a": 10, "b": 5}, {("a", "to", "b"): (np.arange(5), np.arange(5))})
    mask = torch.tensor([True, False, True, False, False])
    made = HeteroDataset(
        graph=graph, seed_type="b", x={"a": torch.rand(10, 3)}, y=torch.arange(5, dtype=torch.int32), splits={"train": mask}
    )
    batch = next(iter(SampleLoader(made, HeteroSampler({("a", "to", "b"): [2]}, "b"), batch_size=2, shuffle=False)))
    assert batch.y.dtype == np.int64
    assert batch.y.tolist() == [0, 2]


def test_other_errors_of_a_call_are_those_of_python():
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'sampler'"):
        NodeDataModule(data(), batch_size=8)


def fit(tmp_path, model, y, **options):
    options |= {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
    trainer = Trainer(max_epochs=1, default_root_dir=tmp_path, **options)
    trainer.fit(model, NodeDataModule(data(y=y), SAMPLER, num_workers=0))


def test_lightning_gives_no_advice_that_does_not_apply(tmp_path, recwarn):
    fit(tmp_path, NodeClassifier(8, 3, 2), np.arange(50) % 3)
    said = [str(warning.message) for warning in recwarn]
    assert not [line for line in said if re.match("|".join(_WRONG_ADVICE), line)]


THREE_CLASSES, FOUR_LABELS = np.arange(50) % 3, np.ones((50, 4), np.uint8)
OTHER_LABELS = "metric num_classes multilabel"
NO_SAMPLER = {"rule": "sampler homogeneous graphs", "remedy": "NeighborSampler([10, 10])"}
MISTAKES = {
    "PyG's fanouts": Mistake(
        lambda: NodeDataModule(data(), num_neighbors=[10, 10], batch_size=8),
        value="NodeDataModule has no argument num_neighbors",
        rule="give sampler=NeighborSampler([15, 10])",
    ),
    "PyG's fanouts with a sampler": Mistake(
        lambda: NodeDataModule(data(), SAMPLER, num_neighbors=[10, 10]),
        value="num_neighbors",
        rule="NodeDataModule no argument give sampler=",
    ),
    "PyG's fanouts of a sampler": Mistake(
        lambda: NeighborSampler(num_neighbors=[10, 10]), value="num_neighbors", rule="NeighborSampler no argument give fanouts=[15, 10]"
    ),
    "PyG's seeds": Mistake(
        lambda: SampleLoader(data(), SAMPLER, input_nodes=[3]), value="input_nodes", rule="SampleLoader no argument give split='train'"
    ),
    "PyG's masks": Mistake(
        lambda: data(train_mask=np.ones(50, bool)), value="train_mask", rule="Dataset no argument give splits={'train': mask, 'val':"
    ),
    "another library's width": Mistake(
        lambda: NodeClassifier(8, 3, 2, hidden_dim=16), value="hidden_dim", rule="no argument give hidden_channels="
    ),
    "a data set under the other name": Mistake(
        lambda: NodeDataModule(data=data(), sampler=SAMPLER), value="no argument data:", rule="NodeDataModule give dataset=DATA"
    ),
    "a misspelt argument": Mistake(
        lambda: SampleLoader(data(), SAMPLER, batchsize=3), value="batchsize", rule="SampleLoader no argument", remedy="mean batch_size"
    ),
    "an argument of nothing here": Mistake(
        lambda: NodeDataModule(data(), SAMPLER, pin_it=True),
        value="pin_it",
        rule="NodeDataModule no argument",
        remedy="help(NodeDataModule) lists",
    ),
    "a word for features": Mistake(
        lambda: NodeDataModule(data(), SAMPLER, features="walk"), value="'walk'", rule="features one stored degrees", remedy="walks"
    ),
    "a word for arch": Mistake(
        lambda: NodeClassifier(8, 3, 2, arch="sagee"), value="'sagee'", rule="arch one sage, gat", remedy="mean sage?"
    ),
    "a word for norm": Mistake(lambda: NodeClassifier(8, 3, 2, norm="foo"), value="'foo'", rule="norm one", remedy="none batch layer"),
    "a word for conv": Mistake(lambda: NodeClassifier(8, 3, 2, conv="foo"), value="'foo'", rule="conv one", remedy="pyg dgl"),
    "a word for takes": Mistake(
        lambda: NodeClassifier(model=nn.Linear(2, 2), forward_inputs="edges"),
        value="'edges'",
        rule="forward_inputs one",
        remedy="blocks blocks+degrees edge_index",
    ),
    "a graph for data": Mistake(lambda: NodeDataModule(data().graph, SAMPLER), value="a Graph", rule="data", remedy="name Dataset object"),
    "no data": Mistake(lambda: NodeDataModule(None, SAMPLER), value="NoneType", rule="data", remedy="name Dataset object"),
    "fanouts for a sampler": Mistake(lambda: NodeDataModule(data(), [3, 3]), value="[3, 3]", **NO_SAMPLER),
    "a class for a sampler": Mistake(lambda: NodeDataModule(data(), NeighborSampler), value="NeighborSampler'>", **NO_SAMPLER),
    "a sampler of heterogeneous graphs": Mistake(
        lambda: NodeDataModule(data(), HeteroSampler([3], "a")),
        value="HeteroSampler(fanouts=[3]",
        rule="sampler homogeneous graphs",
        remedy="NeighborSampler([10, 10]) task: hetero",
    ),
    "labels without end": Mistake(
        lambda: data(y=np.full(50, np.inf)), value="y has infinities", rule="data targets finite", remedy="NaN none replace"
    ),
    "words for labels": Mistake(
        lambda: data(y=np.array(["a"] * 50)), value="<U1", rule="labels integers 50 nodes", remedy="integers floating targets"
    ),
    "a model of fewer classes": Mistake(
        lambda tmp_path: fit(tmp_path, NodeClassifier(8, 2, 2), THREE_CLASSES),
        value="2 classes",
        rule="model data 3 classes",
        remedy=OTHER_LABELS,
    ),
    "a model of several labels for classes": Mistake(
        lambda tmp_path: fit(tmp_path, NodeClassifier(8, 3, 2, multilabel=True), THREE_CLASSES),
        value="3 labels",
        rule="model data 3 classes",
        remedy=OTHER_LABELS,
    ),
    "a model of classes for several labels": Mistake(
        lambda tmp_path: fit(tmp_path, NodeClassifier(8, 4, 2), FOUR_LABELS),
        value="4 classes",
        rule="model data 4 labels several",
        remedy=OTHER_LABELS,
    ),
    "a schedule without its arguments": Mistake(
        lambda: NodeClassifier(8, 3, 2, lr_scheduler=torch.optim.lr_scheduler.StepLR),
        value="lr_scheduler is StepLR",
        rule="needs step_size",
        remedy="functools.partial(StepLR, step_size=...)",
    ),
    "double precision": Mistake(
        lambda tmp_path: fit(tmp_path, NodeClassifier(8, 3, 2), THREE_CLASSES, precision="64-true"),
        value="trainer.precision is 64-true",
        rule="one of",
        remedy="32-true, bf16-mixed, 16-mixed choose",
    ),
    "a model of more labels": Mistake(
        lambda tmp_path: fit(tmp_path, NodeClassifier(8, 5, 2, multilabel=True), FOUR_LABELS),
        value="5 labels",
        rule="model data 4 labels",
        remedy=OTHER_LABELS,
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
