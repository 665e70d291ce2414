"""Custom models instead of a GNN: with blocks, with layers, and PyG models on the graph of the batch."""

import logging
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from cases.mistakes import Mistake, each_of, refused
from pytorch_lightning import Trainer
from reference.hetero_data import hetero_classifier, hetero_data, hetero_module
from torch import nn
from torch_geometric.nn import GraphSAGE, SAGEConv

from hoptrain.engine import Graph
from hoptrain.samplers import LaborSampler, NeighborSampler, TemporalSampler, VRGCNSampler
from hoptrain.trainers import AdaptiveNodeClassifier, HeteroClassifier, NodeClassifier, NodeDataModule, layerwise_inference

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's warnings about a small run


class Blocks(nn.Module):
    """A model with two PyG convolutions; each convolution reads its own block."""

    def __init__(self, width=3):
        super().__init__()
        self.layers = nn.ModuleList([SAGEConv(7, 8), SAGEConv(8, width)])

    def apply(self, i, x, block):
        return self.layers[i]((x, x[: block.num_dst]), block.edge_index()).relu()

    def forward(self, x, blocks):
        for i, block in enumerate(blocks):
            x = self.apply(i, x, block)
        return x


class Layers(Blocks):
    """A ``Blocks`` model with a list of layers for layer-wise inference."""

    num_layers = 2

    def layer(self, i, x, block):
        return self.apply(i, x, block)


class Scaled(Blocks):
    """A model that also receives degrees."""

    def forward(self, x, blocks, degrees):
        assert len(degrees) == len(x)
        return super().forward(x, blocks) / (1 + degrees[: blocks[-1].num_dst, None])


class Edges(nn.Module):
    """A model over ``edge_index`` that does not have a number of layers."""

    def __init__(self):
        super().__init__()
        self.inner = GraphSAGE(7, 8, 2, 3)

    def forward(self, x, edge_index):
        return self.inner(x, edge_index)


def quiet(epochs=1):
    return Trainer(
        max_epochs=epochs, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, use_distributed_sampler=False, num_sanity_val_steps=0,
    )  # fmt: skip


def fit(dataset, task, sampler=None, epochs=1):
    trainer = quiet(epochs)
    trainer.fit(task, NodeDataModule(dataset, sampler or NeighborSampler([3, 3]), batch_size=40, num_workers=0, seed=4))
    return trainer


def on_the_whole_graph(model, dataset):
    """Apply an edge_index model to the whole graph."""
    graph = dataset.graph
    edges = np.stack([graph.indices, np.repeat(np.arange(graph.num_nodes), graph.in_degrees())])
    with torch.no_grad():
        return model(torch.from_numpy(dataset.x), torch.from_numpy(edges).long())


@pytest.mark.parametrize(
    ("make", "forward_inputs", "how"),
    [
        (Blocks, "blocks", "Blocks is evaluated from full neighbourhoods, on batches of all neighbours over 2 hops"),
        (Layers, "blocks", "Layers is evaluated from full neighbourhoods, layer by layer"),
        (Scaled, "blocks+degrees", "Scaled is evaluated from full neighbourhoods, on batches of all neighbours over 2 hops"),
        (
            lambda: GraphSAGE(7, 8, 2, 3),
            "edge_index",
            "GraphSAGE is evaluated from full neighbourhoods, on batches of all neighbours over 2 hops",
        ),
        (lambda: Edges(), "edge_index", "over 2 hops, since it has no method layer; this is exact for at most 2 layers"),
    ],
    ids=["blocks", "layers", "degrees", "edge_index", "layers of unknown number"],
)
def test_a_model_of_one_s_own_is_trained_and_evaluated(dataset, caplog, make, forward_inputs, how):
    torch.manual_seed(0)  # with some initial weights, all outputs are 0 and nothing is learnt
    model = make()
    before = [parameter.clone() for parameter in model.parameters()]
    caplog.set_level(logging.INFO, "pytorch_lightning.utilities.rank_zero")
    trainer = fit(dataset, NodeClassifier(model=model, forward_inputs=forward_inputs))
    assert any(how in message for message in caplog.messages)
    assert {"train_loss", "train_acc", "val_loss", "val_acc"} <= trainer.callback_metrics.keys()
    assert not any(torch.equal(one, other) for one, other in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize(("sampler", "number"), [(LaborSampler([3, 3]), 1), (NeighborSampler([3, 3]), 0)])
def test_weights_that_a_pyg_model_does_not_get_are_logged_once(dataset, caplog, sampler, number):
    fit(dataset, NodeClassifier(model=GraphSAGE(7, 8, 2, 3)), sampler)
    assert sum("GraphSAGE does not get the weights" in line for line in caplog.messages) == number


@pytest.mark.parametrize(
    ("options", "sampler", "expected"),
    [
        (
            {"arch": "sage"},
            NeighborSampler([3, 3]),
            "random: sage and NeighborSampler do not use the edge features (arch gine, gatv2, transformer or nnconv does), the edge times (TemporalSampler "
            "does), the edge weights (NeighborSampler with weighted: true does): choose these, or leave the columns out of the edges",
        ),
        (
            {"arch": "gatv2"},
            NeighborSampler([3, 3], weighted=True),
            "random: NeighborSampler does not use the edge times (TemporalSampler does): ",
        ),
        (
            {"arch": "gatv2", "edge_channels": 0},
            TemporalSampler([3, 3], seed_times=[9] * 200),
            "random: gatv2 does not use the edge features (arch",
        ),
        ({"arch": "gatv2"}, TemporalSampler([3, 3], seed_times=[9] * 200), None),
        (
            {"model": GraphSAGE(7, 8, 2, 3)},
            TemporalSampler([3, 3], seed_times=[9] * 200),
            "random: GraphSAGE does not use the edge features (a model over blocks does)",
        ),
        ({"model": Blocks()}, TemporalSampler([3, 3], seed_times=[9] * 200), None),
    ],
)
def test_what_a_training_does_not_read_of_edges_is_warned_of(graph, dataset, caplog, options, sampler, expected):
    ends, number = (graph.indices, graph.destinations()), graph.num_edges
    timed = Graph.from_edges(*ends, graph.num_nodes, weights=np.ones(number, np.float32), times=np.arange(number) % 9)
    data = replace(dataset, graph=timed, edge_attr=np.ones((number, 2), np.float32))
    sizes = {} if "model" in options else {"in_channels": 7, "num_classes": 3, "num_layers": 2, "edge_channels": 2, "hidden_channels": 8}
    fit(data, NodeClassifier(**sizes | options), sampler)
    found = [line for line in caplog.messages if line.startswith("random: ")]
    assert [line[: len(expected or "")] for line in found] == ([expected] if expected else [])


@pytest.mark.parametrize(("arch", "number"), [("rgcn", 1), ("gatv2", 0)])
def test_relations_have_edge_features_that_a_model_may_not_read(arch, number, caplog):
    plain = hetero_data()
    relation, columns = next(iter(plain.graph.relations.items()))
    module = hetero_module(replace(plain, edge_attr={relation: np.ones((columns.num_edges, 2), np.float32)}))
    quiet().fit(hetero_classifier(module, arch=arch), module)
    assert (
        sum(f"mixed: {arch} does not use the edge features (arch gatv2 or transformer does)" in line for line in caplog.messages) == number
    )


def test_inference_over_all_neighbours_is_that_on_the_whole_graph(dataset):
    """Layer-wise and batch-wise inference equal the whole graph's outputs, also for PyG models and hops that share edges."""
    torch.manual_seed(0)
    model = GraphSAGE(7, 8, 2, 3, act="relu").eval()
    for forward_inputs, own in (("edge_index", model), ("blocks", Blocks()), ("blocks", Layers())):
        if forward_inputs == "blocks":
            own.load_state_dict({name.replace("convs", "layers"): value for name, value in model.state_dict().items()})
        task = NodeClassifier(model=own, forward_inputs=forward_inputs)
        scores = torch.cat(quiet().predict(task, NodeDataModule(dataset, LaborSampler([3, 3]), num_workers=0)))
        expected = on_the_whole_graph(model, dataset)
        torch.testing.assert_close(scores, expected if forward_inputs == "edge_index" else expected.relu())


def test_a_pyg_model_of_more_layers_than_hops_is_evaluated_over_all_of_its_layers(dataset):
    model = GraphSAGE(7, 8, 3, 3).eval()
    task = NodeClassifier(model=model, forward_inputs="edge_index")
    scores = torch.cat(quiet().predict(task, NodeDataModule(dataset, NeighborSampler([3, 3]), num_workers=0)))
    torch.testing.assert_close(scores, on_the_whole_graph(model, dataset))
    nodes = np.array([77, 0])
    torch.testing.assert_close(layerwise_inference(model, dataset, nodes, forward_inputs="edge_index"), scores[nodes])
    with refused("Edges", "num_hops layers num_layers", "give number hops"):
        layerwise_inference(Edges(), dataset, nodes, forward_inputs="edge_index")


def test_a_checkpoint_has_the_weights_and_asks_for_the_module(dataset, tmp_path):
    task = NodeClassifier(model=Blocks())
    trainer = fit(dataset, task)
    trainer.save_checkpoint(tmp_path / "own.ckpt")
    content = torch.load(tmp_path / "own.ckpt", weights_only=True)
    assert content["hyper_parameters"]["model"] == "Blocks"
    assert "datamodule_hyper_parameters" not in content, "the data in memory"
    loaded = NodeClassifier.load_from_checkpoint(tmp_path / "own.ckpt", model=Blocks(), weights_only=True)
    assert all(torch.equal(value, loaded.state_dict()[name]) for name, value in task.state_dict().items())
    with refused("'Blocks'", "nn.Module checkpoint", "nn.Module load_from_checkpoint(path, model=...)"):
        NodeClassifier.load_from_checkpoint(tmp_path / "own.ckpt", weights_only=True)
    with refused("model.bias", "checkpoint another model one only", "data configuration task"):
        NodeClassifier.load_from_checkpoint(tmp_path / "own.ckpt", model=nn.Linear(7, 3), weights_only=True)


@pytest.mark.parametrize("sampler", [NeighborSampler([3, 3]), VRGCNSampler([2, 2])])
def test_ddp_sends_nothing_of_the_data(dataset, sampler):
    """DDP sends no data of the graph: it broadcasts buffers before each forward pass, so degrees would add 4 bytes per node and step."""
    task = NodeClassifier(7, 3, 2)
    fit(dataset, task, sampler)
    assert len(task.degrees) == dataset.graph.num_nodes
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        wrapped = torch.nn.parallel.DistributedDataParallel(task)
        sent = [tuple(buffer.shape) for buffer in wrapped.modules_buffers]
    finally:
        torch.distributed.destroy_process_group()
    assert dataset.graph.num_nodes not in {size for shape in sent for size in shape}
    assert len(sent) == len([name for name, _ in task.named_buffers() if name in task.state_dict()])


MISTAKES = {
    **{
        f"an option of our model beside one's own for {kind.__name__}": Mistake(
            lambda kind=kind, options=options: kind(model=Blocks(), **options),
            value=value,
            rule=f"own model option {gnn}",
            remedy="leave out",
        )
        for kind, options, value, gnn in (
            (NodeClassifier, {"arch": "gat"}, "arch", "GNN"),
            (HeteroClassifier, {"heads": 2}, "heads", "HeteroGNN"),
        )
    },
    **{
        f"what a model takes without a model for {name}": Mistake(
            lambda make=make: make(forward_inputs="edge_index"),
            value="edge_index",
            rule="forward_inputs without model own",
            remedy="model leave out",
        )
        for name, make in (
            ("NodeClassifier", partial(NodeClassifier, 7, 3, 2)),
            ("HeteroClassifier", lambda **options: hetero_classifier(hetero_module(hetero_data()), **options)),
        )
    },
    **{
        f"a number in place of a model for {kind.__name__}": Mistake(
            lambda kind=kind: kind(model=3),
            value="model is 3",
            rule="nn.Module checkpoint command line",
            remedy=f"nn.Module {kind.__name__}(model=...)",
        )
        for kind in (NodeClassifier, HeteroClassifier)
    },
    **{
        f"neither a model nor its sizes for {kind.__name__}": Mistake(
            lambda kind=kind, options=options: kind(**options), value=kind.__name__, rule="neither model sizes", remedy=remedy
        )
        for kind, options, remedy in (
            (NodeClassifier, {"num_classes": 3}, "in_channels num_classes num_layers"),
            (HeteroClassifier, {}, "in_channels relations seed_type"),
        )
    },
    "a model of one's own for adaptive sampling": Mistake(
        lambda: AdaptiveNodeClassifier(7, 3, 2, model=Blocks()),
        value="AdaptiveNodeClassifier",
        rule="own model GNN last layer",
        remedy="leave model",
    ),
    "a sampler of fewer hops than blocks": Mistake(
        lambda dataset: fit(dataset, NodeClassifier(model=Layers()), NeighborSampler([3])),
        value="7 features and 2 blocks",
        rule="model random sampler 1",
        remedy="data hops",
    ),
    "a model for fewer features": Mistake(
        lambda dataset: fit(dataset, NodeClassifier(5, 3, 2), NeighborSampler([3, 3])),
        value="5 features and 2 blocks",
        rule="model random sampler 7",
        remedy="data hops",
    ),
    "a model for more classes": Mistake(
        lambda dataset: fit(dataset, NodeClassifier(model=Blocks(4)), NeighborSampler([3, 3])),
        value="(40, 4)",
        rule="torch.float32 floating (40, 3)",
        remedy="forward",
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
