"""A typed graph to measure on: a twin of ogbn-mag, generated."""

from __future__ import annotations

import numpy as np

from hoptrain.benchmarks.common.options import SEED
from hoptrain.engine import HeteroDataset, HeteroGraph, InputError
from hoptrain.engine.arrays import Array

TWIN = "typed:mag"
DEFAULT_SCALE = 0.05
_NODES = {"paper": 736_389, "author": 1_134_649, "institution": 8_740, "field": 59_965}
_EDGES = {
    ("author", "writes", "paper"): 7_145_660,
    ("paper", "cites", "paper"): 5_416_271,
    ("author", "belongs", "institution"): 1_043_998,
    ("paper", "has", "field"): 7_505_078,
}
_FEATURES, _CLASSES, _TRAIN = 128, 349, 629_571 / 736_389
_POWER = 2.5
"""Of a number in [0, 1) that becomes the rank of an end: degrees then follow a power law."""


def mag_twin(scale: float) -> HeteroDataset:
    """The sizes of ogbn-mag times ``scale`` (Hu et al. 2020), each relation also turned round as ``rev_NAME``; made up are ends, labels and features.

    All types have features, those without any in ogbn-mag too, as a script would give them learnt ones.

    Raises:
        InputError: a scale outside (0, 1], or one that leaves a type without vertices.
    """
    if not 0 < scale <= 1 or min(_NODES.values()) * scale < 1:
        raise InputError(
            f"scale is {scale}: it is the share of {TWIN} to generate, above 0.0002 and at most 1; give for instance {DEFAULT_SCALE}"
        )
    rng = np.random.default_rng(SEED)
    num_nodes = {kind: int(number * scale) for kind, number in _NODES.items()}
    edges: dict[tuple[str, str, str], tuple[Array, Array]] = {}
    for (source, name, destination), number in _EDGES.items():
        ends = [_ends(rng, num_nodes[kind], int(number * scale)) for kind in (source, destination)]
        edges[source, name, destination] = ends[0], ends[1]
        edges[destination, f"rev_{name}", source] = ends[1], ends[0]
    papers = num_nodes["paper"]
    return HeteroDataset(
        name=TWIN,
        graph=HeteroGraph.from_edges(num_nodes, edges),
        seed_type="paper",
        x={kind: rng.random((number, _FEATURES), np.float32) for kind, number in num_nodes.items()},
        y=rng.integers(0, _CLASSES, papers),
        splits={"train": np.sort(rng.permutation(papers)[: int(papers * _TRAIN)])},
    )


def _ends(rng: np.random.Generator, num_nodes: int, number: int) -> Array:
    """(number,) vertices."""
    ranks = (rng.random(number) ** _POWER * num_nodes).astype(np.int64)
    return rng.permutation(num_nodes)[ranks]
