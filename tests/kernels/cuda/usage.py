"""Resources used by a kernel, read from the compiler's reports, and their limits."""

import re

ARCHITECTURES = {"sm_80", "sm_90a", "sm_100a"}
LIMITS = {
    "stack": 0,  # bytes
    "spills": 0,  # bytes
    "float64": 0,  # mentions in the PTX
    "registers": 64,  # per thread: an SM has 65536, enough for 1024 threads, half of its maximum
    "shared": 24 * 1024,  # static bytes: half of a launch's maximum, since the other half is for dynamic shared memory
}


def excesses(record, limits=LIMITS):
    """Return the resources of a record that exceed their limits."""
    return {name: record[name] for name, limit in limits.items() if record[name] > limit}


def read_report(report, entry):
    """Return a kernel's number of registers, and its bytes of stack (local arrays), spills and fixed shared memory.

    A function that was not inlined has a stack and spills of its own; they are added up.
    """
    entries = re.findall(r"Compiling entry function '(\S+)'", report)
    stacks = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", report)
    used = re.findall(r"Used (\d+) registers(?:, used \d+ barriers)?(?:, (\d+) bytes smem)?", report)
    if entries != [entry] or not stacks or len(used) != 1:
        raise ValueError(f"the compiler's report on {entry} cannot be read: {report!r}")
    registers, shared = used[0]
    stack, stores, loads = (sum(map(int, column)) for column in zip(*stacks, strict=True))
    return {"registers": int(registers), "stack": stack, "spills": stores + loads, "shared": int(shared or 0)}


def count_float64(ptx, entry):
    """Count the double-precision operations in a kernel's PTX."""
    if f".entry {entry}(" not in ptx:
        raise ValueError(f"the PTX of {entry} cannot be read: {ptx[:1000]!r}")
    return len(re.findall(r"\.f64\b", ptx))
