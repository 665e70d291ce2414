"""``lightning`` and ``pytorch_lightning`` are one package in a process, whichever is imported first. The distribution ``lightning`` is not needed."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

STAND_IN = {
    "__init__.py": "from {pytorch} import Trainer\n",
    "pytorch/__init__.py": "from {pytorch}.trainer import Trainer\n",
    "pytorch/trainer.py": "class Trainer:\n    pass\n",
    "fabric/__init__.py": "",
}
IN_COMMON = "from lightning.pytorch.trainer import Trainer\nimport lightning, pytorch_lightning.trainer\n"


def python(code, folder, *arguments):
    """Run a program that finds the packages in ``folder`` first; return the process."""
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, cwd=folder
    )


@pytest.fixture
def stand_ins(tmp_path):
    """Write small packages with the module names of both distributions, and return their folder."""
    for file, text in STAND_IN.items():
        for path, package in ((f"lightning/{file}", "lightning.pytorch"), (own_path(file), "pytorch_lightning")):
            if path:
                (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / path).write_text(text.format(pytorch=package))
    return tmp_path


def own_path(file):
    folder, _, name = file.rpartition("/")
    return f"{ {'pytorch': 'pytorch_lightning', 'fabric': 'lightning_fabric'}[folder] }/{name}" if folder else ""


@pytest.mark.parametrize(
    ("imports", "package"),
    [
        ("hoptrain.trainers, lightning", "pytorch_lightning"),
        ("hoptrain.trainers, pytorch_lightning, lightning", "pytorch_lightning"),
        ("pytorch_lightning, hoptrain.trainers", "pytorch_lightning"),
        ("lightning, hoptrain.trainers, pytorch_lightning", "lightning.pytorch"),
        ("lightning.pytorch.trainer, hoptrain.trainers", "lightning.pytorch"),
    ],
)
def test_both_names_are_the_package_that_was_imported_first(stand_ins, imports, package):
    facts = "pytorch_lightning.Trainer is lightning.Trainer is Trainer, pytorch_lightning.trainer.__spec__.name"
    done = python(f"import {imports}\n{IN_COMMON}print({facts})", stand_ins)
    assert done.stdout.split() == ["True", f"{package}.trainer"], done.stderr


def test_two_packages_that_are_imported_already_are_refused(stand_ins):
    done = python("import lightning, pytorch_lightning\nimport hoptrain.trainers", stand_ins)
    last = done.stderr.splitlines()[-1]
    assert "InputError: pytorch_lightning and lightning.pytorch are both imported: " in last
    assert "import only one of them, or import hoptrain.trainers before both" in last


def test_a_module_that_the_package_lacks_is_not_found(stand_ins):
    done = python("import hoptrain.trainers, lightning.pytorch.nowhere", stand_ins)
    assert "No module named 'lightning.pytorch.nowhere'" in done.stderr.splitlines()[-1]


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    """Return a folder with the distribution ``lightning``, made from the installed packages by renaming, as its publisher makes it."""
    folder = tmp_path_factory.mktemp("distribution")
    for package, copy in (("pytorch_lightning", "lightning/pytorch"), ("lightning_fabric", "lightning/fabric")):
        source = Path(find_spec(package).origin).parent
        for file in source.rglob("*"):
            if file.is_file() and file.suffix != ".pyc":
                target = folder / copy / file.relative_to(source)
                target.parent.mkdir(parents=True, exist_ok=True)
                content = file.read_bytes()
                target.write_bytes(
                    content.replace(b"pytorch_lightning", b"lightning.pytorch").replace(b"lightning_fabric", b"lightning.fabric")
                )
    lines = ("from lightning.fabric import Fabric", "from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer")
    (folder / "lightning" / "__init__.py").write_text("\n".join(lines))
    return folder


TRAINS = """
import sys
{first}
from hoptrain.trainers.cli import main
main(sys.argv[1:])
from hoptrain import NeighborSampler, NodeClassifier, NodeDataModule, ThroughputMonitor
import lightning as L, {other} as pl
for package in (L, pl):
    data = NodeDataModule("digits-knn", NeighborSampler([5, 5]), num_workers=0, seed=1)
    task = NodeClassifier(data.num_features, data.num_classes, data.num_hops)
    class Mine(package.Callback):
        def on_train_end(self, trainer, module):
            print("trained", isinstance(module, package.LightningModule), package.__name__)
    options = dict(fast_dev_run=2, callbacks=[ThroughputMonitor(), Mine()], accelerator="cpu", enable_model_summary=False)
    package.Trainer(**options).fit(task, data)
"""


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("first", "other", "name"),
    [("import lightning", "pytorch_lightning", "lightning.pytorch"), ("", "lightning.pytorch", "pytorch_lightning")],
    ids=["lightning first", "hoptrain first"],
)
def test_the_command_and_a_trainer_of_either_package_train(copied, first, other, name):
    """The command takes class paths of either package, and a trainer of either package trains, whichever was imported first."""
    callbacks = [
        f"--trainer.callbacks+={package}.callbacks.EarlyStopping --trainer.callbacks.monitor={monitor}"
        for package, monitor in (("lightning.pytorch", "val_loss"), ("pytorch_lightning", "train_loss"))
    ]
    options = f"fit --config quickstart --data.num_workers=0 --trainer.accelerator=cpu --trainer.max_epochs=1 {' '.join(callbacks)}"
    done = python(TRAINS.format(first=first, other=other), copied, *options.split())
    assert "test accuracy" in done.stdout, done.stderr
    for package in ("lightning", name):
        assert f"trained True {package}\n" in done.stdout, done.stderr
