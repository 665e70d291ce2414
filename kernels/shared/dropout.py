"""The assignment of random bits to elements in dropout, which the kernels of CPUs and GPUs share.

Each call of Philox draws 16 bits for each of eight elements, which are ``CALLS`` elements apart: element ``call // CALLS * BLOCK + call % CALLS +
CALLS * eighth`` has half ``eighth % 2`` of word ``eighth // 2`` of the call. So adjacent calls, which adjacent lanes or threads make, serve adjacent elements.
"""

BLOCK = 1024
"""Number of elements in a block."""
CALLS = BLOCK // 8
"""Number of calls of Philox for a block."""


def num_calls(size):
    """Return the number of calls for ``size`` elements, in whole blocks."""
    return -(-size // BLOCK) * CALLS
