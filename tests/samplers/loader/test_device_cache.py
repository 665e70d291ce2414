"""Two ranks with a GPU cache, as processes: rows equal the stored ones for any cache layout, and both ranks choose the same layout.

Anonymous shared memory replaces GPU memory that is shared by CUDA IPC.
"""

import pytest
from cuda_case import needs_cuda
from ranks import run_ranks

PROGRAM = """
    import os
    import numpy as np
    from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray
    from conftest import make_graph
    from cuda_case import SMALL
    from hoptrain.engine import Dataset
    from hoptrain.engine.gpu_memory import one_copy, peers
    from hoptrain.engine.queue.shared_memory import anonymous_file, reserve
    from hoptrain.samplers import NeighborSampler, SampleLoader, Workspace

    refuses = False

    def lend(shape, dtype):
        fd = anonymous_file("lent")
        pages = reserve(fd, int(np.prod(shape)) * np.dtype(dtype).itemsize)
        return FakeCUDAArray(np.frombuffer(pages, dtype).reshape(shape)), f"/proc/{os.getpid()}/fd/{fd}"

    def borrow(handle, shape, dtype):
        if refuses and rank == 1:
            raise RuntimeError("no access")
        return FakeCUDAArray(np.memmap(handle, dtype, "r", shape=shape))

    peers.lend, peers.borrow = lend, borrow
    one_copy.SHARE_FROM_BYTES = 0
    start = Workspace.__init__
    def init(self, *args, **options):
        start(self, *args, **options)
        self.on_device.thresholds = SMALL
    Workspace.__init__ = init

    rng = np.random.default_rng(1)
    data = Dataset(name="small", graph=make_graph(60, 300), x=rng.random((60, 3)), y=rng.integers(0, 3, 60),
                   splits={"train": np.arange(15)}, num_classes=3)
    expected = list(SampleLoader(data, NeighborSampler([3]), batch_size=4))
    facts = []
    peers.reachable = lambda gpus: [True] * len(gpus)
    for refuses in (False, True):
        loader = SampleLoader(data, NeighborSampler([3]), batch_size=4, device="cuda", bulk=2, gpu_cache=0.2, graph_placement="pinned")
        batches = list(loader)
        right = all(np.array_equal(a.x, data.x[a.node_ids]) and np.array_equal(a.node_ids, b.node_ids)
                    for a, b in zip(batches, expected, strict=True))
        facts.append([right, loader.hit_rates.rows.tolist(), loader.hit_rates.expected, loader.hit_rates.had[0]])
        loader.close()
    distributed.barrier()
    print(json.dumps(facts))
"""


@needs_cuda
@pytest.mark.usefixtures("forkserver")
def test_ranks_share_their_caches_out_or_have_their_own(tmp_path):
    both, said = run_ranks(tmp_path, PROGRAM)
    for facts in zip(*both, strict=True):
        first, second = facts
        assert first[0] is second[0] is True
        assert first[1:3] == second[1:3]  # the cached rows, and the expected hit rate
    (shared, alone), other = both
    assert (len(shared[1]), len(alone[1])) == (24, 12)
    assert set(alone[1]) < set(shared[1])
    assert alone[2] < shared[2] < 1
    expected = pytest.approx((shared[3] + other[0][3]) / 2, abs=0.05)  # counted over both ranks, which have about as many reads
    assert shared[2] == expected
    lines = "\n".join(said[0])
    assert "gpu_cache: 24 of 60 rows in device memory, distributed over 2 GPUs, " in lines
    assert "gpu_cache: 12 of 60 rows in device memory, " in lines
    assert "x of the data set: 0.00 GiB of host memory, shared by the 2 ranks of this machine" in lines
    assert "GPUs cannot share their hot rows (no access): each keeps its own" in "\n".join(said[1])
