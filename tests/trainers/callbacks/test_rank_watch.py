"""Failure detection in a Lightning script of your own starts after the rendezvous of its ranks."""

import os
import signal
import subprocess
import sys

from pytorch_lightning import Trainer

from hoptrain.trainers.callbacks.rank_watch import RankWatch, watch_launch
from hoptrain.trainers.watchdog.rank_agent import current

SCRIPT = """
import os, signal, warnings
warnings.simplefilter("ignore")
from pytorch_lightning import LightningModule, Trainer
from torch import nn, optim, ones
from hoptrain.trainers.callbacks.rank_watch import RankWatch
from hoptrain.trainers.watchdog.rank_agent import current

class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 1)
    def training_step(self, batch, index):
        if self.trainer.max_epochs == 2 and index == 5 and self.global_rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.layer(ones(1, 1)).sum()
    def configure_optimizers(self):
        return optim.SGD(self.parameters(), 0.1)

for epochs in (1, 2):
    options = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer = Trainer(max_epochs=epochs, accelerator="cpu", devices=2, callbacks=[RankWatch()], **options)
    trainer.fit(Model(), [0] * 20)
    assert current() is None
    print("fitted", flush=True)
"""


def test_a_script_of_one_s_own(tmp_path):
    """If rank 0 of a custom script is killed in its second ``fit``, each rank prints one line with the cause."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    run = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=110, cwd=tmp_path, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    assert run.returncode == -signal.SIGKILL
    assert run.stdout.count("fitted") == 2
    cause = "rank 0 was killed by SIGKILL, by hand or because memory ran out (last seen at epoch 0, step "
    lines = [line for line in run.stderr.splitlines() if line.startswith("hoptrain: ")]
    assert sorted(line.partition(cause)[0] for line in lines) == ["hoptrain: ", "hoptrain: rank 1 ends, because "], run.stderr
    assert run.stderr.splitlines()[-1] in lines
    assert "Traceback" not in run.stderr


def test_one_rank_is_not_watched():
    trainer = Trainer(accelerator="cpu", devices=1, logger=False, enable_checkpointing=False, callbacks=[RankWatch()])
    launcher = trainer.strategy.launcher
    watch_launch(trainer)
    assert trainer.strategy.launcher is launcher
    RankWatch().setup(trainer, None, "fit")
    assert current() is None
