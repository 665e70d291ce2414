"""Conversions between float32 and the bits of bfloat16, which NumPy does not have."""

import numpy as np


def narrowed(values):
    """Round float32 to the bits of bfloat16, to nearest with ties to even; NaN stays NaN."""
    bits = values.astype(np.float32).view(np.uint32)
    return np.where(np.isnan(values), 0x7FC0, (bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def widened(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)
