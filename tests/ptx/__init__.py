"""An interpreter of the PTX that numba-cuda makes of the CUDA kernels, with a detector of races and of accesses out of bounds.

A plugin of pytest puts it in the driver's place. From the bottom up: ``ops`` names instructions, ``decode`` reads PTX, ``arithmetic`` and
``watch`` compute and access memory, ``machine`` lets threads take turns; ``memory`` is the device's memory and its stream, ``launch`` runs
kernels on it, ``plugin`` installs it, and ``allowed`` lists the races that are meant.
"""
