"""The split of FastGCN's paper and those after it: all labelled nodes that are not held out are trained on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hoptrain.engine.dataset import Dataset
from hoptrain.engine.errors import InputError


def fully_supervised(data: Dataset) -> Dataset:
    """The data set with all nodes that have a label for training but those for validation and test (Chen, Ma, Xiao 2018).

    Raises:
        InputError: it has no labels.
    """
    if data.y is None:
        raise InputError(f"{data.name} has no labels: all nodes with a label are to be trained on; leave full_supervision out")
    is_known = ~np.isnan(data.y) if data.y.dtype.kind == "f" else data.y >= 0
    labelled = np.flatnonzero(is_known.reshape(len(data.y), -1).any(axis=1))
    held_out = [data.splits[name] for name in ("val", "test") if name in data.splits]
    return replace(data, splits={**data.splits, "train": np.setdiff1d(labelled, np.concatenate([[], *held_out]))}, validate=False)
