"""Mistakes in Python are told in one line, as those on the command line are."""

import numpy as np
import pytest
import torch
from pytorch_lightning import Trainer
from torch import nn

from hoptrain.engine import Dataset, HeteroDataset, HeteroGraph, InputError
from hoptrain.samplers import HeteroSampler, LinkSampler, NeighborSampler, SampleLoader
from hoptrain.trainers import GraphDataModule, LinkDataModule, NodeClassifier
from hoptrain.trainers.models.batches import apply_model

SAMPLER = NeighborSampler([3, 3])


def data(**changed):
    random = np.random.default_rng(1)
    given = {"x": random.random((50, 8), np.float32), "y": np.arange(50) % 3, "splits": {"train": np.arange(20)}}
    return Dataset(**given | {"edge_index": random.integers(0, 50, (2, 300))} | changed)


MISTAKES = {
    "a word for features": (lambda: GraphDataModule(data(), SAMPLER, features="walk"), "features is 'walk': .* did you mean walks"),
    "a word for arch": (lambda: NodeClassifier(8, 3, 2, arch="sagee"), "arch is 'sagee': it is one of sage"),
    "a word for norm": (lambda: NodeClassifier(8, 3, 2, norm="foo"), "norm is 'foo': it is one of none"),
    "a word for conv": (lambda: NodeClassifier(8, 3, 2, conv="foo"), "conv is 'foo': it is one of pyg"),
    "a word for takes": (lambda: NodeClassifier(model=nn.Linear(2, 2), takes="edges"), "takes is 'edges': it is one of blocks"),
    "a graph for data": (lambda: GraphDataModule(data().graph, SAMPLER), "the data are a Graph: give a name, or a Dataset"),
    "no data": (lambda: GraphDataModule(None, SAMPLER), "the data are a NoneType"),
    "fanouts for a sampler": (lambda: GraphDataModule(data(), [3, 3]), r"sampler is \[3, 3\]: training takes a sampler"),
    "a class for a sampler": (lambda: GraphDataModule(data(), NeighborSampler), "sampler is <class .*: training takes a sampler"),
    "typed edges": (lambda: GraphDataModule(data(), HeteroSampler([3], "a")), "sampler is HeteroSampler.* task: hetero"),
    "labels without end": (lambda: data(y=np.full(50, np.inf)), "y has infinities: targets are finite"),
    "words for labels": (lambda: data(y=np.array(["a"] * 50)), "y is <U1 .* labels are integers"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line(name):
    call, expected = MISTAKES[name]
    with pytest.raises(InputError, match=expected) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("y", [torch.arange(50).to(torch.uint8) % 3, (np.arange(50) % 3)[:, None], (np.arange(50) % 3).astype(np.float32)])
def test_labels_as_others_have_them(y):
    made = data(y=y)
    assert made.y.dtype == np.int64
    assert made.num_classes == 3
    assert made.y.tolist() == (np.arange(50) % 3).tolist()


def test_a_model_that_returns_no_tensor():
    batch = SAMPLER.sample(data().graph, np.arange(4)).to("cpu")
    with pytest.raises(InputError, match="TwoThings returned a tuple: a model gives a tensor"):
        apply_model(TwoThings(), "blocks", torch.zeros(len(batch.node_ids), 8), batch, torch.zeros(len(batch.node_ids)))


@pytest.mark.parametrize(
    ("model", "y", "expected"),
    [
        (lambda: NodeClassifier(8, 2, 2), np.arange(50) % 3, "tells 2 classes, one a vertex, data has 3 classes, one a vertex"),
        (lambda: NodeClassifier(8, 3, 2, multilabel=True), np.arange(50) % 3, "tells 3 labels, several a vertex, data has 3 classes"),
        (lambda: NodeClassifier(8, 4, 2), np.ones((50, 4), np.uint8), "tells 4 classes, one a vertex, data has 4 labels, several a vertex"),
        (
            lambda: NodeClassifier(8, 5, 2, multilabel=True),
            np.ones((50, 4), np.uint8),
            "tells 5 labels, several a vertex, data has 4 labels",
        ),
    ],
)
def test_a_model_for_other_labels(model, y, expected, tmp_path):
    trainer = Trainer(
        max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False, default_root_dir=tmp_path, accelerator="cpu"
    )
    with pytest.raises(InputError, match=expected):
        trainer.fit(model(), GraphDataModule(data(y=y), SAMPLER, num_workers=0))


class TwoThings(nn.Module):
    def forward(self, x, blocks):
        return x, blocks


def test_a_data_module_is_shown_without_a_batch_being_drawn():
    assert str(GraphDataModule(data(), SAMPLER)) == "GraphDataModule(batch_size=1024, seed=0)"


def test_links_take_data_and_sampler_in_their_order():
    assert LinkDataModule(data(), LinkSampler(SAMPLER), num_workers=0).num_features == 8


def test_a_typed_data_set_takes_tensors_and_masks_and_relations_as_tuples():
    graph = HeteroGraph.from_edges({"a": 10, "b": 5}, {("a", "to", "b"): (np.arange(5), np.arange(5))})
    mask = torch.tensor([True, False, True, False, False])
    made = HeteroDataset(
        graph=graph, seed_type="b", x={"a": torch.rand(10, 3)}, y=torch.arange(5, dtype=torch.int32), splits={"train": mask}
    )
    batch = next(iter(SampleLoader(made, HeteroSampler({("a", "to", "b"): [2]}, "b"), batch_size=2, shuffle=False)))
    assert batch.y.dtype == np.int64
    assert batch.y.tolist() == [0, 2]
