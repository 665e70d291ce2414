"""``hoptrain export``: a trained classifier of nodes as one file, compared with the model before it is written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pytorch_lightning import Trainer
from torch import Tensor

from hoptrain import __version__
from hoptrain.engine import InputError
from hoptrain.engine.errors import check_choice
from hoptrain.samplers import MiniBatch, SampleLoader
from hoptrain.trainers.commands import short_help
from hoptrain.trainers.export.exported import Inputs, Served, inputs_of, traced
from hoptrain.trainers.export.files import FORMATS
from hoptrain.trainers.resume.checkpoints import CheckpointFiles, write_whole
from hoptrain.trainers.tasks import options_of
from hoptrain.trainers.tasks.nodes.task import NodeClassifier
from hoptrain.trainers.tasks.options import check_folder

_BATCHES = 10
_TOLERANCE = 1e-4
"""Of the largest score: sums are float32, and a program adds up in another order than the model."""


class Exporter(Trainer):
    """A trainer that also writes models. ``sampler`` is the training's, as its configuration names it."""

    sampler: dict[str, Any] | None = None

    def export(self, model: Any, datamodule: Any, out: str, ckpt_path: str | None = None, weights_only: bool | None = None) -> None:
        """Write the model of a checkpoint as a program that needs neither Lightning nor the model's code.

        Args:
            model: the task.
            datamodule: its data: what the program is tried on.
            out: the file to write: .pt2 for torch.export, .onnx for ONNX.
            ckpt_path: the checkpoint.
            weights_only: as of ``Trainer.predict``.

        Raises:
            InputError: a task or layer that cannot be exported, another kind of file, or a program that computes something else.
        """
        place = Path(out)
        check_choice("the end of --out", place.suffix, list(FORMATS))
        check_folder("--out", str(place.absolute().parent))
        if not isinstance(model, NodeClassifier):
            raise InputError(
                f"export of {type(model).__name__}: what is exported classifies nodes, task: nodes or whole; train one of these"
            )
        if ckpt_path is not None:
            _load(model, ckpt_path, weights_only)
        served = Served(model.eval())
        program = traced(served, _example(datamodule, 0))
        content, read = FORMATS[place.suffix](program.exported, self._facts(model, datamodule, program.fewest))
        examples = [_example(datamodule, number, program.fewest) for number in range(_BATCHES)]
        with torch.no_grad():
            worst = max(_difference(served(*inputs), read(inputs)) for inputs in examples)
        if not worst <= _TOLERANCE:
            raise InputError(
                f"the exported program's scores differ by {worst:.1g} of the largest, where {_TOLERANCE:g} is rounding: {out} is not written; "
                "take another arch"
            )
        write_whole(place, content, "the exported model", "--out")
        print(
            f"{out}: {len(content) / 1e6:.2f} MB; on {_BATCHES} batches scores differ from the model's by {worst:.1g} of the largest at most"
        )

    def _facts(self, model: NodeClassifier, datamodule: Any, fewest: int) -> dict[str, Any]:
        """What the program is to be fed with, in JSON's types."""
        data = datamodule.data
        return {
            "hoptrain": __version__,
            "dataset": data.name,
            "sampler": self.sampler or repr(datamodule.sampler),
            "hops": datamodule.num_hops,
            "features": data.num_features,
            "feature_dtype": str(data.x.dtype),
            "edge_features": data.num_edge_features,
            "outputs": None if model.labels is None else {"kind": model.labels.kind, "number": model.labels.number},
            "fewest_seeds": fewest,
        }


def with_run_config(arguments: Sequence[str]) -> list[str]:
    """The arguments with the configuration of the run that wrote the checkpoint, where none is named and it lies where a run leaves it.

    Raises:
        InputError: no checkpoint, or no file to write, is named; or no configuration is named or found.
    """
    options = dict(options_of(arguments))
    if "--help" not in arguments and short_help.ALL not in arguments and "-h" not in arguments:
        for name in ("--ckpt_path", "--out"):
            if not options.get(name):
                raise InputError(f"{name} is missing: hoptrain export --ckpt_path runs/version_0/checkpoints/last.ckpt --out model.pt2")
    given = options.get("--ckpt_path", "")
    if given and given not in ("last", "best") and not Path(given).is_file():
        raise InputError(f"--ckpt_path {given} is no file: give the path of a checkpoint that is there")
    found = Path(given).absolute().parents[1:2]
    config = [str(folder / "config.yaml") for folder in found if (folder / "config.yaml").is_file()]
    if "--config" in options or "-c" in options or not given:
        return list(arguments)
    if not config:
        raise InputError(f"no config.yaml lies in the folder above that of {given}, where a run leaves its own: name the run's by --config")
    return [arguments[0], "--config", config[0], *arguments[1:]]


def _load(model: NodeClassifier, path: str, weights_only: bool | None) -> None:
    checkpoint = CheckpointFiles().load_checkpoint(path, "cpu", weights_only)
    model.on_load_checkpoint(checkpoint)
    model.load_state_dict(checkpoint["state_dict"])


def _example(datamodule: Any, number: int, fewest: int = 2) -> Inputs:
    """A batch as it is trained on, the later ones of fewer seeds."""
    data, sampler = datamodule.data, datamodule.sampler
    most = min(datamodule.batch_size, len(data.split("train"))) if sampler.by_seeds else datamodule.batch_size
    size = max(min(fewest, most), most >> number)
    loader = SampleLoader(data, sampler, batch_size=size, num_workers=0, seed=datamodule.seed + number)
    batch: MiniBatch = next(iter(loader))
    return inputs_of(batch.to("cpu"), torch.from_numpy(data.graph.in_degrees(np.float32)))


def _difference(expected: Tensor, found: Tensor) -> float:
    """Of two tensors of scores, as a share of the largest; infinite where they are no numbers."""
    difference = (expected - found).abs().max() / expected.abs().max().clamp(min=1e-12)
    return float(difference.nan_to_num(nan=float("inf")))
