"""A newcomer's first hour, from the page alone: hoptrain from its wheel, the page's files, its lines in their order."""

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch
from wheel_case import build_wheel, new_environment

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
PAGE = (Path(__file__).parents[2] / "docs" / "first_hour.md").read_text()
LINES = [line for block in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]


def files_of_the_page(folder):
    folder.mkdir()
    for name, text in re.findall(r'```python title="(.*?)"\n(.*?)```', PAGE, re.DOTALL):
        (folder / name).write_text(text)


def weights(folder):
    checkpoint = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)
    return checkpoint["epoch"], checkpoint["state_dict"]


def test_from_tables_to_a_resumed_run(tmp_path):
    _, environment = new_environment(build_wheel(tmp_path), tmp_path)
    here, whole = tmp_path / "here", tmp_path / "whole"
    files_of_the_page(here)

    def run(line, folder):
        done = subprocess.run(line, shell=True, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        return done.stdout

    *before, first, again = LINES
    assert (first, again) == ("python train.py", "python train.py")
    told = [run(line, here) for line in before]
    assert float(re.search(r"test accuracy ([\d.]+)", told[-1])[1]) > 0.5

    training = subprocess.Popen(first, shell=True, cwd=here, env=environment, start_new_session=True, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while not (here / "checkpoints" / "last.ckpt").exists():
        assert training.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(training.pid, signal.SIGINT)
    training.wait(60)
    stopped_after = weights(here)[0]
    told = run(again, here)
    assert stopped_after < 29
    assert float(re.search(r"test_acc\W+([\d.]+)", told)[1]) > 0.7

    files_of_the_page(whole)
    (whole / "people").symlink_to(here / "people")
    run(first, whole)
    (epoch, resumed), (end, uninterrupted) = weights(here), weights(whole)
    assert epoch == end == 29
    assert all(torch.equal(resumed[name], uninterrupted[name]) for name in uninterrupted)
    events = json.loads((here / "timeline.json").read_text())["traceEvents"]
    rows = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
    assert len([row for row in rows if row.startswith("sampler")]) == 2
