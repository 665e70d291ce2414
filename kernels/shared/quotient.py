"""The quotient of two integers as the CPU's float64 gives it, rounded to float32: what most weights are."""

from hoptrain.kernels.shared import shared
from hoptrain.kernels.shared.double import double_of, over, single_of


@shared
def single_quotient(a, b):
    """The bits of ``float32(float64(a) / float64(b))``, ``int64``; ``a`` and ``b`` are integers in [1, 2**64)."""
    mantissa_a, exponent_a = double_of(a)
    mantissa_b, exponent_b = double_of(b)
    mantissa, exponent = over(mantissa_a, exponent_a, mantissa_b, exponent_b)
    return single_of(mantissa, exponent)
