"""A slow reference for quantised columns: one number at a time, with exact fractions."""

from fractions import Fraction
from math import frexp

import numpy as np


def columns(x, top):
    """Return (scale, zero) of each column of x (N, F) float32, as ``quantize`` documents: even steps from the least number to the largest."""
    return [column([Fraction(float(value)) for value in x[:, k]], top) for k in range(x.shape[1])]


def column(numbers, top):
    low, high = min(numbers), max(numbers)
    if low == high:
        return Fraction(0), low
    if all(number.denominator == 1 for number in numbers) and high - low <= top and max(abs(low), abs(high)) <= 1 << 24:
        scale = Fraction(1)
    else:
        scale = rounded_up(Fraction(max((float(high) - float(low)) / top, 2.0**-125)))
    if low < 0 <= high:
        return scale, -scale * round(-low / scale)  # Python's round takes halves to even
    return scale, low


def rounded_up(scale, bits=16):
    """Return the smallest number with ``bits`` significant bits that is not below ``scale``."""
    unit = Fraction(2) ** (frexp(scale)[1] - bits)
    return -(-scale // unit) * unit


def codes(x, found, top):
    """Return the nearest codes, with shape (N, F); ties go to even, as in Python's round."""
    rows = [[nearest(float(value), *of, top) for value, of in zip(row, found, strict=True)] for row in x]
    return np.array(rows, np.uint8).reshape(x.shape)


def nearest(value, scale, zero, top):
    return min(max(round((value - float(zero)) / float(scale)), 0), top) if scale else 0


def numbers(coded, found):
    """Return the dequantised float32 values, with shape (N, F), each rounded once."""
    return np.array(
        [[np.float32(rounded(zero + scale * int(c))) for c, (scale, zero) in zip(row, found, strict=True)] for row in coded], np.float32
    ).reshape(coded.shape)


def rounded(number):
    """Round a fraction to the nearest float32, ties to even, without float64 in between."""
    if number == 0:
        return 0.0
    unit = Fraction(2) ** max(frexp(number)[1] - 24, -149)
    return float(round(number / unit) * unit)
