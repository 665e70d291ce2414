"""Imported by the process that tests fork others from: does the slow imports, and loads machine code once."""

import contextlib
import gc
import logging
import os
import tempfile
import warnings
from unittest import mock

import pytest  # noqa: F401 - a forked process imports the main module of its parent
import resume_case  # noqa: F401 - imports the tasks
import torch

from hoptrain.trainers.cli import main

torch.set_num_threads(1)
QUIET = "--trainer.logger=false --trainer.enable_progress_bar=false --trainer.enable_model_summary=false --trainer.accelerator=cpu"
FIT = f"fit --config=quickstart --data.num_workers=0 --trainer.max_epochs=1 --trainer.limit_train_batches=1 {QUIET}"
with contextlib.ExitStack() as stack:
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    for scope in (contextlib.chdir(folder), contextlib.redirect_stdout(None), warnings.catch_warnings(), mock.patch.dict(os.environ)):
        stack.enter_context(scope)
    warnings.simplefilter("ignore")
    assert main(FIT.split()) == 0
logging.getLogger("hoptrain").handlers.clear()  # each command adds its own
gc.freeze()
