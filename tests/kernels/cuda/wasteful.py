"""Kernels that each break one limit of ``test_resources.py``, named after the limit, and one unlisted kernel."""

from numba import cuda, int64


@cuda.jit
def keeps_an_array(values, out):
    kept = cuda.local.array(64, int64)
    for i in range(64):
        kept[values[i] & 63] = i
    for i in range(64):
        out[i] = kept[i]


def keeps_many_numbers(values, out):
    at = cuda.threadIdx.x  # values equal in all threads would be in uniform registers of a warp
    a, b, c, d, e, f = values[at], values[at + 1], values[at + 2], values[at + 3], values[at + 4], values[at + 5]
    g, h, i, j, k, m = values[at + 6], values[at + 7], values[at + 8], values[at + 9], values[at + 10], values[at + 11]
    n, p, q, r, s, t = values[at + 12], values[at + 13], values[at + 14], values[at + 15], values[at + 16], values[at + 17]
    u, v, w, x, y, z = values[at + 18], values[at + 19], values[at + 20], values[at + 21], values[at + 22], values[at + 23]
    for _ in range(values[at + 24]):
        a, b, c, d, e, f, g, h, i, j, k, m = b * n, c * p, d * q, e * r, f * s, g * t, h * u, i * v, j * w, k * x, m * y, a * z
        n, p, q, r, s, t, u, v, w, x, y, z = p * a, q * b, r * c, s * d, t * e, u * f, v * g, w * h, x * i, y * j, z * k, n * m
    out[at] = a ^ b ^ c ^ d ^ e ^ f ^ g ^ h ^ i ^ j ^ k ^ m ^ n ^ p ^ q ^ r ^ s ^ t ^ u ^ v ^ w ^ x ^ y ^ z


@cuda.jit
def divides(values, out):
    out[0] = values[0] / values[1]


@cuda.jit
def shares_much(values, out):
    shared = cuda.shared.array(4096, int64)
    shared[cuda.threadIdx.x] = values[cuda.threadIdx.x]
    cuda.syncthreads()
    out[cuda.threadIdx.x] = shared[values[0]]


@cuda.jit
def is_not_listed(values, out):
    out[0] = values[0]


_SIGNATURE = "void(int64[::1], int64[::1])"
KERNELS = {
    "stack": (keeps_an_array, _SIGNATURE),
    "spills": (cuda.jit(max_registers=24)(keeps_many_numbers), _SIGNATURE),
    "registers": (cuda.jit(keeps_many_numbers), _SIGNATURE),
    "float64": (divides, _SIGNATURE),
    "shared": (shares_much, _SIGNATURE),
}
