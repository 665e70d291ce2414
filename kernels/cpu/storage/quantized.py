"""Quantisation of feature columns to codes of 8 or 4 bits, and back: a number is ``zero + scale * code``.

A scale has 16 significant bits, so ``scale * code`` is exact in float32. The sum is then rounded once, whether or not the machine fuses multiplication
and addition, so results are bit-identical everywhere. Two codes of 4 bits share a byte, the even column in the low half.
"""

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel

MOST = 2.0**126
"""Maximum magnitude of a number that can be quantised, so that no product overflows in float32."""


@cpu_kernel
def column_ranges(x, low, high, is_whole):
    """Extend the ranges ``low`` and ``high`` (F,) float32 to the columns of x (N, F) float32. Clear ``is_whole`` (F,) if a number is not an integer.

    Returns:
        Whether all numbers are finite and within ``MOST``. If not, ``low`` and ``high`` are not valid.
    """
    is_within = True
    for i in range(x.shape[0]):
        row = x[i]
        for k in range(len(row)):
            value = row[k]
            low[k] = min(low[k], value)
            high[k] = max(high[k], value)
            is_whole[k] &= value == np.rint(value)
            is_within &= abs(value) <= MOST
    return is_within


@cpu_kernel
def encode(x, scale, zero, top, codes):
    """Fill ``codes`` (N, F) uint8 with the nearest codes in [0, top] of x (N, F) float32, ties to even. A column of scale 0 gets code 0."""
    for i in range(x.shape[0]):
        row, out = x[i], codes[i]
        for k in range(len(row)):
            steps = (np.float64(row[k]) - np.float64(zero[k])) / np.float64(scale[k]) if scale[k] > 0 else 0.0
            out[k] = np.uint8(min(max(np.rint(steps), 0.0), np.float64(top)))


@cpu_kernel
def pack(codes, out):
    """Pack codes (N, F) of 4 bits, two in a byte, into ``out`` (N, (F + 1) // 2)."""
    num_columns = codes.shape[1]
    for i in range(codes.shape[0]):
        row, packed = codes[i], out[i]
        for k in range(num_columns // 2):
            packed[k] = row[2 * k] | (row[2 * k + 1] << np.uint8(4))
        if num_columns % 2:
            packed[num_columns // 2] = row[num_columns - 1]


@cpu_kernel
def expand(codes, scale, zero, out):
    """Fill ``out`` (N, F) float32 with the numbers that codes (N, F) uint8 represent."""
    for i in range(codes.shape[0]):
        row, numbers = codes[i], out[i]
        for k in range(len(row)):
            numbers[k] = zero[k] + scale[k] * np.float32(row[k])


@cpu_kernel
def expand_packed(codes, scale, zero, out):
    """Fill ``out`` (N, F) float32 with the numbers that packed codes (N, (F + 1) // 2) uint8 represent."""
    num_columns = out.shape[1]
    for i in range(codes.shape[0]):
        row, numbers = codes[i], out[i]
        for j in range(num_columns // 2):
            byte, k = row[j], 2 * j
            numbers[k] = zero[k] + scale[k] * np.float32(byte & 15)
            numbers[k + 1] = zero[k + 1] + scale[k + 1] * np.float32(byte >> 4)
        if num_columns % 2:
            k = num_columns - 1
            numbers[k] = zero[k] + scale[k] * np.float32(row[num_columns // 2] & 15)
