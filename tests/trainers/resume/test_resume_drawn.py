"""Random trainings, stopped at random moments and resumed from the newest checkpoint, end bit-identical to uninterrupted ones.

``make test-faults`` draws a hundred, and for each task kills a rank of one and of two; HOPTRAIN_FAULTS_SEED draws others,
HOPTRAIN_FAULTS_RECORD names a log file.
"""

import contextlib
import json
import os
import shutil
import time

import pytest
import resume_case
import torch
from cases.lightning_callbacks import EXTRAS, with_extras
from ranks.forked import CONTEXT
from ranks.on_machines import free_port

from hoptrain.engine import InputError

COUNT = int(os.environ.get("HOPTRAIN_FAULTS", "0")) or 10
SEED = int(os.environ.get("HOPTRAIN_FAULTS_SEED", "1"))
LIMIT_S = 200
REFUSED = ("weights are partly updated", "wrote it after an exception")
"""Texts of the message about a checkpoint that an exception wrote, from which no run can resume."""
pytestmark = pytest.mark.timeout(4 * LIMIT_S)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Return a folder with the data of all tasks."""
    folder = tmp_path_factory.mktemp("resume")
    (folder / "data").mkdir()
    resume_case.write_data(folder / "data")
    return folder


@pytest.fixture(scope="module")
def folder(data, forkserver):
    """Return the folder in which forked processes train."""
    return data


def train(case, folder, name, checkpoint=None):
    """Train, and return the exit code of each rank. Ranks that hang after a stop, or wait for a rank that has ended, are killed."""
    port = free_port()
    out = folder / str(case["number"]) / name
    ranks = [CONTEXT.Process(target=resume_case.train, args=(case, folder, out, checkpoint, rank, port)) for rank in range(case["ranks"])]
    for rank in ranks:
        rank.start()
    # A stopped rank may leave the other one, or both, in a barrier; without a watchdog nothing would end them.
    deadline = time.monotonic() + LIMIT_S
    while any(rank.is_alive() for rank in ranks) and time.monotonic() < deadline:
        if any(rank.exitcode for rank in ranks):
            deadline = min(deadline, time.monotonic() + 3)
        if out.with_suffix(".struck").exists() and name == "stopped":
            deadline = min(deadline, time.monotonic() + 10)
        time.sleep(0.02)
    for rank in ranks:
        rank.kill()
        rank.join()
    return [rank.exitcode for rank in ranks]


def said(folder, case, name):
    return "\n".join((folder / str(case["number"]) / f"{name}.{rank}.txt").read_text() for rank in range(case["ranks"]))


def result(folder, case, name, rank):
    return torch.load(folder / str(case["number"]) / f"{name}.{rank}.pt", weights_only=True)


def differences(one, other, path=""):
    """Return where two structures of tensors and plain values differ."""
    if isinstance(one, torch.Tensor):
        return [] if one.shape == other.shape and torch.equal(one.nan_to_num(7), other.nan_to_num(7)) else [path]
    if isinstance(one, list | tuple):
        one, other = dict(enumerate(one)), dict(enumerate(other))
    if isinstance(one, dict):
        if one.keys() != other.keys():
            return [f"{path}: {len(one)} and {len(other)}"]
        return [found for key in one for found in differences(one[key], other[key], f"{path}/{key}")]
    return [] if repr(one) == repr(other) else [f"{path}: {one} and {other}"]


def compare(folder, case):
    """Compare weights, optimiser state, the last addresses and the last logged rows."""
    found = []
    for rank in range(case["ranks"]):
        whole, resumed = (result(folder, case, name, rank) for name in ("whole", "resumed"))
        for part in ("addresses", "rows"):
            whole[part] = whole[part][len(whole[part]) - len(resumed[part]) :]
        found += differences(whole, resumed, f"rank {rank}")
    return found


def resume_newest(folder, case):
    """Resume from the newest usable checkpoint, and return its name."""
    files = sorted((folder / str(case["number"]) / "stopped").rglob("*.ckpt"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    for file in [*files, None]:
        # A failed attempt to resume may have left an exception checkpoint, from which Lightning would resume if none is given.
        shutil.rmtree(folder / str(case["number"]) / "resumed", ignore_errors=True)
        codes = train(case, folder, "resumed", file)
        if not any(codes):
            return "from the beginning" if file is None else file.name
        text = said(folder, case, "resumed")
        assert any(reason in text for reason in REFUSED), f"{case}\n{file}\n{text}"
    raise AssertionError("unreachable")


@pytest.mark.parametrize("number", sorted({*range(COUNT), *map(resume_case.TASKS.index, ("hetero", "recommend"))}))
def test_a_run_that_is_stopped_and_resumed(folder, number):
    stop_and_resume(folder, resume_case.draw(SEED, number))


def stop_and_resume(folder, case):
    """Train uninterrupted and interrupted, compare, and return the name of the checkpoint that was resumed from."""
    (folder / str(case["number"])).mkdir()
    assert train(case, folder, "whole") == [0] * case["ranks"], f"{case}\n{said(folder, case, 'whole')}"
    codes = train(case, folder, "stopped")
    source = resume_newest(folder, case)
    found = compare(folder, case)
    if "HOPTRAIN_FAULTS_RECORD" in os.environ:
        with open(os.environ["HOPTRAIN_FAULTS_RECORD"], "a") as file:
            print(json.dumps(case | {"was_stopped": any(codes), "went_on": source, "differs": found}), file=file)
    assert not found, f"{case}\nwent on {source}\n{found[:10]}"
    return source


def resumed_in_process(case, data, out):
    """Resume from the newest usable checkpoint in this process; return the result to compare, and the checkpoint."""
    for file in [*sorted((out / "stopped").rglob("*.ckpt"), key=lambda path: path.stat().st_mtime_ns, reverse=True), None]:
        shutil.rmtree(out / "resumed", ignore_errors=True)  # an exception may have left a checkpoint there, see resume_newest
        torch.manual_seed(0)
        reason = None
        try:
            return resume_case.fit(case, data, out / "resumed", file), file
        except InputError as error:
            reason = str(error)
        assert any(expected in reason for expected in REFUSED), (case, file)
    raise AssertionError("unreachable")


CALLBACKS = {
    **{name: {"extras": [name]} for name in EXTRAS},
    "ModelCheckpoint": {"checkpoints": ["epoch", "steps", "validation"]},
    "OnExceptionCheckpoint": {"on_exception": True},
    "EarlyStopping": {"early": True, "min_epochs": None},
    "EarlyStopping, min_epochs": {"early": True, "min_epochs": 3},
    "StochasticWeightAveraging": {"swa": True, "norm": "none", "scheduler": None},
}
"""Options that replace the random ones of a case, by name, so that each callback occurs."""
IN_PROCESS = (*CALLBACKS, *["drawn"] * max(0, COUNT - 10))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("number", [pytest.param(0, marks=pytest.mark.promise), *range(1, len(IN_PROCESS))])
def test_callbacks_of_a_run_that_is_stopped_and_resumed(data, number):
    """A stopped and resumed run with drawn callbacks equals an uninterrupted one; with the default seed each callback occurs once.

    The run has one rank, in this process.
    """
    case = (
        resume_case.draw(SEED, f"callbacks {number}")
        | {"ranks": 1, "workers": 0, "kind": "exception"}
        | CALLBACKS.get(IN_PROCESS[number], {})
    )
    case = with_extras(case | {"number": f"callbacks-{number}"}, *case["extras"])
    out = data / case["number"]
    out.mkdir()
    torch.manual_seed(0)
    whole = resume_case.fit(case, data, out / "whole", None)
    torch.manual_seed(0)
    with contextlib.suppress(resume_case.StoppedError):
        resume_case.fit(case, data, out / "stopped", None)
    resumed, file = resumed_in_process(case, data, out)
    for part in ("addresses", "rows"):
        whole[part] = whole[part][len(whole[part]) - len(resumed[part]) :]
    assert not differences(whole, resumed), (case, file)


KILLED_AT = {
    "hetero": 4, "hetero_links": 5, "kg": 7, "temporal_links": 5, "recommend": 7, "links": 7, "edges": 7, "graphs-targets": 7, "graphs-labels": 7,
    "balanced": 7,
}  # fmt: skip
"""The batch before which a rank is killed, in the middle of an epoch."""
EVERY_KILL = [(task, ranks) for task in KILLED_AT for ranks in (1, 2)]
SOME_KILLS = [(task, 1 + (task in ("links", "temporal_links"))) for task in KILLED_AT]
"""Each task once. Two ranks take three times as long; they differ where a task's ranks share a state, as the memory of events."""


@pytest.mark.parametrize(("task", "ranks"), EVERY_KILL if "HOPTRAIN_FAULTS" in os.environ else SOME_KILLS)
def test_a_rank_is_killed_in_mid_epoch(folder, task, ranks):
    """If a rank is killed in mid-epoch, the run resumes with another number of workers and equals an uninterrupted one."""
    at, workers = KILLED_AT[task], (0, 2) if ranks == 1 else (2, 0)
    case = resume_case.draw(SEED, resume_case.TASKS.index(task)) | {
        "number": f"{ranks}-ranks-{task}", "ranks": ranks, "workers": workers[0], "accumulate": 1, "limit": None,
        "end": ("max_epochs", 2), "early": False, "swa": False, "extras": [], "min_epochs": None,
        "checkpoints": ["steps"], "every": 1, "moment": "on_train_batch_start",
        "at": at, "kind": "SIGKILL", "victim": 1, "validate": 1.0, "recompute": ranks == 1 and task != "temporal_links",
    }  # fmt: skip
    (folder / case["number"]).mkdir()
    assert train(case, folder, "whole") == [0] * ranks, said(folder, case, "whole")
    assert any(train(case, folder, "stopped"))
    case["workers"] = workers[1]
    assert resume_newest(folder, case) == f"step={at - 1}.ckpt"
    whole, resumed = (len(result(folder, case, name, 0)["addresses"]) for name in ("whole", "resumed"))
    assert resumed == whole - at + 1
    assert (at - 1) % (whole // 2), "two epochs"
    assert not compare(folder, case)


def test_every_task_is_killed():
    """A rank is killed for every task except node tasks with other samplers, ``sign``, ``images`` and ``graphs``; those are drawn at random."""
    assert KILLED_AT.keys() == {*resume_case.TASKS} - resume_case.SAMPLERS.keys() - {"sign", "images", "graphs"}
