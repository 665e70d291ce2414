"""Double precision in integers: the weights that the CPU computes in float64, bit for bit, where a device has no fast float64.

A number is a pair: a mantissa of exactly 53 bits (``uint64``) and an exponent; its value is mantissa * 2**exponent. Every function rounds as
IEEE 754 does, to the nearest, ties to even. Numbers are positive, and far from the ends of float32's and float64's ranges.
"""

import numpy as np

from hoptrain.kernels.shared import shared

_DOUBLE, _SINGLE = 53, 24
_QUOTIENT = 55
"""Bits of a quotient behind the point: two more than are kept, so that what is below them cannot make a tie."""
_GUARD = 10
"""Bits below the last one of a summand."""
_U0, _U1 = np.uint64(0), np.uint64(1)
_B10, _B11, _B32 = np.uint64(10), np.uint64(11), np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_FRACTION = np.uint64((1 << 23) - 1)
_HIDDEN = np.uint64(1 << 23)
_B23, _B29 = np.uint64(23), np.uint64(29)


@shared
def bit_length(n):
    """Bits of ``n`` (``uint64``) up to its highest one."""
    n = np.uint64(n)
    bits, step = 0, 32
    while step > 0:
        if n >> np.uint64(step) != _U0:
            n >>= np.uint64(step)
            bits += step
        step >>= 1
    return bits + np.int64(n)


@shared
def rounded(mantissa, exponent, is_more, keep):
    """``mantissa * 2**exponent``, and less than one more unit of the mantissa if ``is_more``, with ``keep`` bits.

    With ``is_more`` the mantissa has at least two bits more than are kept.
    """
    mantissa = np.uint64(mantissa)
    excess = bit_length(mantissa) - keep
    if excess <= 0:
        return mantissa << np.uint64(-excess), exponent + excess
    half = _U1 << np.uint64(excess - 1)
    rest = mantissa & ((half << _U1) - _U1)
    mantissa >>= np.uint64(excess)
    if rest > half or (rest == half and (is_more or mantissa & _U1 != _U0)):
        mantissa += _U1
        if mantissa >> np.uint64(keep) != _U0:
            mantissa >>= _U1
            excess += 1
    return mantissa, exponent + excess


@shared
def double_of(n):
    """float64(n) of an integer ``n`` > 0, ``uint64``."""
    return rounded(n, 0, False, _DOUBLE)


@shared
def double_of_single(bits):
    """float64(x) of the float32 with these bits."""
    bits = np.uint64(bits)
    return ((bits & _FRACTION) | _HIDDEN) << _B29, np.int64(bits >> _B23) - 150 - 29


@shared
def single_of(mantissa, exponent):
    """The bits of float32(x), ``int64``."""
    mantissa, exponent = rounded(mantissa, exponent, False, _SINGLE)
    return np.int64((np.uint64(exponent + 150) << _B23) | (mantissa & _FRACTION))


@shared
def times(mantissa_a, exponent_a, mantissa_b, exponent_b):
    """The product."""
    a, b = np.uint64(mantissa_a) << _B11, np.uint64(mantissa_b) << _B11
    low, high = a & _LOW, a >> _B32
    middle = high * (b & _LOW) + ((low * (b & _LOW)) >> _B32)
    other = low * (b >> _B32) + (middle & _LOW)
    upper = high * (b >> _B32) + (middle >> _B32) + (other >> _B32)
    return rounded(upper, exponent_a + exponent_b + 42, a * b != _U0, _DOUBLE)


@shared
def over(mantissa_a, exponent_a, mantissa_b, exponent_b):
    """The quotient a / b, by long division."""
    rest, divisor = np.uint64(mantissa_a), np.uint64(mantissa_b)
    quotient = _U0
    if rest >= divisor:
        quotient = _U1
        rest -= divisor
    for _ in range(_QUOTIENT):
        rest <<= _U1
        quotient <<= _U1
        if rest >= divisor:
            quotient |= _U1
            rest -= divisor
    return rounded(quotient, exponent_a - exponent_b - _QUOTIENT, rest != _U0, _DOUBLE)


@shared
def plus(mantissa_a, exponent_a, mantissa_b, exponent_b):
    """The sum."""
    if exponent_a < exponent_b:
        mantissa_a, mantissa_b = mantissa_b, mantissa_a
        exponent_a, exponent_b = exponent_b, exponent_a
    large, small = np.uint64(mantissa_a) << _B10, np.uint64(mantissa_b) << _B10
    shift = np.uint64(min(exponent_a - exponent_b, 63))
    total = large + (small >> shift)
    return rounded(total, exponent_a - _GUARD, (small >> shift) << shift != small, _DOUBLE)


@shared
def single_quotient(a, b):
    """The bits of ``float32(float64(a) / float64(b))``, ``int64``: what most weights are. ``a`` and ``b`` are integers in [1, 2**64)."""
    mantissa_a, exponent_a = double_of(a)
    mantissa_b, exponent_b = double_of(b)
    mantissa, exponent = over(mantissa_a, exponent_a, mantissa_b, exponent_b)
    return single_of(mantissa, exponent)
