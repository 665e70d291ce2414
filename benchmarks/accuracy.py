"""How accurate are models trained by hoptrain, on the public splits of the citation graphs and on other data sets?

Each record is one ``hoptrain fit`` with one of hoptrain's own configurations and one seed. Its score is the test metric of the checkpoint with the best
validation metric; its CPU time includes worker processes. For ``synthetic:products`` the same model is also trained on the graph without its edges.

Some configurations are compared with another model, whose records have a suffix:

* ``NAME_pyg``, for configurations in ``PLAIN``: the same model in plain PyG (``hoptrain.benchmarks.baselines.plain``, and for heterogeneous graphs
  ``hoptrain.benchmarks.baselines.full_batch_hetero``).
* ``NAME_pyg``, for those in ``PAIRED``: a model in plain PyG that is trained for the same CPU time or the same number of epochs
  (``hoptrain.benchmarks.baselines.plain_pairs``).
* ``NAME_uniform``, for those in ``UNIFORM``: uniform neighbour sampling on the same data set.

Four options select another comparison:

* ``--events`` trains TGN on JODIE's Wikipedia edits, with hoptrain and with PyG's example. Scores are the test metrics of the epoch with the best
  validation metric.
* ``--samplers`` trains one model with each sampler (``hoptrain.benchmarks.cases.accuracy``).
* ``--features`` trains one model on quantised features (``hoptrain.benchmarks.cases.narrow_features``).
* ``--precisions`` trains models with float32, TF32 and bfloat16 products (``hoptrain.benchmarks.cases.precisions``).
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from hoptrain.benchmarks.common.harness import Result
from hoptrain.engine import Graph, InputError, load_dataset
from hoptrain.engine.datasets.small_graphs import FOLDS
from hoptrain.engine.features.quantized import FORMATS
from hoptrain.trainers.commands.configs import FOLDER

CITATION = [f"{data}_{arch}" for arch in ("gcn", "gat", "sage") for data in ("cora", "citeseer", "pubmed")]
PRODUCTS = "synthetic_products"
FOLDED = ["mutag_gin", "enzymes_gin", "proteins_gin"]
"""Configurations of graph classification with ten-fold splits. A training with seed 1 is tested on fold 0, a training with seed 2 on fold 1, and so on."""
PLAIN = [*FOLDED, "flickr_attr_sage", "physics_gcn", "diabetes_sage", "wordnet_edges", "acm_rgcn", "acm_hgt", "acm_links"]
PAIRED = ["pubmed_links", "ogbl_ddi", "fb15k237_distmult", "fb15k237_rgcn", "gowalla_lightgcn"]
"""Configurations whose plain PyG model is trained for the CPU time that hoptrain took with the same seed, or for the same number of epochs."""
_SAMPLED = {"data.sampler.init_args.fanouts": "[10,10]", "checkpoint.monitor": "val_acc", "checkpoint.mode": "max"}
UNIFORM: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "pubmed_sse": ("pubmed_gcn", _SAMPLED),
    "cora_asgcn": (
        "cora_gcn",
        _SAMPLED
        | {"data.full_supervision": "true", "data.batch_size": "256", "trainer.max_epochs": "100"}
        | {"model.input_dropout": "0.0", "model.dropout": "0.0"},
    ),
    "cora_mvs": ("cora_mvs", {"data.sampler.init_args.uniform_mix": "1.0"}),
}
"""Configuration with a sampler or task from a paper -> its baseline: the configuration and options for uniform neighbour sampling on the same data set."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--seeds", type=int, default=5, help="number of trainings per configuration, with seeds 1, 2, ... (default 5)")
    parser.add_argument(
        "--configs",
        nargs="+",
        help="configurations to train, by file name without .yaml (default: quickstart, the citation graphs and synthetic products)",
    )
    parser.add_argument("--samplers", action="store_true", help="compare the accuracy with each sampler and with full neighbourhoods")
    parser.add_argument(
        "--data", nargs="+", help="with --samplers or --features: data sets (default: all for which the benchmark has settings)"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="NAME",
        help="with --samplers: only samplers whose names start with one of these, and full neighbourhoods",
    )
    parser.add_argument("--root", metavar="DIR", help="with --samplers or --events: folder that holds the data sets")
    parser.add_argument("--events", action="store_true", help="compare TGN on Wikipedia's edits with PyG's example")
    parser.add_argument("--features", nargs="+", choices=FORMATS, help="compare the accuracy with features in these formats and in float32")
    parser.add_argument("--precisions", action="store_true", help="compare the accuracy with float32, TF32 and bf16-mixed products")
    parser.add_argument(
        "--epochs", type=int, help="epochs of each training: with --events (default 10) or --features (default: as in the configuration)"
    )


def run(args: argparse.Namespace) -> Result:
    """Train all configurations. With ``--quick`` train only the quickstart and GCN on Cora, with one seed."""
    _check_options(args)
    if args.features or args.precisions:
        from hoptrain.benchmarks.cases.narrow_features import run_formats
        from hoptrain.benchmarks.cases.precisions import run_precisions

        with tempfile.TemporaryDirectory() as scratch:
            return (run_formats if args.features else run_precisions)(args, _test_score, scratch)
    if args.samplers:
        from hoptrain.benchmarks.cases.accuracy import run_samplers  # imported here, since torch would slow down --help

        return run_samplers(args)
    if args.events:
        from hoptrain.benchmarks.baselines.tgn import run_events

        return run_events(args)
    names = args.configs or (["quickstart", "cora_gcn"] if args.quick else ["quickstart", *CITATION, PRODUCTS])
    seeds = list(range(1, 2 if args.quick else args.seeds + 1))
    records: list[dict[str, Any]] = []
    summary: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name in names:
            summary |= _repeat(name, partial(_test_score, name, {}, scratch), seeds, records)
            if name == PRODUCTS:
                bare = {"data.dataset": _without_edges(Path(scratch) / "bare"), "data.scale": "1.0"}
                summary |= _repeat(f"{name}_no_edges", partial(_test_score, name, bare, scratch), seeds, records)
                summary["points_gained_by_edges"] = 100 * (summary[name] - summary[f"{name}_no_edges"])
            if name in UNIFORM:
                config, options = UNIFORM[name]
                summary |= _repeat(f"{name}_uniform", partial(_test_score, config, options, scratch), seeds, records)
                summary[f"{name}_points"] = 100 * (summary[name] - summary[f"{name}_uniform"])
            if name in [*PLAIN, *PAIRED]:
                spent = {row["seed"]: row["cpu_seconds"] for row in records if row["config"] == name}
                summary |= _repeat(f"{name}_pyg", partial(_plain_score, name, spent), seeds, records)
                summary[f"{name}_points"] = 100 * (summary[name] - summary[f"{name}_pyg"])
    return Result(records=records, summary=summary, seeds=seeds)


def _check_options(args: argparse.Namespace) -> None:
    """Raise InputError if options exclude one another."""
    if args.events and (args.samplers or args.data or args.only or args.configs):
        raise InputError(
            "--samplers, --data, --only or --configs with --events: --events has a fixed data set and configuration; leave the other options out"
        )
    if args.epochs is not None and not (args.events or args.features):
        raise InputError(f"--epochs is {args.epochs}: it works only with --events or --features; add one of them, or leave --epochs out")
    if args.features and (args.samplers or args.events or args.configs or args.only or args.root):
        raise InputError(
            "--features with --samplers, --events, --configs, --only or --root: --features has its own settings; leave the other options out"
        )
    if args.precisions and (args.features or args.samplers or args.events):
        raise InputError("--precisions with --features, --samplers or --events: they are separate comparisons; give one of them")
    if (args.data or args.only or args.root) and not (args.features or args.samplers or args.events):
        raise InputError(
            "--data, --only or --root without --samplers: they work only with it (--root also with --events); add it, or leave them out"
        )


def _repeat(label: str, score: Callable[[int], float], seeds: list[int], records: list[dict[str, Any]]) -> dict[str, float]:
    """Train once for each seed, append the runs to ``records``, and return the mean, the smallest and the largest score."""
    scores = []
    for seed in seeds:
        begin = _cpu_seconds()
        scores.append(score(seed))
        records.append({"config": label, "seed": seed, "test_score": scores[-1], "cpu_seconds": _cpu_seconds() - begin})
        print(" | ".join(f"{key} {value}" for key, value in records[-1].items()), flush=True)
    return {label: statistics.mean(scores), f"{label}_least": min(scores), f"{label}_most": max(scores)}


def _cpu_seconds() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    return sum(os.times()[:4])


def _test_score(config: str, options: Mapping[str, str], scratch: str, seed: int) -> float:
    from hoptrain.trainers.commands.lightning import run as run_cli

    fixed = {
        "config": str(FOLDER / f"{config}.yaml"),
        "seed_everything": str(seed),
        "trainer.default_root_dir": scratch,
        "trainer.enable_progress_bar": "false",
        "trainer.enable_model_summary": "false",
    }
    if config in FOLDED:
        fixed["data.fold"] = str(fold_of(seed))
    cli = run_cli(["fit", *(f"--{name}={value}" for name, value in (fixed | dict(options)).items())])
    return float(cli.trainer.callback_metrics[f"test_{cli.model.score_name}"])


def _plain_score(name: str, spent: Mapping[int, float], seed: int) -> float:
    from hoptrain.benchmarks.baselines.full_batch_hetero import whole_graph_accuracy, whole_graph_links_auc
    from hoptrain.benchmarks.baselines.plain import plain_score
    from hoptrain.benchmarks.baselines.plain_pairs import plain_pairs_score

    config = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    if name in FOLDED:
        config["data"]["fold"] = fold_of(seed)
    if name in PAIRED:
        return plain_pairs_score(config, seed, spent[seed])
    of_task = {"hetero": whole_graph_accuracy, "hetero_links": whole_graph_links_auc}
    return of_task.get(config.get("task"), plain_score)(config, seed)


def fold_of(seed: int) -> int:
    """Return the index of the fold on which a training with this seed is tested."""
    return (seed - 1) % FOLDS


def _without_edges(folder: Path) -> str:
    """Save the data set ``PRODUCTS`` without edges, and return the path of its folder."""
    data = load_dataset("synthetic:products", scale=0.02)
    graph = Graph(np.zeros(data.graph.num_nodes + 1, np.int64), np.empty(0, np.int32))
    replace(data, name="no edges", graph=graph, validate=False).save(folder)
    return str(folder)
