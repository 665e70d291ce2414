"""Digests of batches, which are kept: ``python tests/golden/write.py`` writes those of all samplers, and names those that change.

A change of theirs is one for users too, and belongs into CHANGELOG.md. Graphs are closed formulas: nothing here draws from a stream of NumPy.
"""

import hashlib
import json
from pathlib import Path
from unittest import mock

import numpy as np

from hoptrain.engine import Dataset, Graph, HeteroGraph
from hoptrain.samplers import (
    ASGCNSampler,
    ClusterSampler,
    FastGCNSampler,
    HeteroSampler,
    LaborSampler,
    LadiesSampler,
    LinkSampler,
    MetapathWalk,
    MVSSampler,
    NeighborSampler,
    Node2Vec,
    PinSAGESampler,
    RandomWalk,
    RippleWalkSampler,
    SaintEdgeSampler,
    SaintNodeSampler,
    SaintWalkSampler,
    SampleLoader,
    ShadowPPRSampler,
    ShadowSampler,
    TemporalSampler,
    VRGCNSampler,
)

FILE = Path(__file__).with_name("batches.json")
LOADER = "loader with features"
ADDRESS = {"seed": 2**63 + 7, "epoch": 3, "first_batch": 2**32 - 100}
NUM_NODES, NUM_EDGES = 60, 400
SPLIT = np.arange(0, NUM_NODES, 2)
SEEDS = [np.array([8, 3, 41]), np.array([20, 0])]
UNITS = [np.array([0]), np.array([1])]


def closed_graph():
    """Low ids are hubs, the last ten vertices have no in-edges; multi-edges, self loops, weights (some 0) and times."""
    i = np.arange(NUM_EDGES)
    src, dst = i * 37 % NUM_NODES, (i * 7919 % 50) ** 2 // 50
    src[:9], dst[:9] = dst[:9], dst[:9]
    return Graph.from_edges(src, dst, NUM_NODES, weights=(i % 4).astype(np.float32), times=i * 31 % 100)


def closed_typed_graph():
    """Three relations between two types."""
    i = np.arange(60)
    relations = {("p", "cites", "p"): (i * 7 % 20, i * 11 % 20), ("a", "writes", "p"): (i * 4 % 15, i * 3 % 20)}
    return HeteroGraph.from_edges({"p": 20, "a": 15}, relations | {("p", "of", "a"): (i % 20, i * 13 % 15)})


def closed_dataset():
    """With rows that are exact in float32."""
    x = (np.arange(NUM_NODES * 5).reshape(NUM_NODES, 5) % 13).astype(np.float32) / 8
    return Dataset(name="closed", graph=closed_graph(), x=x, y=np.arange(NUM_NODES) % 3, splits={"train": SPLIT}, num_classes=3)


def cases():
    """By name: a sampler that is ready, its graph, and the units of the batches of a bulk."""
    graph, typed = closed_graph(), closed_typed_graph()
    relations, seed_times = np.arange(NUM_EDGES) % 2, np.arange(NUM_NODES) % 90 + 10
    by_seeds = {
        "neighbor": NeighborSampler([4, 3]),
        "neighbor new": NeighborSampler([4, 3], expand="new"),
        "neighbor replace": NeighborSampler([4, 3], replace=True),
        "neighbor weighted": NeighborSampler([4, 3], weighted=True),
        "neighbor weighted replace all": NeighborSampler([2, -1], replace=True, weighted=True),
        "labor 0": LaborSampler([4, 3]),
        "labor 2": LaborSampler([4, 3], importance_rounds=2),
        "pinsage": PinSAGESampler([4, 3], num_walks=9),
        "mvs": MVSSampler(NeighborSampler([3]), 2),
        "vrgcn": VRGCNSampler([2, 2]),
        "fastgcn": FastGCNSampler([6, 5]),
        "ladies": LadiesSampler([6, 5], norm="gcn", normalize=True),
        "asgcn": ASGCNSampler([6, 5]),
        "shadow": ShadowSampler(2, 3),
        "shadow pagerank": ShadowPPRSampler(9, epsilon=1e-3),
        "link": LinkSampler(NeighborSampler([3, 2]), negatives="degree", num_negatives=2),
        "temporal": TemporalSampler([3, 2], seed_times),
        "temporal recent": TemporalSampler([3, 2], seed_times, strategy="recent"),
        "walk": RandomWalk(7, num_walks=2, restart=0.2),
        "node2vec": Node2Vec(7, num_walks=2, p=0.5, q=2.0),
        "metapath": MetapathWalk(relations, [0, 1], length=5),
    }
    by_units = {
        "cluster": ClusterSampler(3),
        "saint nodes": SaintNodeSampler(9),
        "saint edges": SaintEdgeSampler(6),
        "saint walks": SaintWalkSampler(4, num_subgraphs=2),
        "ripple": RippleWalkSampler(12, num_subgraphs=2),
    }
    made = {name: (sampler, graph, SEEDS) for name, sampler in by_seeds.items()}
    with mock.patch("hoptrain.samplers.cluster.partition", lambda graph, number: np.arange(graph.num_nodes, dtype=np.int32) % number):
        # Clusters are METIS's affair.
        made |= {name: (sampler.prepare(graph, SPLIT), graph, UNITS) for name, sampler in by_units.items()}
    return made | {"typed": (HeteroSampler([3, 2], "p"), typed, [np.array([8, 3, 11]), np.array([19, 0])])}


def digest(batch, rows=(), on_host=np.asarray):
    """SHA-256 of a batch's arrays, with their names, types and shapes, and of ``rows`` beside them."""
    found = hashlib.sha256()
    arrays = batch.arrays() | {name: getattr(batch, name) for name in rows}
    for name, array in sorted(arrays.items()):
        array = np.ascontiguousarray(on_host(array))
        found.update(f"{name} {array.dtype.str} {array.shape}".encode() + array.tobytes())
    return found.hexdigest()


def loader_digests(num_workers):
    """The batches of a loader's epoch, rows included."""
    loader = SampleLoader(closed_dataset(), NeighborSampler([4, 3]), batch_size=8, num_workers=num_workers, seed=5)
    try:
        return [digest(batch, ("x", "y")) for batch in loader]
    finally:
        loader.close()


def main():
    """Write the file, and say what is other than before."""
    before = json.loads(FILE.read_text()) if FILE.exists() else {}
    after = {name: [digest(b) for b in sampler.sample_bulk(graph, bulk, **ADDRESS)] for name, (sampler, graph, bulk) in cases().items()}
    after[LOADER] = loader_digests(0)
    FILE.write_text(json.dumps(after, indent=1) + "\n")
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            print(name)


if __name__ == "__main__":
    main()
