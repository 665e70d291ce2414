"""Ranks that meet: as real processes, by torch's process group, with the simulator for their devices; and as threads of this one."""

import json
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from unittest import mock

import numpy as np

from hoptrain.engine.gpu_memory.meeting import Meeting

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


def run_ranks(folder, program, number=2):
    """What each rank printed as its last line, of JSON, and what it said on stderr, in lines. ``program`` has ``rank``, ``ranks`` and ``folder``."""
    text = "\n".join(map(textwrap.dedent, (_BEGIN, program, _END)))
    environment = os.environ | {"OMP_NUM_THREADS": "1", "NUMBA_ENABLE_CUDASIM": "1"}
    commands = [[sys.executable, "-c", text, str(folder), str(rank), str(number)] for rank in range(number)]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": Path(__file__).parents[2], "env": environment}
    ranks = [subprocess.Popen(command, **options) for command in commands]
    try:
        results = [rank.communicate(timeout=90) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
    assert [rank.returncode for rank in ranks] == [0] * number, results
    return [json.loads(out.splitlines()[-1]) for out, _ in results], [error.splitlines() for _, error in results]


class Store(dict):
    """What a meeting asks of torch's store; values are bytes, as there."""

    def set(self, key, value):
        self[key] = value.encode()

    def check(self, keys):
        return all(key in self for key in keys)


def meetings(number, **options):
    """As many ranks of one meeting, in this process."""
    store = Store()
    return [Meeting(store, rank, number, name="of threads", **options) for rank in range(number)]


def in_threads(functions):
    """The results of functions that wait for one another; the name of a thread is the place of its function."""
    results = [None] * len(functions)

    def run(place):
        results[place] = functions[place]()

    load, one_by_one = np.load, threading.Lock()

    def load_alone(*args, **options):  # ast.literal_eval of Python 3.11, which reads headers, counts its depth for all threads together
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
