"""Gradients of a model in pipeline stages, in separate processes, equal those of the whole model and batch."""

import itertools

import pytest
from pipeline_case import ARCHS, LAYOUTS, SCHEDULES, compare, start_forked

from hoptrain.trainers.pipeline import launch, run_ranks

# Each schedule with each of these numbers of chunks, each layout and each kind of layer.
CHUNKS = 1, 2, 3, 4, 5, 8
EXACT = [(ARCHS[number // 3 % 3], CHUNKS[number // 3], SCHEDULES[number % 3], LAYOUTS[number % 5], "float64", 0.0) for number in range(18)]
SINGLE = [(arch, 3, schedule, (2, 2), "float32", 0.0) for arch, schedule in zip(ARCHS, SCHEDULES, strict=True)]
DROPOUT = [
    ("gat", 3, "gpipe", (2, 1), "float64", 0.5),
    ("gat", 4, "1f1b", (4, 1), "float64", 0.5),
    ("sage", 2, SCHEDULES[2], (2, 2), "float64", 0.5),
]


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("forkserver")
def test_gradients_are_those_of_the_whole_batch(monkeypatch):
    """Without dropout gradients equal the whole batch's; with dropout, those of the chunks in sequence, for any schedule."""
    monkeypatch.setattr(launch, "_start", start_forked)
    cases = EXACT + SINGLE + DROPOUT
    for values, place in ((ARCHS, 0), (CHUNKS, 1), (LAYOUTS, 3)):
        assert {(case[place], case[2]) for case in EXACT} == set(itertools.product(values, SCHEDULES))
    for rank, errors in enumerate(run_ranks(compare, 4, cases, deadline_s=280)):
        wrong = {case: error for case, error in zip(cases, errors, strict=True) if not error < (1e-10 if case[4] == "float64" else 1e-5)}
        assert not wrong, f"rank {rank}"
