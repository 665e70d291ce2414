"""Samplers defined in the running script or in a notebook work in worker processes, which never import the script."""

import subprocess
import sys

import pytest

SCRIPT = """
import numpy as np
from hoptrain import Dataset, Graph, NeighborSampler, SamplingProgram, SampleLoader
from hoptrain.samplers import STOP, bernoulli, randint

SHARE = 3

class Walk(SamplingProgram):
    output = "walks"
    def __init__(self, steps):
        self.steps = steps
    def next(self, transit, step, rng):
        return STOP if bernoulli(rng, 0.1) else randint(rng, len(transit.neighbors))

def share(scale):
    return scale(SHARE)

class Scaled(NeighborSampler):
    def __init__(self, fanouts, scale):
        super().__init__(fanouts)
        self.scale = scale
    def sample_on_cpu(self, graph, seeds, address, workspace):
        if share(self.scale) != 6:
            raise RuntimeError("what it refers to has not come along")
        return super().sample_on_cpu(graph, seeds, address, workspace)

src = np.arange(40)
graph = Graph.from_edges(np.r_[src, src], np.r_[(src + 1) % 40, (src + 7) % 40])
data = Dataset(graph=graph, splits={"train": src})
for sampler in (Walk(4), Scaled([3, 2], lambda share: 2 * share)):
    found = []
    for num_workers in (0, 1):
        with SampleLoader(data, sampler, batch_size=10, num_workers=num_workers, seed=0) as loader:
            found.append([np.array(batch.node_ids).tolist() for batch in loader])
    print(type(sampler).__name__, len(found[0]), found[0] == found[1])
"""


@pytest.mark.parametrize("way", ["file", "stdin"])  # `python -c`, stdin and notebooks have a __main__ without a file
def test_samplers_of_the_running_script_reach_the_workers(tmp_path, way):
    (tmp_path / "script.py").write_text(SCRIPT)
    (argument, text) = ("script.py", None) if way == "file" else ("-", SCRIPT)
    done = subprocess.run([sys.executable, argument], cwd=tmp_path, input=text, capture_output=True, text=True, check=False)
    assert done.stdout == "Walk 4 True\nScaled 4 True\n", done.stderr
