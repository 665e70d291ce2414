"""``hoptrain bench accuracy --precisions``: the same models with float32, TF32 and bfloat16 products, which a GPU computes at different speeds.

Each training is ``hoptrain fit`` with one of hoptrain's configurations, on a GPU if there is one. ``highest`` (torch's default) and ``high`` are values of
``torch.set_float32_matmul_precision``. ``bf16-mixed`` is a value of ``--trainer.precision``. ``points`` is a precision's metric minus that of ``highest``
with the same seed, times 100, on average. ``in_spread`` is true if the mean lies between the lowest and the highest score of ``highest``.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from hoptrain.benchmarks.cases.narrow_features import facts
from hoptrain.benchmarks.common.harness import Result
from hoptrain.benchmarks.common.options import key_of

CONFIGS = ("quickstart", "synthetic_products", "diabetes_sage")
"""Configurations whose data sets need no download. The metric of ``diabetes_sage`` is R2."""
PRECISIONS: Mapping[str, Mapping[str, str]] = {"highest": {}, "high": {}, "bf16-mixed": {"trainer.precision": "bf16-mixed"}}
"""Name of a precision -> options of ``hoptrain fit``."""
_EXACT = "highest"


def run_precisions(args: argparse.Namespace, score: Callable[[str, Mapping[str, str], str, int], float], scratch: str) -> Result:
    """Train every configuration with every precision; with ``--quick`` only the first configuration with one seed.

    Args:
        args: parsed options of the command.
        score: function that trains and returns the score, from a configuration, its options, a folder for its files and a seed.
        scratch: folder for files of the trainings.
    """
    names: Sequence[str] = args.configs or (CONFIGS[:1] if args.quick else CONFIGS)
    seeds = list(range(1, 2 if args.quick else args.seeds + 1))
    records: list[dict[str, Any]] = []
    for name in names:
        exact: list[float] = []
        for precision, options in PRECISIONS.items():
            begin = time.perf_counter()
            with _products("high" if precision == "high" else _EXACT):
                scores = [score(name, options, scratch, seed) for seed in seeds]
            seconds = (time.perf_counter() - begin) / len(seeds)
            exact = scores if precision == _EXACT else exact
            is_in = min(exact) <= statistics.mean(scores) <= max(exact)
            records.append({"config": name, "precision": precision, **facts(scores, exact), "in_spread": is_in, "seconds": seconds})
            print(" | ".join(f"{key} {value}" for key, value in records[-1].items()), flush=True)
    others = [precision for precision in PRECISIONS if precision != _EXACT]
    summary = {f"least_points_{key_of(each)}": min(row["points"] for row in records if row["precision"] == each) for each in others}
    return Result(records=records, summary=summary, seeds=seeds)


@contextmanager
def _products(precision: str) -> Iterator[None]:
    """Compute float32 products with a precision of torch within the context."""
    import torch  # not at module level, since torch would slow down --help

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
