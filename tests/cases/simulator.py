"""Numba's CUDA simulator, with the threads of a block one after the other: each runs to a barrier or to its end, then the next one.

Numba's own lets them all run and polls them, for which it takes most of the time. Races are what ``ptx`` looks for.
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
    """Run a block; raises what one of its threads raised."""
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
    """Let the simulator run blocks so from now on."""
    BlockManager.run = _run
