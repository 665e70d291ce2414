"""A small heterogeneous data set with its models, importable by the processes that train."""

import numpy as np

from hoptrain.engine import HeteroDataset, HeteroGraph
from hoptrain.samplers import HeteroSampler
from hoptrain.trainers.tasks.nodes.data import HeteroDataModule
from hoptrain.trainers.tasks.nodes.task import HeteroClassifier

NUM_NODES = {"paper": 90, "author": 60, "subject": 12}
ENDS = {
    ("author", "writes", "paper"): 400,
    ("subject", "of", "paper"): 150,
    ("paper", "by", "author"): 300,
    ("paper", "on", "subject"): 200,
}


def hetero_graph(seed=0):
    """Return random relations; the last ten papers have no neighbours, and subjects have parallel edges."""
    rng = np.random.default_rng(seed)
    most = NUM_NODES | {"paper": 80}
    edges = {(a, name, b): (rng.integers(0, most[a], number), rng.integers(0, most[b], number)) for (a, name, b), number in ENDS.items()}
    return HeteroGraph.from_edges(NUM_NODES, edges)


def hetero_data(seed=0, **changes):
    """Return a data set in which noisy features reveal a paper's class (one of three); subjects have no features."""
    rng = np.random.default_rng(seed)
    y = np.arange(90) % 3
    x = {"paper": np.eye(3, dtype=np.float32)[y] + rng.normal(0, 0.3, (90, 3)).astype(np.float32)}
    x["author"] = rng.random((60, 5), dtype=np.float32)
    order = rng.permutation(90)
    splits = {"train": np.sort(order[:50]), "val": np.sort(order[50:70]), "test": np.sort(order[70:])}
    given = {"name": "mixed", "graph": hetero_graph(seed), "seed_type": "paper", "x": x, "y": y, "splits": splits}
    return HeteroDataset(**given | changes)


def hetero_module(data, fanouts=(3, 3), sampler=None, **options):
    return HeteroDataModule(data, sampler or HeteroSampler(fanouts, "paper"), **{"batch_size": 16, "num_workers": 0, "seed": 4} | options)


def sizes_of(module):
    """Return the model arguments that depend on the data."""
    names = ("num_nodes", "relations", "seed_type", "num_classes", "edge_channels")
    return {"in_channels": module.num_features, "num_layers": module.num_hops, **{name: getattr(module, name) for name in names}}


def hetero_classifier(module, kind=HeteroClassifier, **options):
    return kind(**sizes_of(module) | {"hidden_channels": 8, "heads": 2, "embeddings": True, "dropout": 0.3, "lr": 0.01} | options)
