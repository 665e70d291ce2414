"""How fast is each sampling algorithm, beside the libraries that have it?

For every algorithm all systems sample mini-batches from the same graph in interleaved rounds, as many a round as fill some tenths of a second.
Each number is a median over the rounds; a ratio is formed within a round: how many times as much time a peer takes for an edge of its result
(a step of a walk; a mini-batch, where results differ in size) as hoptrain with as many threads. hoptrain copies every array out into memory
that is used again, as its loader does; peers return new tensors. How they are driven is said in ``hoptrain.benchmarks.peers.algorithms``.

The summary's ``min_ratio_ALGORITHM`` is hoptrain's speed over the *fastest* variant of any peer that uses up to as many threads, the least
over graphs and thread counts; ``min_ratio`` is the least of these. Preparations (alias tables, clusters, the law of FastGCN) are not timed.
Neighbour sampling in PyG's expansion, and beside what the memory allows, is in ``hoptrain bench sampler``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from hoptrain.benchmarks.cases.algorithm_report import GOAL, WHY, draw, markdown
from hoptrain.benchmarks.cases.algorithms import ALGORITHMS, SEED, Contender, Open, Task, open_hoptrain
from hoptrain.benchmarks.common.harness import Result
from hoptrain.benchmarks.common.rounds import Cost, Costs, Paced, time_rounds
from hoptrain.benchmarks.peers.algorithms import PEERS
from hoptrain.benchmarks.peers.systems import FAMILY
from hoptrain.benchmarks.sampler import GRAPHS, cores, key_of, num_rounds, summarize, warn_if_busy
from hoptrain.engine import Dataset, Graph, InputError, load_dataset

_SECONDS = {False: 0.3, True: 0.05}
"""What a system's calls of a round take together, about; with and without ``--quick``."""
_SCALE = {False: 0.2, True: 0.01}
_TOLERANCE = 0.2
"""Difference in edges of a mini-batch, relative, that chance may make."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this benchmark."""
    parser.description = f"{parser.description} Takes half an hour; results.json, algorithms.md and algorithms.png are left in --out."
    add = parser.add_argument
    names = list(ALGORITHMS)
    add("--algorithms", nargs="+", choices=names, default=names, help="what to time (default: all)")
    add("--graphs", nargs="+", default=list(GRAPHS), metavar="NAME", help="data sets (default: the synthetic twins of Reddit and products)")
    add("--scale", type=float, help="share of a synthetic: set to generate, in (0, 1] (default 0.2, with --quick 0.01)")
    add("--root", metavar="DIR", help="folder that holds data sets")
    add("--peers", nargs="*", choices=list(PEERS), default=list(PEERS), help="what to compare with (default: all that are installed)")
    add("--threads", type=int, nargs="+", default=[1, 2][: cores()], metavar="T", help="threads of each system (default 1 2)")
    add("--rounds", type=int, metavar="R", help="rounds that count (default 7, with --quick 3)")


def run(args: argparse.Namespace) -> Result:
    """Measure every algorithm on every graph; see the module's docstring."""
    threads = sorted(set(args.threads))
    if not 1 <= threads[0] <= threads[-1] <= cores():
        raise InputError(f"threads are {threads}: this process may use {cores()} cores, so 1 to as many; correct --threads")
    warn_if_busy()
    records: list[dict[str, Any]] = []
    answers: list[dict[str, float]] = []
    for name in args.graphs:
        data = _load(name, args)
        split = data.split("train") if "train" in data.splits else np.arange(data.graph.num_nodes)
        graph = _with_weights(data.graph)
        peers = list(_open_peers(args.peers, graph))
        for key in args.algorithms:
            print(data.name, key, file=sys.stderr)
            task = ALGORITHMS[key].task(graph, split, args.quick)
            contenders = [*open_hoptrain(task, threads), *(one for peer in peers for one in peer(key, task, threads))]
            rows, answer = _measure(key, task, contenders, num_rounds(args), _SECONDS[args.quick])
            records += [{"graph": data.name} | row for row in rows]
            answers.append(answer)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "algorithms.md").write_text(markdown(records))
    draw(records, args.out / "algorithms.png")
    return Result(records=records, summary=summarize(answers), seeds=[SEED])


def _load(name: str, args: argparse.Namespace) -> Dataset:
    scale = _SCALE[args.quick] if args.scale is None else args.scale
    return load_dataset(name, root=args.root, scale=scale if name.startswith("synthetic:") else 1.0)


def _with_weights(graph: Graph) -> Graph:
    """In memory, with random weights of the edges where there are none."""
    weights = graph.weights
    if weights is None:
        weights = np.random.default_rng(SEED).random(graph.num_edges, np.float32) + np.float32(0.1)
    return Graph(graph.indptr, graph.indices, weights=weights, is_sorted=graph.is_sorted, validate=False).in_memory()


def _open_peers(names: Sequence[str], graph: Graph) -> Iterator[Open]:
    for name in names:
        try:
            yield PEERS[name](graph)
        except InputError as error:
            print(f"skipped {name}: {error}")


def _measure(
    key: str, task: Task, contenders: Sequence[Contender], rounds: int, seconds: float
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """The records of an algorithm on a graph, and its part of the summary."""
    algorithm = ALGORITHMS[key]
    by_unit = algorithm.unit == "batch"
    paced = {_label(one): Paced(partial(_sample, one, task), seconds, least=one.threads, by_unit=by_unit) for one in contenders}
    costs = time_rounds(paced, rounds)
    alike = [one for one in contenders if by_unit or one.note or _is_same_work(one, paced)]
    return [_row(key, one, paced[_label(one)], costs) for one in alike], _answers(key, alike, costs)


def _sample(contender: Contender, task: Task, first: int, number: int) -> int:
    return contender.sample(task.batches(first, number), first)


def _is_same_work(contender: Contender, paced: Mapping[str, Paced]) -> bool:
    """Whether it finds about as many edges as hoptrain, from other mini-batches of the task; one that does not is left out, aloud."""
    edges, expected = paced[_label(contender)].amount_per_unit, paced[f"{FAMILY}, {contender.threads}"].amount_per_unit
    same = abs(edges - expected) <= _TOLERANCE * expected
    if not same:
        print(f"left out {_label(contender)}: {edges:,.0f} edges a batch where hoptrain has {expected:,.0f}; the work is not the same")
    return same


def _label(contender: Contender) -> str:
    return f"{contender.name}, {contender.threads}"


def _row(key: str, contender: Contender, paced: Paced, costs: Costs) -> dict[str, Any]:
    cost, unit, edges_batch = costs[_label(contender)], ALGORITHMS[key].unit, paced.amount_per_unit
    beside = None if contender.family == FAMILY else costs[f"{FAMILY}, {contender.threads}"].ns
    ratio = None if beside is None else cost.over(beside)
    return {
        "algorithm": key,
        "system": contender.name,
        "threads": contender.threads,
        "ms_batch": 1e-6 * cost.median * (1 if unit == "batch" else edges_batch),
        "edges_batch": edges_batch,
        "unit": unit,
        "ns_unit": cost.median,
        "spread": cost.spread,
        "ratio": ratio,
        "counts": contender.counts,
        "note": contender.note or None,
        "why": WHY.get(key) if ratio is not None and ratio < GOAL else None,
    }


def _answers(key: str, contenders: Sequence[Contender], costs: Mapping[str, Cost]) -> dict[str, float]:
    """Compare hoptrain's speed with that of each peer with up to as many threads, the least of all."""
    answers = []
    for own in (one for one in contenders if one.family == FAMILY):
        for peer in contenders:
            if peer.family != FAMILY and peer.counts and peer.threads <= own.threads:
                ratio = costs[_label(peer)].over(costs[_label(own)].ns)
                answers += [{f"min_ratio_{key}": ratio, f"min_ratio_{key_of(peer.family)}": ratio, "min_ratio": ratio}]
    return summarize(answers)
