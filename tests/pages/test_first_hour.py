"""A newcomer's first hour without the checkout: install the wheel, run the quickstart, then each command of the page."""

import json
import os
import re
import signal
import subprocess
import time

import pytest
import torch
import yaml
from wheel_case import ROOT, build_wheel, new_environment

pytestmark = pytest.mark.timeout(900)
PAGE = (ROOT / "docs" / "first_hour.md").read_text()
EPOCHS = 10
LINES = [line for block in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL) for line in block.replace("\\\n", " ").splitlines()]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Install the wheel, and return its folder and the environment variables. All tests share one machine code cache."""
    folder = tmp_path_factory.mktemp("installed")
    return new_environment(build_wheel(folder), folder)


def run(line, folder, environment):
    """Run a command that must succeed, and return its output."""
    done = subprocess.run(line, shell=True, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


def test_a_user_without_the_checkout_trains_the_quickstart(installed, tmp_path):
    site, environment = installed
    assert run("python -c 'import hoptrain; print(hoptrain.__file__)'", tmp_path, environment) == f"{site}/hoptrain/__init__.py\n"
    listed = run("hoptrain configs", tmp_path, environment)
    runs = {path.stem for path in (ROOT / "configs").glob("*.yaml") if "data" in yaml.safe_load(path.read_text())}
    assert runs <= {line.split()[0] for line in listed.splitlines() if line}
    trained = run("hoptrain fit --config quickstart --trainer.max_steps 5 --trainer.enable_progress_bar false", tmp_path, environment)
    *_, score, written = trained.splitlines()
    assert score.startswith("test accuracy ")
    assert written.startswith("written to runs/version_0: ")


def files_of_the_page(folder):
    """Write the page's programs; the training has ``EPOCHS`` epochs, of the 30 that leave a reader the time to stop it."""
    folder.mkdir()
    for name, text in re.findall(r'```python title="(.*?)"\n(.*?)```', PAGE, re.DOTALL):
        assert ("max_epochs=30," in text) == (name == "train.py")
        (folder / name).write_text(text.replace("max_epochs=30,", f"max_epochs={EPOCHS},"))


def weights(folder):
    checkpoint = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)
    return checkpoint["epoch"], checkpoint["state_dict"]


def test_from_tables_to_a_resumed_run(installed, tmp_path):
    _, environment = installed
    here, whole = tmp_path / "here", tmp_path / "whole"
    files_of_the_page(here)

    *before, first, again = LINES
    assert (first, again) == ("python train.py", "python train.py")
    outputs = [run(line, here, environment) for line in before]
    assert float(re.search(r"test accuracy ([\d.]+)", outputs[-1])[1]) > 0.5

    training = subprocess.Popen(first, shell=True, cwd=here, env=environment, start_new_session=True, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while not (here / "checkpoints" / "last.ckpt").exists():
        assert training.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(training.pid, signal.SIGINT)
    training.wait(200)
    stopped_after = weights(here)[0]
    output = run(again, here, environment)
    assert stopped_after < EPOCHS - 1
    assert float(re.search(r"test_acc\W+([\d.]+)", output)[1]) > 0.7

    files_of_the_page(whole)
    (whole / "people").symlink_to(here / "people")
    run(first, whole, environment)
    (epoch, resumed), (end, uninterrupted) = weights(here), weights(whole)
    assert epoch == end == EPOCHS - 1
    assert all(torch.equal(resumed[name], uninterrupted[name]) for name in uninterrupted)
    events = json.loads((here / "timeline.json").read_text())["traceEvents"]
    rows = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
    assert len([row for row in rows if row.startswith("sampler")]) == 2
