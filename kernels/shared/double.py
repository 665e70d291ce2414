"""Double-precision arithmetic on integers, for devices without fast float64. Results are bit-identical to float64 on the CPU.

A number is a pair: a mantissa of exactly 53 bits (``uint64``) and an exponent; its value is mantissa * 2**exponent. Every function rounds as
IEEE 754 does, to nearest, ties to even. Numbers are positive, and far from the limits of float32 and float64.
"""

import numpy as np

from hoptrain.kernels.shared import shared

_DOUBLE, _SINGLE = 53, 24
_QUOTIENT = 55
"""Number of fractional bits of a quotient. It has two more than the result keeps, so that the dropped remainder cannot create a tie."""
_GUARD = 10
"""Number of guard bits below the mantissa of a summand."""
_U0, _U1 = np.uint64(0), np.uint64(1)
_B10, _B11, _B32 = np.uint64(10), np.uint64(11), np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_FRACTION = np.uint64((1 << 23) - 1)
_HIDDEN = np.uint64(1 << 23)
_B23, _B29 = np.uint64(23), np.uint64(29)


@shared
def bit_length(n):
    """Return the number of bits of ``n`` (``uint64``) up to the highest bit that is set."""
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
    """Round ``mantissa * 2**exponent`` to ``keep`` bits.

    With ``is_more`` the exact value is larger by less than one unit of the mantissa; the mantissa then has at least two bits more than ``keep``.
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
    """Return ``float64(n)`` as a pair, for an integer ``n`` > 0 (``uint64``)."""
    return rounded(n, 0, False, _DOUBLE)


@shared
def double_of_single(bits):
    """Return ``float64(x)`` as a pair, for the float32 x with these bits."""
    bits = np.uint64(bits)
    return ((bits & _FRACTION) | _HIDDEN) << _B29, np.int64(bits >> _B23) - 150 - 29


@shared
def single_of(mantissa, exponent):
    """Return the bits of ``float32(x)`` as ``int64``, for the number x of a pair."""
    mantissa, exponent = rounded(mantissa, exponent, False, _SINGLE)
    return np.int64((np.uint64(exponent + 150) << _B23) | (mantissa & _FRACTION))


@shared
def times(mantissa_a, exponent_a, mantissa_b, exponent_b):
    """Return the product of two numbers, each a pair (mantissa, exponent)."""
    a, b = np.uint64(mantissa_a) << _B11, np.uint64(mantissa_b) << _B11
    low, high = a & _LOW, a >> _B32
    middle = high * (b & _LOW) + ((low * (b & _LOW)) >> _B32)
    other = low * (b >> _B32) + (middle & _LOW)
    upper = high * (b >> _B32) + (middle >> _B32) + (other >> _B32)
    return rounded(upper, exponent_a + exponent_b + 42, a * b != _U0, _DOUBLE)


@shared
def over(mantissa_a, exponent_a, mantissa_b, exponent_b):
    """Return the quotient a / b of two pairs (mantissa, exponent), by long division."""
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
    """Return the sum of two numbers, each a pair (mantissa, exponent)."""
    if exponent_a < exponent_b:
        mantissa_a, mantissa_b = mantissa_b, mantissa_a
        exponent_a, exponent_b = exponent_b, exponent_a
    large, small = np.uint64(mantissa_a) << _B10, np.uint64(mantissa_b) << _B10
    shift = np.uint64(min(exponent_a - exponent_b, 63))
    total = large + (small >> shift)
    return rounded(total, exponent_a - _GUARD, (small >> shift) << shift != small, _DOUBLE)


@shared
def single_quotient(a, b):
    """Return the bits of ``float32(float64(a) / float64(b))`` as ``int64``, for integers in [1, 2**64). Most edge weights are such quotients."""
    mantissa_a, exponent_a = double_of(a)
    mantissa_b, exponent_b = double_of(b)
    mantissa, exponent = over(mantissa_a, exponent_a, mantissa_b, exponent_b)
    return single_of(mantissa, exponent)
