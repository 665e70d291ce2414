"""Numba's CUDA simulator with one thread of a block at a time: a thread runs to a barrier or to its end, then the next thread.

Numba runs all threads and polls them, which takes most of the time. ``ptx`` detects races.
"""

import threading

import numpy as np
from numba.cuda.simulator.kernel import BlockManager, BlockThread


class _Thread(BlockThread):
    """A CUDA thread that waits for its turn at each barrier."""

    def __init__(self, *args):
        super().__init__(*args)
        self.turn, self.has_ended = threading.Semaphore(0), False

    def run(self):
        super().run()
        self.has_ended = True
        self._manager.turn.release()

    def syncthreads(self):
        self._manager.turn.release()
        self.turn.acquire()
        if self.abort:
            raise RuntimeError("another thread of the block has failed")


def _run(self, grid_point, *args):
    """Run a block, and raise the error of any of its threads."""
    self.turn = threading.Semaphore(0)
    threads = [_Thread(lambda: self._f(*args), self, grid_point, block_point, self._debug) for block_point in np.ndindex(*self._block_dim)]
    begin, live, failed = _Thread.start, threads, None
    while live:
        for thread in live:
            thread.abort = failed is not None
            begin(thread)
            self.turn.acquire()
            failed = failed or thread.exception
        begin, live = lambda thread: thread.turn.release(), [thread for thread in live if not thread.has_ended]
    if failed:
        raise failed[0].with_traceback(failed[1])


def take_turns():
    """Make the simulator run one thread of a block at a time from now on."""
    BlockManager.run = _run
