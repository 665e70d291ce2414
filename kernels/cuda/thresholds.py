"""Constants that determine the speed of the CUDA kernels, but not their results.

They were derived from numbers of bytes and from the limits of Hopper GPUs: 132 SMs with 2048 threads, 228 KiB of shared memory and 32 blocks each. None
has been tuned by measurements on a device yet.
"""

from dataclasses import dataclass

COPY_UNIT = 32
"""Number of edges in a unit of work if all edges of a node are taken. It exceeds usual fanouts, so that a node of low degree is one unit, like the
nodes that draw in the same warp.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Thresholds:
    """Block sizes, limits of the classes of nodes by amount of work, and constants of the cost model."""

    block: int = 256  # threads per block: eight blocks fill an SM, and a scan over a block takes eight steps
    max_blocks: int = 132 * 32  # maximum blocks of a launch: more than are resident at once, so that uneven blocks balance out
    resident_blocks: int = 132 * 8  # number of blocks that run at once
    cache_bytes: int = 40 << 20  # second-level cache available for tables: H200 and H100 have 50 MiB, A100 has 40
    lanes: int = 32  # maximum threads of a request in the sample-parallel schedule: a warp reads an adjacency list in whole sectors

    # Maximum work of a transit in each class, in units (draw.py). Above the last one a transit gets several blocks.
    thread_work: int = 4  # one thread per transit: with so few units of work most lanes of a warp would be idle
    warp_work: int = 128  # one warp per transit: at most four units of work per lane
    block_work: int = 8192  # one block per transit: at most 32 units of work per thread

    # Shared memory for adjacency lists. With these sizes an SM holds 32 blocks of a warp, or eight of 256 threads.
    warp_stage_bytes: int = 4096
    block_stage_bytes: int = 24 * 1024
    shares: int = 64  # blocks for a transit above all classes: half the SMs, since hubs occur together; each block has 128 units or more

    # Cost model. A random read moves a sector of 32 bytes, however few of them are needed.
    sector_bytes: int = 32
    pinned_cost: int = 75  # cost of a byte in host memory relative to device memory: 4.8 TB/s to 64 GB/s of the link

    @property
    def scan_bytes(self) -> int:
        """Bytes of shared memory of a scan: a partial sum for each thread."""
        return 8 * self.block


THRESHOLDS = Thresholds()
