"""``hoptrain bench accuracy --samplers``: one model on real graphs, trained with each sampler and evaluated on full neighbourhoods.

All samplers train the same model with the same optimiser, for the same number of steps as training on full neighbourhoods. An epoch has as many steps as
the sampler has batches; validation is as frequent for all. The score is the test accuracy of the checkpoint with the best validation accuracy. All nodes
outside the validation and test splits are used for training, as in the FastGCN paper and later ones; PubMed's public split has only 60 training nodes, of
which a subgraph sampler would see few in a step.

``points`` is a sampler's accuracy minus that of full neighbourhoods with the same seeds, in percentage points, on average. ``claims`` tells whether its
paper claims the accuracy of full neighbourhoods; of the samplers in ``hoptrain.benchmarks.cases.samplers`` only PinSAGE's does not.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from hoptrain.benchmarks.cases.samplers import ALGORITHMS, TRAINED, Algorithm, Options, Training
from hoptrain.benchmarks.common import tables
from hoptrain.benchmarks.common.harness import Record, Result
from hoptrain.benchmarks.common.options import key_of
from hoptrain.engine import InputError, load_dataset
from hoptrain.engine.transforms.full_supervision import fully_supervised
from hoptrain.samplers import ASGCNSampler
from hoptrain.trainers.commands.lightning import run as run_cli

FULL = ALGORITHMS["full"].label
_VALIDATIONS = 40
_QUICK_STEPS = 3
_SAGE: Options = {"arch": "sage", "hidden_channels": 64, "normalize_features": True, "lr": 0.01, "weight_decay": 5e-4}
_DENSE: Options = {"arch": "sage", "hidden_channels": 128, "lr": 0.003}
DATA: Mapping[str, Training] = {
    "amazon_computers": Training(steps=800, batch_size=512, model=_DENSE, draws=2048, budget=6144, clusters=40),
    "pubmed": Training(steps=800, batch_size=512, model=_SAGE, draws=1024, budget=8192, clusters=40),
}


def run_samplers(args: argparse.Namespace) -> Result:
    """Train with every sampler on every data set. With ``--quick`` use one seed, one data set, three samplers and few steps."""
    names = args.data or (["pubmed"] if args.quick else list(DATA))
    seeds = list(range(1, 2 if args.quick else args.seeds + 1))
    records: list[dict[str, Any]] = []
    for name in names:
        if name not in DATA:
            raise InputError(f"data set {name!r} has no settings in this benchmark: choose among {', '.join(DATA)}")
        with tempfile.TemporaryDirectory() as root:
            fully_supervised(load_dataset(name, root=args.root)).save(Path(root) / name)
            for label, algorithm in TRAINED.items():
                if label == FULL or _is_asked_for(label, args):
                    records.append(_row(name, label, algorithm, seeds, Path(root), args.quick, records))
                    print(" | ".join(f"{key} {value}" for key, value in records[-1].items()), flush=True)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "samplers.md").write_text(tables.markdown(list(_lines(records))))
    return Result(records=records, summary=_summary(records), seeds=seeds)


def _is_asked_for(label: str, args: argparse.Namespace) -> bool:
    wanted = args.only or (["VR-GCN", "LADIES"] if args.quick else [])
    return not wanted or any(label.startswith(start) for start in wanted)


def _row(
    name: str, label: str, algorithm: Algorithm, seeds: Sequence[int], root: Path, quick: bool, before: Sequence[Record]
) -> dict[str, Any]:
    """Train with each seed, and return a row of the table. Its ``points`` compare it with the row of full neighbourhoods in ``before``."""
    begin = time.perf_counter()
    scores = [fit_accuracy(name, algorithm, seed, root, quick) for seed in seeds]
    reference = next((row["test_accuracy"] for row in before if (row["data"], row["sampler"]) == (name, FULL)), None)
    mean = statistics.mean(scores)
    return {
        "data": name,
        "sampler": label,
        "test_accuracy": mean,
        "least": min(scores),
        "most": max(scores),
        "points": None if reference is None else 100 * (mean - reference),
        "claims": algorithm.claims,
        "seconds_run": (time.perf_counter() - begin) / len(seeds),
    }


def _options(name: str, algorithm: Algorithm, seed: int, root: Path, quick: bool) -> dict[str, Any]:
    """Return the configuration of a training for ``hoptrain fit``."""
    training = DATA[name]
    sampler = {"class_path": f"hoptrain.samplers.{algorithm.sampler.__name__}", "init_args": arguments(algorithm, training)}
    steps = _QUICK_STEPS if quick else training.steps
    size = {"seeds": training.batch_size, "clusters": max(1, training.clusters // 4), "one": 1}[algorithm.deals]
    return {
        "task": "adaptive" if algorithm.sampler is ASGCNSampler else "nodes",
        "seed_everything": seed,
        "data": {"dataset": name, "root": str(root), "sampler": sampler, "batch_size": size, "num_workers": 0},
        "model": dict(training.model),
        "trainer": {
            "max_steps": steps,
            "max_epochs": -1,
            "val_check_interval": max(1, steps // _VALIDATIONS),
            "check_val_every_n_epoch": None,
            "accelerator": "cpu",
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "logger": False,
        },
    }


def arguments(algorithm: Algorithm, training: Training) -> dict[str, Any]:
    """Return the arguments of the sampler's class for a training.

    Raises:
        TypeError: the algorithm has no arguments for training.
    """
    if algorithm.trained is None:
        raise TypeError(f"{algorithm.sampler.__name__} defines no arguments for a training: set Algorithm.trained")
    return dict(algorithm.trained(training))


def fit_accuracy(name: str, algorithm: Algorithm, seed: int, root: Path, quick: bool) -> float:
    """Train once and return the test accuracy."""
    with tempfile.TemporaryDirectory() as scratch:
        options = _options(name, algorithm, seed, root, quick)
        options["trainer"]["default_root_dir"] = scratch
        config = Path(scratch) / "run.yaml"
        config.write_text(yaml.safe_dump(options))
        cli = run_cli(["fit", "--config", str(config)])
        return float(cli.trainer.callback_metrics["test_acc"])


def _summary(records: Sequence[Record]) -> dict[str, float]:
    """Return, for each data set, the accuracy on full neighbourhoods and the lowest ``points`` of samplers whose paper claims to reach it."""
    summary: dict[str, float] = {}
    for name in dict.fromkeys(row["data"] for row in records):
        rows = [row for row in records if row["data"] == name]
        summary[f"full_{key_of(name)}"] = rows[0]["test_accuracy"]
        claimed = [row["points"] for row in rows[1:] if row["claims"]]
        if claimed:
            summary[f"min_points_{key_of(name)}"] = min(claimed)
    return summary


def _lines(records: Sequence[Record]) -> Iterator[dict[str, str]]:
    """Yield the table's rows, one per sampler, with mean accuracy and ``points`` for each data set."""
    for label in dict.fromkeys(row["sampler"] for row in records):
        rows = {row["data"]: row for row in records if row["sampler"] == label}
        cells = dict.fromkeys((row["data"] for row in records), "")
        for name, row in rows.items():
            points = "" if row["points"] is None else f" ({row['points']:+.1f})"
            cells[name] = f"{row['test_accuracy']:.3f}{points}"
        claims = next(row["claims"] for row in rows.values())
        yield {"sampler": label, **cells, "paper claims as much": "yes" if claims else "no"}
