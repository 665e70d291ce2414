"""Every number that decides how fast the CUDA kernels are, and none that decides what they give.

All were found by counting bytes and the limits of a Hopper SM (132 SMs, 2048 threads, 228 KiB of shared memory and 32 blocks each); none has
been measured on a device yet.
"""

from dataclasses import dataclass

COPY_UNIT = 32
"""Edges that one unit of work copies where a node of low degree gives all of them: below the fanouts in use, so that such a node is one
unit, as are those beside it in the warp which draw."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Thresholds:
    """Block sizes, borders of the classes of transits, and the constants of the cost model."""

    block: int = 256  # threads of a block: eight of them fill an SM, and a scan takes eight steps
    max_blocks: int = 132 * 32  # of a launch: twice what is resident at once, so that uneven blocks even out
    resident_blocks: int = 132 * 8  # that run at once
    cache_bytes: int = 40 << 20  # of the second-level cache, for tables: H200 and H100 have 50 MiB, A100 40
    lanes: int = 32  # threads at most on one request where the schedule is by sample: a warp reads an adjacency list in whole sectors

    # A transit's work, in units (draw.py), up to which it belongs to a class; beyond the last one it gets several blocks.
    thread_work: int = 4  # fewer units than a warp has lanes by so much that a warp for itself would idle
    warp_work: int = 128  # four units a lane
    block_work: int = 8192  # 32 units a thread

    # Shared memory for adjacency lists. 32 blocks of a warp, or eight of 256 threads, fit an SM at once with these.
    warp_stage_bytes: int = 4096
    block_stage_bytes: int = 24 * 1024
    shares: int = 64  # blocks on one grid transit: half the SMs, since hubs come together; each has 128 units or more

    # Cost model. A random read moves a sector of 32 bytes, whatever it asks for.
    sector_bytes: int = 32
    pinned_cost: int = 75  # 4.8 TB/s of device memory to 64 GB/s of the link: bytes of an adjacency list in host memory weigh so much

    @property
    def scan_bytes(self) -> int:
        """Shared memory of a scan: a partial sum for each thread."""
        return 8 * self.block


THRESHOLDS = Thresholds()
