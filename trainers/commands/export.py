"""``hoptrain export``: exports a trained node classifier to one file, after checking that the exported program computes the model's outputs."""

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
"""Largest allowed difference of logits, relative to the largest logit. An exported program may add float32 numbers in another order."""


class Exporter(Trainer):
    """A trainer that can also export a model.

    Attributes:
        sampler: the sampler of the training, in the form of the configuration.
    """

    sampler: dict[str, Any] | None = None

    def export(self, model: Any, datamodule: Any, out: str, ckpt_path: str | None = None, weights_only: bool | None = None) -> None:
        """Write the model of a checkpoint as a program that needs neither Lightning nor the model's code.

        Args:
            model: the trained task.
            datamodule: data of the task, on which the exported program is compared with the model.
            out: file to write: .pt2 for torch.export, .onnx for ONNX.
            ckpt_path: checkpoint to export.
            weights_only: read only tensors and plain values from the checkpoint, and no pickled code.

        Raises:
            InputError: the task or a layer cannot be exported, ``out`` has another suffix, or the program computes other logits than the model.
        """
        path = Path(out)
        check_choice("the suffix of --out", path.suffix, list(FORMATS))
        check_folder("--out", str(path.absolute().parent))
        if not isinstance(model, NodeClassifier):
            raise InputError(
                f"export of {type(model).__name__}: the model must be a node classifier; give a checkpoint of --task nodes or full_batch"
            )
        if ckpt_path is not None:
            _load(model, ckpt_path, weights_only)
        served = Served(model.eval())
        program = traced(served, _example(datamodule, 0))
        content, read = FORMATS[path.suffix](program.exported, self._facts(model, datamodule, program.fewest))
        examples = [_example(datamodule, number, program.fewest) for number in range(_BATCHES)]
        with torch.no_grad():
            worst = max(_difference(served(*inputs), read(inputs)) for inputs in examples)
        if not worst <= _TOLERANCE:
            raise InputError(
                f"{out} is not written: the logits of the exported program differ from the model's by {worst:.1g} of the largest, more than {_TOLERANCE:g}; "
                "choose another --model.arch"
            )
        write_whole(path, content, "the exported model", "--out")
        print(
            f"{out}: {len(content) / 1e6:.2f} MB; on {_BATCHES} batches its logits differ from the model's by at most {worst:.1g} of the largest logit"
        )

    def _facts(self, model: NodeClassifier, datamodule: Any, fewest: int) -> dict[str, Any]:
        """Return the metadata that a user of the exported program needs, as JSON types."""
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


def check_export(arguments: Sequence[str]) -> None:
    """Raise InputError if arguments of ``export``, with ``--config`` of the run, are incomplete.

    Raises:
        InputError: ``--ckpt_path`` or ``--out`` is missing, the checkpoint does not exist, or no configuration is given or found.
    """
    options = dict(options_of(arguments))
    if {"--help", "-h", short_help.ALL} & {*arguments}:
        return
    for name in ("--ckpt_path", "--out"):
        if not options.get(name):
            raise InputError(f"{name} is missing: give for example --ckpt_path runs/version_0/checkpoints/last.ckpt --out model.pt2")
    given = options["--ckpt_path"]
    if given not in ("last", "best") and not Path(given).is_file():
        raise InputError(f"--ckpt_path is {given}: it must be a file; give the path of an existing checkpoint")
    if "--config" not in options and "-c" not in options:
        raise InputError(
            f"no config.yaml is found one folder above {given}, where a run saves it: give the configuration of the run by --config"
        )


def _load(model: NodeClassifier, path: str, weights_only: bool | None) -> None:
    checkpoint = CheckpointFiles().load_checkpoint(path, "cpu", weights_only)
    model.on_load_checkpoint(checkpoint)
    model.load_state_dict(checkpoint["state_dict"])


def _example(datamodule: Any, number: int, fewest: int = 2) -> Inputs:
    """Return inputs from a training batch; batches with a higher ``number`` have fewer seeds."""
    data, sampler = datamodule.data, datamodule.sampler
    most = min(datamodule.batch_size, len(data.split("train"))) if sampler.by_seeds else datamodule.batch_size
    size = max(min(fewest, most), most >> number)
    loader = SampleLoader(data, sampler, batch_size=size, num_workers=0, seed=datamodule.seed + number)
    batch: MiniBatch = next(iter(loader))
    return inputs_of(batch.to("cpu"), torch.from_numpy(data.graph.in_degrees(np.float32)))


def _difference(expected: Tensor, found: Tensor) -> float:
    """Return the largest difference of two tensors of logits, relative to the largest logit; infinity if a tensor has NaN."""
    difference = (expected - found).abs().max() / expected.abs().max().clamp(min=1e-12)
    return float(difference.nan_to_num(nan=float("inf")))
