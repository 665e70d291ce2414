"""VR-GCN and PinSAGE on CUDA: each mini-batch is bit-identical to that of the CPU."""

import numpy as np
import pytest
from conftest import make_graph
from cuda_case import needs_cuda
from nodewise_cuda_case import check_equal, on_cuda

from hoptrain.samplers import PinSAGESampler, VRGCNSampler

pytestmark = needs_cuda
SAMPLERS = {
    "vrgcn": VRGCNSampler([2, 2]), "vrgcn of one hop": VRGCNSampler([3]), "pinsage": PinSAGESampler([3, 2], num_walks=6, walk_length=3),
    "pinsage without restart": PinSAGESampler([2], num_walks=3, walk_length=5, restart=0.0),
}  # fmt: skip


@pytest.fixture(scope="module")
def small():
    return make_graph(40, 240)


@pytest.mark.parametrize("name", SAMPLERS)
def test_equal_to_the_cpu(small, name):
    workspace = on_cuda()
    for sizes in ([3, 1, 4], [2], [1] * 16):
        check_equal(SAMPLERS[name], small, [np.random.default_rng(n).permutation(40)[:n] for n in sizes], workspace)
