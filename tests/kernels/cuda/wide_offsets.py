"""The package's kernels with the types of a graph with more than 2**31 edges and fewer nodes: 64-bit offsets and 32-bit ids."""

import inspect
import re

from hoptrain.kernels.cuda import KERNELS as OF_PACKAGE

_WIDE = ("indptr", "out_edges", "by_time")  # arrays of offsets and edge numbers


def _wide_offsets():
    for name, (kernel, signatures) in OF_PACKAGE.items():
        names = list(inspect.signature(kernel.py_func).parameters)
        if "indptr" not in names:
            continue
        kinds = dict(zip(names, re.findall(r"\w+(?:\[[^\]]*\])?", signatures[0].removeprefix("void")), strict=True))
        if kinds["indptr"] == "int32[::1]":
            wide = [kind.replace("int32", "int64") if each in _WIDE else kind for each, kind in kinds.items()]
            yield name, kernel, f"void({', '.join(wide)})"


KERNELS = {name: (kernel, signature) for name, kernel, signature in _wide_offsets()}
