"""Plain PyG models equal the models of the configurations."""

import numpy as np
import pytest
import torch
import yaml

from hoptrain.benchmarks.accuracy import FOLDED, PLAIN, fold_of
from hoptrain.benchmarks.baselines import plain
from hoptrain.engine import Dataset, load_dataset
from hoptrain.trainers.commands.configs import FOLDER, known
from hoptrain.trainers.models import GNN
from hoptrain.trainers.models.inference import layerwise_inference
from hoptrain.trainers.tasks.items.graphs import GraphClassifier


def sizes(model):
    return sorted(tuple(parameter.shape) for parameter in model.parameters() if parameter.requires_grad and parameter.numel() > 1)


def test_the_configurations_are_there():
    assert set(FOLDED) < set(PLAIN) <= set(known())
    assert [fold_of(seed) for seed in (1, 2, 11)] == [0, 1, 0]


def test_gin_has_the_same_parts():
    options = {"hidden_channels": 8, "num_layers": 3, "dropout": 0.0}
    assert sizes(plain._GIN(5, 2, options)) == sizes(GraphClassifier(5, 2, **options))


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.parametrize("arch", ["sage", "gcn"])
def test_models_of_nodes_are_the_same(arch):
    """With the same weights, PyG's model on the whole graph and hoptrain's model on a block of all nodes have equal outputs."""
    edges = np.random.default_rng(0).integers(0, 30, (2, 90))
    data = Dataset(x=np.random.default_rng(1).random((30, 5), np.float32), edge_index=np.unique(edges[:, edges[0] != edges[1]], axis=1))
    model = plain._NodeModel(data, 2, 3, 0, {"arch": arch, "hidden_channels": 8, "dropout": 0.0}).eval()
    ours = GNN(arch, 5, 8, 3, 2, dropout=0.0).eval()
    theirs = list(model.parameters())
    with torch.no_grad():
        for parameter in ours.parameters():
            match = next(i for i, other in enumerate(theirs) if other.shape == parameter.shape)
            parameter.copy_(theirs.pop(match))
    assert not theirs
    x, given = plain.whole(data, {"arch": arch})
    with torch.no_grad():
        torch.testing.assert_close(
            layerwise_inference(ours, data, np.arange(30), normalize=False, device=torch.device("cpu")),
            model(x, given),
            rtol=1e-4,
            atol=1e-5,
        )


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_a_run():
    config = yaml.safe_load((FOLDER / "diabetes_sage.yaml").read_text())
    config["trainer"]["max_epochs"] = 2
    assert plain.plain_score(config, 1) == plain.plain_score(config, 1) < 1


def test_patients():
    data = load_dataset("diabetes-knn")
    assert (data.graph.num_nodes, data.graph.num_edges, data.num_features, data.is_regression) == (442, 4986, 10, True)
    assert data.y.std() == pytest.approx(1, rel=1e-5)
    assert (data.graph.in_degrees() >= 8).all()
