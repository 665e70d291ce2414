"""The table of samplers and tasks in docs/samplers.md is right: a training step tests each cell."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pytorch_lightning import Trainer
from reference.hetero_data import hetero_classifier, hetero_data, hetero_graph, hetero_module

from hoptrain import samplers as s
from hoptrain.engine import Dataset, Graph, HeteroGraph, InputError
from hoptrain.engine.partition.topology.graph import PartitionedGraph
from hoptrain.samplers.cuda.drivers import DRIVERS
from hoptrain.samplers.distributed.window import check_alone
from hoptrain.trainers import (
    AdaptiveNodeClassifier,
    EdgeDataModule,
    EdgePredictor,
    LinkDataModule,
    LinkPredictor,
    NodeClassifier,
    NodeDataModule,
)
from hoptrain.trainers.pipeline.seeds import ChunkLoader

PAGE = Path(__file__).parents[2] / "docs" / "samplers.md"
HEAD = "| sampler | nodes | links | edges | hetero | in chunks of a pipeline | read ahead | several machines | CUDA |\n|---|---|---|---|---|---|---|---|---|\n"
PLAIN = {
    "NeighborSampler": s.NeighborSampler([3, 3]),
    "LaborSampler": s.LaborSampler([3, 3]),
    "PinSAGESampler": s.PinSAGESampler([3, 3], num_walks=4, walk_length=3),
    "MVSSampler": s.MVSSampler(s.NeighborSampler([3, 3]), num_draws=8),
    "WeightedSeedSampler": s.WeightedSeedSampler(s.NeighborSampler([3, 3]), np.ones(200)),
    "VRGCNSampler": s.VRGCNSampler([2, 2]),
    "FastGCNSampler": s.FastGCNSampler([20, 20]),
    "LadiesSampler": s.LadiesSampler([20, 20]),
    "ASGCNSampler": s.ASGCNSampler([20, 20]),
    "ClusterSampler": s.ClusterSampler(8),
    "SaintNodeSampler": s.SaintNodeSampler(30),
    "SaintEdgeSampler": s.SaintEdgeSampler(30),
    "SaintWalkSampler": s.SaintWalkSampler(10, 2),
    "ShadowSampler": s.ShadowSampler(2, 3),
    "ShadowPPRSampler": s.ShadowPPRSampler(5),
    "RippleWalkSampler": s.RippleWalkSampler(30),
    "TemporalSampler": s.TemporalSampler([3, 3], np.full(200, 5)),
    "RandomWalk": s.RandomWalk(3),
    "Node2Vec": s.Node2Vec(3),
    "MetapathWalk": s.MetapathWalk(np.zeros(3000, np.int64), [0], 2),
}
HETERO = {
    "HeteroSampler": s.HeteroSampler([3, 3], "paper"),
    "HeteroTemporalSampler": s.HeteroTemporalSampler([3, 3], "paper", seed_times={"paper": np.full(90, 5)}),
    "HeteroLaborSampler": s.HeteroLaborSampler([3, 3], "paper"),
    "HeteroPinSAGESampler": s.HeteroPinSAGESampler([3], ["paper", "author", "paper"]),
    "HGTSampler": s.HGTSampler([8, 8], "paper"),
}
SUBGRAPHS = (s.SaintNodeSampler, s.SaintEdgeSampler, s.SaintWalkSampler, s.RippleWalkSampler)
"""Samplers whose batch is a single subgraph."""
SIZES = {"hidden_channels": 4}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    graph = Graph.from_edges(rng.integers(0, 200, 3000), rng.integers(0, 200, 3000), 200, times=np.arange(3000) % 9)
    splits = {"train": np.arange(0, 120), "val": np.arange(120, 150), "test": np.arange(150, 200)}
    labels = {"y": rng.integers(0, 3, 200), "edge_y": rng.integers(0, 2, graph.num_edges)}
    return Dataset(name="random", graph=graph, x=rng.random((200, 7), dtype=np.float32), splits=splits, num_classes=3, **labels)


def step(model, module):
    options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    limits = {"max_epochs": 1, "limit_train_batches": 1, "limit_val_batches": 1, "num_sanity_val_steps": 0}
    Trainer(accelerator="cpu", use_distributed_sampler=False, **limits, **options).fit(model, module)


def of_nodes(data, sampler):
    module = NodeDataModule(data, sampler, batch_size=1 if isinstance(sampler, SUBGRAPHS) else 16, num_workers=0)
    kind = AdaptiveNodeClassifier if isinstance(sampler, s.ASGCNSampler) else NodeClassifier
    step(kind(7, 3, module.num_hops, **SIZES), module)


def of_links(data, sampler):
    module = LinkDataModule(replace(data, edge_y=None, validate=False), s.LinkSampler(sampler), batch_size=16, num_workers=0)
    step(LinkPredictor(7, module.num_hops, **SIZES), module)


def of_edges(data, sampler):
    module = EdgeDataModule(data, s.LinkSampler(sampler, num_negatives=0), batch_size=16, num_workers=0)
    step(EdgePredictor(7, 2, module.num_hops, **SIZES), module)


def of_types(data, sampler):
    graph = hetero_graph()
    columns = {relation: (part.indptr, part.indices) for relation, part in graph.relations.items()}
    times = {relation: np.arange(part.num_edges) % 9 for relation, part in graph.relations.items()}
    module = hetero_module(hetero_data(graph=HeteroGraph(graph.num_nodes, columns, times=times)), sampler=sampler)
    step(hetero_classifier(module), module)


def in_chunks(data, sampler):
    of_nodes(data, sampler)
    with ChunkLoader(data, sampler, chunks=2, batch_size=16) as loader:
        assert next(iter(loader)).chunks


def tried(trial, data, sampler):
    """Return whether a trial succeeds; an unsupported combination must raise InputError."""
    try:
        trial(data, sampler)
    except InputError:
        return False
    return True


def on_cuda(sampler):
    found = next((kind for kind in type(sampler).__mro__ if kind in DRIVERS or "sample_on_cpu" in vars(kind)), None)
    return found in DRIVERS


def on_machines(sampler):
    """Return whether a sampler works on several machines. Partitioned features only need predictable batches; a partitioned graph needs its own samplers."""
    try:
        check_alone(sampler, PartitionedGraph(np.zeros(2, np.int64), True, "parts"))
    except InputError:
        return "features"
    return "features, graph"


@pytest.mark.filterwarnings("ignore")  # Lightning's warnings about a small run
def test_the_table_is_what_happens(data):
    lines = []
    for name, sampler in (PLAIN | HETERO).items():
        trials = (of_nodes, of_links, of_edges, of_types, in_chunks)
        fields = [tried(trial, data, sampler) for trial in trials]
        is_known = any(fields) and not sampler.state()
        words = ["yes" if field else "" for field in (*fields, is_known)]
        words += [on_machines(sampler) if fields[0] and is_known else "", "yes" if on_cuda(sampler) else ""]
        lines.append(f"| `{name}` | {' | '.join(words)} |\n".replace("|  |", "| |").replace("|  |", "| |"))
    table = HEAD + "".join(lines)
    assert table in PAGE.read_text(), f"docs/samplers.md has another table than what was found:\n{table}"
