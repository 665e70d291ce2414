"""Full supervision, the split of FastGCN: all labelled nodes outside validation and test are training nodes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hoptrain.engine.dataset import Dataset
from hoptrain.engine.errors import InputError


def fully_supervised(data: Dataset) -> Dataset:
    """Return the data set with all labelled nodes outside validation and test as training nodes (Chen, Ma, Xiao 2018).

    Raises:
        InputError: the data set has no labels.
    """
    if data.y is None:
        raise InputError(f"{data.name} has no labels: full_supervision trains on all nodes with a label; leave full_supervision out")
    is_known = ~np.isnan(data.y) if data.y.dtype.kind == "f" else data.y >= 0
    labelled = np.flatnonzero(is_known.reshape(len(data.y), -1).any(axis=1))
    held_out = [data.splits[name] for name in ("val", "test") if name in data.splits]
    return replace(data, splits={**data.splits, "train": np.setdiff1d(labelled, np.concatenate([[], *held_out]))}, validate=False)
