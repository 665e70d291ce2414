"""Groups of ranks for tests: processes with torch's process group and simulated devices, or threads of this process."""

import json
import textwrap
import threading
from pathlib import Path
from unittest import mock

import numpy as np

from hoptrain.engine.gpu_memory.meeting import Meeting
from ranks.forked import Forked

_BEGIN = """
    import json, logging, sys
    from datetime import timedelta
    from torch import distributed
    folder, rank, ranks = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    logging.basicConfig(level="INFO", stream=sys.stderr, format="%(message)s")
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=ranks, timeout=timedelta(seconds=60)
    )
    sys.path.insert(0, "tests")
"""
_END = """
    distributed.barrier()
    distributed.destroy_process_group()  # threads of gloo's that are left at the interpreter's end end the process at times
"""


def outputs_of(ranks, seconds):
    """Return stdout and stderr of each rank, after checking that all end with code 0."""
    try:
        results = [rank.communicate(timeout=seconds) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
    assert [rank.returncode for rank in ranks] == [0] * len(ranks), results
    return results


def run_ranks(folder, program, number=2):
    """Run ``program`` in forked ranks, with the variables ``rank``, ``ranks`` and ``folder``; return its last output line (JSON) and stderr lines."""
    text = "\n".join(map(textwrap.dedent, (_BEGIN, program, _END)))
    results = outputs_of([Forked(text, folder, rank, number, cwd=Path(__file__).parents[2]) for rank in range(number)], 90)
    return [json.loads(out.splitlines()[-1]) for out, _ in results], [error.splitlines() for _, error in results]


class Store(dict):
    """A stub of torch's store with the methods that ``Meeting`` uses; values are bytes."""

    def set(self, key, value):
        self[key] = value.encode()

    def check(self, keys):
        return all(key in self for key in keys)


def meetings(number, **options):
    """Return the ``Meeting`` of each of several ranks in this process."""
    store = Store()
    return [Meeting(store, rank, number, name="of threads", **options) for rank in range(number)]


def in_threads(functions):
    """Run functions that wait for each other in threads named by their index, and return their results."""
    results = [None] * len(functions)

    def run(place):
        results[place] = functions[place]()

    load, one_by_one = np.load, threading.Lock()

    def load_alone(*args, **options):  # Python 3.11's ast.literal_eval, which reads headers, counts its depth over all threads
        with one_by_one:
            return load(*args, **options)

    threads = [threading.Thread(target=run, args=(place,), name=str(place), daemon=True) for place in range(len(functions))]
    with mock.patch.object(np, "load", load_alone):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(90)
            assert not thread.is_alive()
    return results
