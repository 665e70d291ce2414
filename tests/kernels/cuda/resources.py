"""Resources used by compiled CUDA kernels, found without a device.

Run as a script, without the simulator: ``python resources.py MODULE...`` imports the modules (packages with all their modules) and prints a
JSON object. It has for each module ``records``, one for each kernel in its ``KERNELS``, signature and architecture, and ``unlisted``, the
names of kernels missing from ``KERNELS``. An unreadable compiler report is an error.
"""

import functools
import importlib
import itertools
import json
import multiprocessing
import pkgutil
import sys
from types import SimpleNamespace
from unittest import mock

import hoptrain.kernels.numba_cuda  # noqa: F401 - before numba.cuda

# isort: split
from numba.cuda.core import sigutils
from numba.cuda.cudadrv import devices, driver
from numba.cuda.dispatcher import CUDADispatcher, _Kernel
from usage import count_float64, read_report

CAPABILITIES = ((8, 0), (9, 0), (10, 0))
"""Compute capabilities of Ampere, Hopper and Blackwell GPUs for data centres."""


def device(*capability):
    """Replace the current device by a stub with a compute capability, the only property that compiling needs."""
    context = SimpleNamespace(device=SimpleNamespace(compute_capability=capability))
    return mock.patch.object(devices._runtime, "get_or_create_context", return_value=context)


def verbose_linker():
    """Make the linker, which also assembles, report resources. The compiled code is the same."""
    return mock.patch.object(driver, "LinkerOptions", functools.partial(driver.LinkerOptions, ptxas_options=["-v"]))


def signatures_of(module, name):
    """Return the signatures of a kernel in ``KERNELS``: texts or tuples of types."""
    _, signatures = module.KERNELS[name]
    return [signatures] if isinstance(signatures, str) else signatures


def kernel_records(module, name, number):
    """Compile a kernel for one of its signatures as a launch would, for each architecture, and return its records."""
    module = importlib.import_module(module)
    dispatcher, records, signature = module.KERNELS[name][0], [], signatures_of(module, name)[number]
    arguments, _ = sigutils.normalize_signature(signature)
    with device(*CAPABILITIES[0]):
        kernel = _Kernel(dispatcher.py_func, arguments, **dispatcher.targetoptions)
    for capability in CAPABILITIES:
        with device(*capability), verbose_linker():
            arch = kernel.library._ensure_cc(None)
            kernel.library.get_cubin(arch)
            usage = read_report(kernel.library.get_linkerinfo(arch), kernel.entry_name)
            float64 = count_float64(kernel.library.get_lto_ptx(arch), kernel.entry_name)
        records.append({"kernel": name, "signature": str(signature), "arch": "sm_{}{}{}".format(*arch), **usage, "float64": float64})
    return records


def report(module):
    """Return the records of a module's kernels, and the names of kernels that it does not list."""
    modules = [module]
    if hasattr(module, "__path__"):
        modules += [importlib.import_module(found.name) for found in pkgutil.walk_packages(module.__path__, f"{module.__name__}.")]
    values = {id(value): value for each in modules for value in vars(each).values() if isinstance(value, CUDADispatcher)}
    kernels = {key: value for key, value in values.items() if not value.targetoptions["device"]}
    listed = {id(dispatcher) for dispatcher, _ in module.KERNELS.values()}
    work = [(module.__name__, name, number) for name in module.KERNELS for number in range(len(signatures_of(module, name)))]
    with multiprocessing.get_context("fork").Pool() as processes:  # compiling takes seconds per kernel, on one core
        records = processes.starmap(kernel_records, work, chunksize=1)
    return {
        "records": list(itertools.chain(*records)),
        "unlisted": [kernel.py_func.__name__ for key, kernel in kernels.items() if key not in listed],
    }


if __name__ == "__main__":
    json.dump({name: report(importlib.import_module(name)) for name in sys.argv[1:]}, sys.stdout)
