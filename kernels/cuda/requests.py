"""Which request a unit of work belongs to, in both schedules: in their own order, or with those on the same vertex side by side.

By sample a kernel is launched by rows, and a batch's blocks take its requests; by transit it is launched flat, and takes ``members``
(``hoptrain.kernels.cuda.group``), so that neighbouring threads read the same column.
"""

import numpy as np

from hoptrain.kernels.cuda.compile import device_function
from hoptrain.kernels.cuda.group import MEMBERS, unpack_request


@device_function
def num_requests(b, low, high, grouped, counters):
    """How many requests there are: in batch ``b``, or in all where they are grouped."""
    return counters[MEMBERS] if grouped else high[b] - low[b]


@device_function
def request_at(k, b, low, grouped, members):
    """Batch and row of request ``k``."""
    if grouped:
        return unpack_request(members[k])
    return np.int64(b), low[b] + k
