"""Elements for tests of dropout's kernels, and the expected results, by the kernels of the CPU."""

import numpy as np

from hoptrain.kernels.cpu.training import dropout as kernels
from hoptrain.kernels.shared.dropout import BLOCK

SIZES = [1, BLOCK - 1, BLOCK, 2 * BLOCK + 65]
SEED, DROPPED = -0x1234_5678_9ABC_DEF0, 20_000


def elements(size, dtype, seed=0):
    """Return random numbers of both signs, after zeros, infinities, NaN and the smallest numbers."""
    smallest = np.finfo(dtype).smallest_subnormal
    special = [0.0, -0.0, np.nan, np.inf, -np.inf, smallest, -smallest]
    return np.concatenate([special, np.random.default_rng(seed).standard_normal(size)])[:size].astype(dtype)


def expected_drop(x, *, clip):
    out, blocks = np.empty_like(x), -(-len(x) // BLOCK)
    kernels.drop(x, out, np.uint64(SEED % 2**64), np.uint32(DROPPED), _scale(x), clip, 0, blocks)
    return out


def expected_gradient(gradient, out):
    by_x, blocks = np.empty_like(gradient), -(-len(out) // BLOCK)
    kernels.pass_gradient(gradient, out, _scale(out), by_x, 0, blocks)
    return by_x


def _scale(x):
    return x.dtype.type(2**16 / (2**16 - DROPPED))
