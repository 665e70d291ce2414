"""The heterogeneous graph of the benchmarks: ``typed:mag``, the synthetic ogbn-mag with reversed relations and with features for all node types."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hoptrain.benchmarks.common.options import SEED
from hoptrain.engine import HeteroDataset, load_hetero_dataset

SYNTHETIC_MAG = "typed:mag"
DEFAULT_SCALE = 0.05


def synthetic_mag(scale: float) -> HeteroDataset:
    """Return the synthetic ogbn-mag at a scale, with each relation also reversed, as ``rev_NAME``. Types without features get random ones.

    Raises:
        InputError: the scale is invalid, as in ``load_hetero_dataset``.
    """
    data = load_hetero_dataset("synthetic:mag", scale=scale, add_reverse=True)
    rng, width = np.random.default_rng(SEED), data.x[data.seed_type].shape[1]
    drawn = {kind: rng.random((number, width), np.float32) for kind, number in data.graph.num_nodes.items() if kind not in data.x}
    return replace(data, name=SYNTHETIC_MAG, x={**data.x, **drawn}, path=None, validate=False)
