"""``hoptrain bench accuracy --features``: one model on real graphs, trained and tested with quantised features.

Each training is ``hoptrain fit`` with one of hoptrain's configurations, on a folder with the data set's features in one format. The score is the test
metric of the checkpoint with the best validation metric. ``float32`` is the table from which the others are quantised. Integer features that fit in a
byte, such as word occurrences (0 or 1), would be exact in int8. For such data sets each row is divided by its sum first, as PyG's ``NormalizeFeatures``
does, so that quantisation has an effect. ``points`` is a format's metric minus that of float32 with the same seed, in percentage points, on average.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hoptrain.benchmarks.common import tables
from hoptrain.benchmarks.common.harness import Result
from hoptrain.benchmarks.common.options import key_of
from hoptrain.engine import Dataset, HeteroDataset
from hoptrain.engine.arrays import Array
from hoptrain.engine.datasets.load import load_any
from hoptrain.engine.errors import check_choice
from hoptrain.engine.features.quantized import FORMATS

SETS = {
    "cora": "cora_gcn",
    "citeseer": "citeseer_gcn",
    "pubmed": "pubmed_gcn",
    "amazon_computers": "pubmed_sage",
    "flickr_attr": "flickr_attr_sage",
    "hetero_acm": "acm_rgcn",
}
"""Name of a data set -> name of the configuration that trains on it."""
WHOLE = "float32"


def run_formats(args: argparse.Namespace, score: Callable[[str, Mapping[str, str], str, int], float], scratch: str) -> Result:
    """Train with every format on every data set; with ``--quick`` only on the first data set with one seed.

    Args:
        args: parsed options of the command.
        score: function that trains and returns the score, from a configuration, its options, a folder for its files and a seed.
        scratch: folder for the data sets.
    """
    names: Sequence[str] = args.data or (list(SETS)[:1] if args.quick else list(SETS))
    given = {"data.num_workers": "0"} | ({} if args.epochs is None else {"trainer.max_epochs": str(args.epochs)})
    seeds = list(range(1, 2 if args.quick else args.seeds + 1))
    records: list[dict[str, Any]] = []
    for name in names:
        check_choice("--data with --features", name, list(SETS))
        scores = {
            form: [score(SETS[name], given | {"data.dataset": str(folder)}, scratch, seed) for seed in seeds]
            for form, folder in written(name, args.features, Path(scratch)).items()
        }
        for form, own in scores.items():
            records.append({"data": name, "config": SETS[name], "features": form, **facts(own, scores[WHOLE])})
            print(" | ".join(f"{key} {value}" for key, value in records[-1].items()), flush=True)
    args.out.mkdir(parents=True, exist_ok=True)
    lines = [{key: f"{value:.4g}" if isinstance(value, float) else value for key, value in row.items()} for row in records]
    (args.out / "features.md").write_text(tables.markdown(lines))
    return Result(records=records, summary=_summary(records), seeds=seeds)


def written(name: str, formats: Sequence[str], scratch: Path) -> dict[str, Path]:
    """Save a data set in each format, and return the folders by format, ``WHOLE`` first."""
    folders = {form: scratch / f"{name}_{form}" for form in (WHOLE, *formats)}
    data = real_valued(load_any(name))
    for form, folder in folders.items():
        data.save(folder, features=form if form in FORMATS else None)
    return folders


def real_valued(data: Any) -> Dataset | HeteroDataset:
    """Return the data set with float32 features. Rows of integers are divided by their sum."""
    if isinstance(data, HeteroDataset):
        return replace(data, x={kind: _real(np.asarray(x)) for kind, x in data.x.items()}, validate=False)
    whole: Dataset = replace(data, x=_real(np.asarray(data.x)), validate=False)
    return whole


def _real(x: Array) -> Array:
    rows = x.astype(np.float32)
    if not np.array_equal(rows, np.rint(rows)):
        return rows
    scaled: Array = rows / np.maximum(rows.sum(1, keepdims=True), 1)
    return scaled


def facts(scores: Sequence[float], whole: Sequence[float]) -> dict[str, float]:
    """Return the mean, lowest and highest score over the seeds, and the mean difference from ``whole``, the scores to compare with, times 100."""
    points = [100 * (own - other) for own, other in zip(scores, whole, strict=True)]
    return {"test_score": statistics.mean(scores), "least": min(scores), "most": max(scores), "points": statistics.mean(points)}


def _summary(records: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return, for each feature format, the lowest ``points`` (percentage points of accuracy) over the data sets."""
    formats = dict.fromkeys(row["features"] for row in records if row["features"] != WHOLE)
    return {f"least_points_{key_of(form)}": min(row["points"] for row in records if row["features"] == form) for form in formats}
