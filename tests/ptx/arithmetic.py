"""The arithmetic of PTX instructions on 64-bit registers: signed integers, and floating-point numbers as bits."""

import numpy as np

from ptx.compiled import compiled
from ptx.ops import (
    ABS,
    ADD,
    AND,
    BFI,
    CVT,
    CVTA_SHARED,
    DIV,
    F_ABS,
    F_ADD,
    F_CVT,
    F_DIV,
    F_MAX,
    F_MIN,
    F_MUL,
    F_NEG,
    F_SETP_EQ,
    F_SETP_GT,
    F_SETP_LE,
    F_SETP_LT,
    F_SETP_NE,
    F_SUB,
    F_TO_INT,
    MAD,
    MAD_WIDE,
    MAX,
    MIN,
    MOV,
    MUL,
    MUL_HI,
    MUL_WIDE,
    NEG,
    NOT,
    NOT_PRED,
    OR,
    REM,
    SELP,
    SETP_EQ,
    SETP_GT,
    SETP_LE,
    SETP_LT,
    SETP_NE,
    SHARED_WINDOW,
    SHL,
    SHR,
    SUB,
    XOR,
)  # fmt: skip


@compiled
def extended(value, width):
    """Return the signed value of the lowest bits."""
    shift = 64 - width
    return (value << shift) >> shift


@compiled
def narrowed(value, width):
    """Return the lowest bits."""
    return value if width == 64 else value & ((np.int64(1) << width) - 1)


@compiled
def is_less(a, b, signed):
    return a < b if signed else np.uint64(a) < np.uint64(b)


@compiled
def integer(op, a, b, c, d, width, signed):
    """Return the result of an integer instruction; operands are whole registers, and surplus bits are dropped later."""
    amount_b, amount_c, amount_d = np.uint64(b) & np.uint64(0xFFFFFFFF), c & 0xFF, d & 0xFF
    if signed and width < 64:
        a, b = extended(a, width), extended(b, width)
        if op == MAD:
            c = extended(c, width)
    value = a
    if op in (MOV, CVT):
        value = a
    elif op == SELP:
        value = a if c != 0 else b
    elif op == ADD:
        value = a + b
    elif op == SUB:
        value = a - b
    elif op in (MUL, MUL_WIDE):
        value = a * b
    elif op in (MAD, MAD_WIDE):
        value = a * b + c
    elif op == MUL_HI:
        value = high_half(a, b, signed) if width == 64 else (a * b) >> width
    elif op in (DIV, REM):
        value = divided(a, b, op == REM, signed)
    elif op == MIN:
        value = a if is_less(a, b, signed) else b
    elif op == MAX:
        value = b if is_less(a, b, signed) else a
    elif op == AND:
        value = a & b
    elif op == OR:
        value = a | b
    elif op == XOR:
        value = a ^ b
    elif op == NOT:
        value = ~a
    elif op == NOT_PRED:
        value = a ^ 1
    elif op == NEG:
        value = -a
    elif op == ABS:
        value = abs(a)
    elif op in (SHL, SHR):
        value = shifted(op == SHR, a, amount_b, width, signed)
    elif op == BFI:
        value = inserted(a, b, amount_c, amount_d, width)
    elif op == CVTA_SHARED:
        value = a + SHARED_WINDOW
    else:
        value = compared(op, a, b, signed)
    return value


@compiled
def compared(op, a, b, signed):
    less, same = is_less(a, b, signed), a == b
    if op == SETP_EQ:
        found = same
    elif op == SETP_NE:
        found = not same
    elif op == SETP_LT:
        found = less
    elif op == SETP_LE:
        found = less or same
    elif op == SETP_GT:
        found = not (less or same)
    else:
        found = not less
    return np.int64(found)


@compiled
def shifted(right, a, amount, width, signed):
    """Shift a value; the shift may exceed the number of bits."""
    if right and signed:
        return a >> np.int64(min(amount, np.uint64(width - 1)))
    if amount >= np.uint64(width):
        return np.int64(0)
    return np.int64(np.uint64(a) >> amount) if right else a << np.int64(amount)


@compiled
def inserted(a, b, at, length, width):
    """Insert the lowest ``length`` bits of ``a`` into ``b``, at bit ``at``."""
    if at >= width or length == 0:
        return b
    mask = (np.int64(-1) if length >= 64 else (np.int64(1) << length) - 1) << at
    return (b & ~mask) | ((a << at) & mask)


@compiled
def divided(a, b, remainder, signed):
    """Return the quotient rounded towards zero, or the remainder; ``b`` is not 0."""
    if not signed:
        return np.int64(np.uint64(a) % np.uint64(b)) if remainder else np.int64(np.uint64(a) // np.uint64(b))
    if b == -1:
        return np.int64(0) if remainder else -a
    quotient = a // b  # rounded down
    if quotient * b != a and (a < 0) != (b < 0):
        quotient += 1
    return a - quotient * b if remainder else quotient


@compiled
def high_half(a, b, signed):
    """Return the upper half of a 64 by 64 bit product."""
    mask, s = np.uint64(0xFFFFFFFF), np.uint64(32)
    x, y = np.uint64(a), np.uint64(b)
    low = (x & mask) * (y & mask)
    middle = (x >> s) * (y & mask) + (low >> s)
    other = (x & mask) * (y >> s) + (middle & mask)
    high = np.int64((x >> s) * (y >> s) + (middle >> s) + (other >> s))
    if signed:
        high -= (b if a < 0 else 0) + (a if b < 0 else 0)
    return high


@compiled
def number_of(bits, width):
    """Return a floating-point number from its bits. float32 becomes float64: rounding one operation to float32 afterwards is exact."""
    if width == 64:
        word = np.int64(bits)
        return word.view(np.float64)
    half = np.uint32(bits)
    return np.float64(half.view(np.float32))


@compiled
def bits_of(x, width):
    if width == 64:
        whole = np.float64(x)
        return whole.view(np.int64)
    half = np.float32(x)
    return np.int64(half.view(np.uint32))


@compiled
def from_integer(a, width, signed, to):
    """Return the bits of the nearest floating-point number."""
    if signed:
        a = extended(a, width)
        return bits_of(np.float64(a), 64) if to == 64 else bits_of(np.float32(a), 32)
    return bits_of(np.float64(np.uint64(a)), 64) if to == 64 else bits_of(np.float32(np.uint64(a)), 32)


@compiled
def truncated(x, width, signed):
    """Truncate a number to an integer, clamped to the range; NaN gives 0."""
    if x != x:
        return np.int64(0)
    if signed:
        end = 2.0 ** (width - 1)
        if x < -end:
            return np.int64(-1) << (width - 1)
        return np.int64(x) if x < end else ~(np.int64(-1) << (width - 1))
    if x <= 0.0:
        return np.int64(0)
    if x >= 2.0**width:
        return np.int64(-1)
    return np.int64(x) if x < 2.0**63 else np.int64(np.uint64(x))


@compiled
def floating(op, a, b, flag, width, signed, to):
    """Return the result of a floating-point instruction: its bits, or the truth value of a comparison."""
    x, y = number_of(a, width), number_of(b, width)
    if op == F_TO_INT:
        return truncated(x, to, signed)
    if op >= F_SETP_EQ:
        return np.int64(holds(op, x, y) or (flag != 0 and (x != x or y != y)))
    z = x
    if op == F_ADD:
        z = x + y
    elif op == F_SUB:
        z = x - y
    elif op == F_MUL:
        z = x * y
    elif op == F_DIV:
        z = x / y
    elif op == F_MIN:
        z = x if x < y or y != y else y
    elif op == F_MAX:
        z = x if x > y or y != y else y
    elif op == F_NEG:
        z = -x
    elif op == F_ABS:
        z = abs(x)
    elif op == F_CVT and flag != 0:
        z = min(max(x, 0.0), 1.0) if x == x else 0.0
    return bits_of(z, to)


@compiled
def fused(a, b, c, width):
    """Return the bits of a * b + c. float32 is rounded once; float64 is rounded twice, so its last bit may differ from a device's."""
    return bits_of(number_of(a, width) * number_of(b, width) + number_of(c, width), width)


@compiled
def holds(op, x, y):
    """Return the truth value of a comparison; with NaN it is false."""
    if op == F_SETP_EQ:
        found = x == y
    elif op == F_SETP_NE:
        found = x < y or x > y
    elif op == F_SETP_LT:
        found = x < y
    elif op == F_SETP_LE:
        found = x <= y
    elif op == F_SETP_GT:
        found = x > y
    else:
        found = x >= y
    return found
