"""An interpreter of the PTX that numba-cuda compiles from the CUDA kernels; it detects races and accesses out of bounds.

A pytest plugin installs it instead of the driver. From the bottom up: ``ops`` names instructions, ``decode`` reads PTX, ``arithmetic`` and
``watch`` compute and access memory, ``machine`` schedules threads; ``memory`` is the device's memory and its stream, ``launch`` runs
kernels, ``plugin`` installs it, and ``allowed`` lists intended races.
"""
