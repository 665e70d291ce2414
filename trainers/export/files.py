"""Programs as files: .pt2 of torch.export, .onnx. Each is made in memory and read back before anything is written."""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.export import ExportedProgram, default_decompositions
from torch.utils._pytree import tree_leaves

from hoptrain.engine import InputError
from hoptrain.trainers.export.exported import Inputs

FACTS = "hoptrain.json"
"""The extra file of a .pt2, and the property of an .onnx, that tells what the program is to be fed with."""
Made: TypeAlias = tuple[bytes, Callable[[Inputs], Tensor]]
"""What is to be written, and what a reader of it computes."""


def as_pt2(exported: ExportedProgram, facts: dict[str, Any]) -> Made:
    """By ``torch.export.save``."""
    file = io.BytesIO()
    with _quiet():
        torch.export.save(exported, file, extra_files={FACTS: json.dumps(facts)})
        file.seek(0)
        read = torch.export.load(file).module()
    return file.getvalue(), lambda inputs: read(*inputs)


def as_onnx(exported: ExportedProgram, facts: dict[str, Any]) -> Made:
    """By ``torch.onnx``; it is read by ONNX Runtime.

    Raises:
        InputError: a package is missing; or ONNX has no word for what a layer does.
    """
    for package in ("onnxscript", "onnxruntime"):
        if find_spec(package) is None:
            raise InputError(f"--out of .onnx needs {package}: pip install onnx onnxscript onnxruntime; or give --out a name in .pt2")
    import onnxruntime

    words = default_decompositions()
    words[torch.ops.aten.repeat_interleave.Tensor] = _owners
    try:
        with _quiet():
            made: Any = torch.onnx.export(exported.run_decompositions(words), verbose=False)
            made.model.metadata_props[FACTS] = json.dumps(facts)
            content: bytes = made.model_proto.SerializeToString()
            session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise InputError(
            "this model cannot be written as .onnx: ONNX has no word for what a layer does; give --out a name in .pt2"
        ) from error
    names = [each.name for each in session.get_inputs()]

    def serve(inputs: Inputs) -> Tensor:
        arrays = [array.numpy() for array in tree_leaves(inputs)]
        return torch.from_numpy(session.run(None, dict(zip(names, arrays, strict=True)))[0])

    return content, serve


FORMATS: dict[str, Callable[[ExportedProgram, dict[str, Any]], Made]] = {".pt2": as_pt2, ".onnx": as_onnx}


def _owners(repeats: Tensor, output_size: int | None = None) -> Tensor:
    """``repeat_interleave`` of 0, 1, and so on, in words that ONNX has."""
    ends = repeats.long().cumsum(0)
    marks = ends.new_zeros(int(ends[-1]) + 1 if output_size is None else output_size + 1)
    return marks.index_add(0, ends[:-1], torch.ones_like(ends[:-1])).cumsum(0)[:-1]


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what torch and onnxscript say of themselves."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnx_ir", "onnxscript")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
