"""``run_ranks``: processes end normally, or all end with the error of the first failure."""

import os
import signal
import time

import pytest
import torch
from cases.mistakes import refused
from pipeline_case import Failing, chunk_loss, start_forked

from hoptrain.trainers.pipeline import Chunk, Pipeline, Plan, RankError, launch, run_ranks

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("forkserver")]  # a busy machine takes a minute to start two ranks


def fail(how):
    """Fail in the second stage, at its third chunk."""
    pipeline = Pipeline(Failing(how), Plan(stages=2, chunks=4), chunk_loss)
    x = torch.ones(3, 4)
    return pipeline.step(
        [Chunk(rows=(3,) * 3, inputs=((number,),) * 2, x=x, target=torch.zeros(3, dtype=torch.long)) for number in range(4)]
    )


@pytest.mark.parametrize(
    ("how", "code", "below"),
    [
        ("raise", 1, "StageError: rank 1, stage 1 (layer 1), chunk 2: RuntimeError: this layer fails"),
        ("kill", -signal.SIGKILL.value, ""),
    ],
    ids=["an exception", "a signal"],
)
def test_a_stage_that_fails_ends_all(monkeypatch, how, code, below):
    if how == "kill":  # the processes of the other case are started
        monkeypatch.setattr(launch, "_start", start_forked)
    with refused("rank 1", f"ended code {code}", error=RankError, below=below):  # at the deadline the message would be another one
        run_ranks(fail, 2, how, deadline_s=250)


def test_ranks_that_are_late():
    with refused("rank 0", "not end time", "deadline_s", RankError):
        run_ranks(time.sleep, 1, 100, deadline_s=0.5)
    with refused("world_size is 0", "at least 1", "number processes"):
        run_ranks(os.getpid, 0)
