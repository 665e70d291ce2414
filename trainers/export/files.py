"""Serialisation of exported programs as .pt2 (torch.export) or .onnx. A program is serialised in memory and read back before a file is written."""

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
"""Name of the extra file in a .pt2 file, and of the metadata property in an .onnx file, that describes the program's inputs."""
ExportedFile: TypeAlias = tuple[bytes, Callable[[Inputs], Tensor]]
"""Content of an exported file, and a function that runs the program read back from this content."""


def as_pt2(exported: ExportedProgram, facts: dict[str, Any]) -> ExportedFile:
    """Serialise a program with ``torch.export.save``."""
    file = io.BytesIO()
    with _quiet():
        torch.export.save(exported, file, extra_files={FACTS: json.dumps(facts)})
        file.seek(0)
        read = torch.export.load(file).module()
    return file.getvalue(), lambda inputs: read(*inputs)


def as_onnx(exported: ExportedProgram, facts: dict[str, Any]) -> ExportedFile:
    """Serialise a program with ``torch.onnx``, and read it back with ONNX Runtime.

    Raises:
        InputError: a package is missing, or ONNX has no operator for a layer.
    """
    for package in ("onnxscript", "onnxruntime"):
        if find_spec(package) is None:
            raise InputError(
                f"--out with the suffix .onnx needs {package}: pip install onnx onnxscript onnxruntime, or give a file with the suffix .pt2"
            )
    import onnxruntime

    decompositions = default_decompositions()
    decompositions[torch.ops.aten.repeat_interleave.Tensor] = _owners
    try:
        with _quiet():
            onnx_program: Any = torch.onnx.export(exported.run_decompositions(decompositions), verbose=False)
            onnx_program.model.metadata_props[FACTS] = json.dumps(facts)
            content: bytes = onnx_program.model_proto.SerializeToString()
            session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise InputError(
            "this model cannot be written as .onnx: ONNX has no operator for one of its layers; give --out a file with the suffix .pt2"
        ) from error
    names = [each.name for each in session.get_inputs()]

    def serve(inputs: Inputs) -> Tensor:
        arrays = [array.numpy() for array in tree_leaves(inputs)]
        return torch.from_numpy(session.run(None, dict(zip(names, arrays, strict=True)))[0])

    return content, serve


FORMATS: dict[str, Callable[[ExportedProgram, dict[str, Any]], ExportedFile]] = {".pt2": as_pt2, ".onnx": as_onnx}


def _owners(repeats: Tensor, output_size: int | None = None) -> Tensor:
    """Compute ``torch.repeat_interleave(repeats)`` with operators that ONNX has."""
    ends = repeats.long().cumsum(0)
    marks = ends.new_zeros(int(ends[-1]) + 1 if output_size is None else output_size + 1)
    return marks.index_add(0, ends[:-1], torch.ones_like(ends[:-1])).cumsum(0)[:-1]


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress log messages and warnings of torch and onnxscript."""
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
