"""A script for a launcher that runs ``hoptrain`` with a fault in one rank. ``FAULT`` is "rank place action"."""

import ctypes
import os
import signal
import sys
import threading
import time
from pathlib import Path


def act(action):
    Path("fault").touch()
    if action == "raise":
        raise RuntimeError("this rank fails")
    if action == "end":
        raise StopIteration  # Lightning's loops end by StopIteration
    if action == "leave":
        sys.exit(3)
    if action == "exit":
        os._exit(3)
    if action == "sleep":
        time.sleep(600)
    if action == "crash":
        ctypes.string_at(0)
    os.kill(os.getpid(), {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}[action])


def act_early(action):
    """Act one second after the launcher has set MASTER_PORT, while the other ranks start."""
    while "MASTER_PORT" not in os.environ:
        time.sleep(0.01)
    time.sleep(1)
    act(action)


def main():
    rank, place, action = os.environ["FAULT"].split()
    if int(os.environ.get("LOCAL_RANK", "0")) != int(rank):
        place = "nowhere"
    if place == "start":
        act(action)
    if place == "early":
        threading.Thread(target=act_early, args=[action], daemon=True).start()
    if place in ("constructor", "step"):
        from pytorch_lightning import LightningModule

        name = "__init__" if place == "constructor" else "on_train_batch_start"
        undisturbed = getattr(LightningModule, name)

        def disturbed(self, *arguments, **options):
            if place == "constructor" or self.trainer.global_step == 12:
                act(action)
            return undisturbed(self, *arguments, **options)

        setattr(LightningModule, name, disturbed)  # on the base class, since the model's own signature defines its options
    from hoptrain.trainers.cli import main

    sys.exit(main())


if __name__ == "__main__":
    main()
