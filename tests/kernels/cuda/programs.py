"""Kernels compiled for some sampling programs, with the types of a graph with 64-bit offsets and 32-bit ids."""

import numpy as np
from numba import typeof
from numba.cuda.core import sigutils

from hoptrain.kernels.cuda.programs.program import block_kernels, collective_kernel, walk_kernel
from hoptrain.samplers import MetapathWalk, Node2Vec, RandomWalk, SamplingProgram, randint


class Sage(SamplingProgram):
    steps = 1

    def sample_size(self, step):
        return 5

    def next(self, transit, step, rng):
        return randint(rng, len(transit.neighbors))


_GRAPH = "int64[::1], int32[::1], float32[::1], int32[:, ::1]"
_WALKS = f"{_GRAPH}, int64[::1], int64, uint64[::1], int64, int32[:, ::1], int64[:, ::1], int64[::1]"
_DRAWS = "int64, boolean, int64, uint64[::1], int64[:, ::1], int32[:, ::1], int64[::1]"
_BLOCKS = f"{_GRAPH}, int64[::1], int64[::1], {_DRAWS}"
_LAYER = "int32[:, ::1], float32[:, ::1], int64[::1], int32[:, ::1], int64[::1]"
_COLLECTIVE = f"int64[::1], int32[::1], {_LAYER}, int64, int64, uint64[::1], int32[:, ::1], int64[::1]"


def _types(program, rest):
    """Return the signature of a program's kernel."""
    return (typeof(program.parameters()), *sigutils.normalize_signature(f"void({rest})")[0])


def of_walks(program):
    """Return the kernel of a program's walks, and its types."""
    kind = type(program)
    return walk_kernel(kind.next, kind.transit_of), _types(program, _WALKS)


def _of_programs():
    programs = {
        "walk": RandomWalk(4, restart=0.3), "node2vec": Node2Vec(4, p=0.5, q=2.0), "metapath": MetapathWalk(np.arange(9), [0, 1]),
    }  # fmt: skip
    for name, program in programs.items():
        yield name, *of_walks(program)
    by_sample, by_transit = block_kernels(Sage.next)
    yield "program by sample", by_sample, _types(Sage(), _BLOCKS)
    yield "program by transit", by_transit, _types(Sage(), _BLOCKS)
    yield "collective program", collective_kernel(Sage.next), _types(Sage(), _COLLECTIVE)


KERNELS = {name: (kernel, [signature]) for name, kernel, signature in _of_programs()}
