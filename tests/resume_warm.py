"""Imported by the process that drawn trainings are forked from: does the slow imports and loads machine code once."""

import tempfile
import warnings
from pathlib import Path

import resume_case
import torch
from pytorch_lightning import Trainer

from hoptrain.engine import Dataset

torch.set_num_threads(1)
with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
    warnings.simplefilter("ignore")
    folder = Path(name)
    (folder / "data").mkdir()
    resume_case.write_data(folder / "data")
    data = Dataset.open(folder / "data/random")
    for make in resume_case.SAMPLERS.values():
        sampler = make().prepare(data.graph, data.split("train"))
        sampler.sample(data.graph, sampler.items(data.graph, data.split("train"))[:1])
    plain = resume_case.draw(1, 0) | {"ranks": 1, "workers": 0, "precision": "32-true", "scheduler": "plateau by epoch", "norm": "batch"}
    for task in ("neighbor", "links"):
        module, model = resume_case.parts(plain | {"task": task}, folder)
        Trainer(
            accelerator="cpu", max_epochs=1, limit_train_batches=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, use_distributed_sampler=False,
        ).fit(model, module)  # fmt: skip
    del data, module, model
