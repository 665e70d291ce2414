"""Small graphs and models for the tests of pipelines, importable by the processes of a pipeline."""

import os
import signal

import numpy as np
import torch
import torch.nn.functional as F
from ranks.forked import Forked
from torch.distributed.device_mesh import init_device_mesh

from hoptrain.engine import Graph
from hoptrain.samplers import NeighborSampler
from hoptrain.trainers.models import GNN
from hoptrain.trainers.models.layered import address_seed, apply_layers
from hoptrain.trainers.pipeline import Chunk, Pipeline, Plan, launch

NUM_NODES, NUM_SEEDS, NUM_CLASSES = 60, 25, 3
ARCHS = ("sage", "gat", "gcn")
SCHEDULES = ("gpipe", "1f1b", "interleaved-1f1b")
LAYOUTS = ((1, 1), (2, 1), (4, 1), (1, 2), (2, 2))
"""(stages, model replicas)."""


def make_case():
    """Return a graph, features, labels and seeds; every call returns the same ones."""
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, NUM_NODES, (2, 120))
    graph = Graph.from_edges(src, dst, NUM_NODES)
    x = torch.from_numpy(rng.standard_normal((NUM_NODES, 6)))
    y = torch.from_numpy(rng.integers(0, NUM_CLASSES, NUM_NODES))
    return graph, x, y, rng.permutation(NUM_NODES)[:NUM_SEEDS]


def make_model(arch, num_layers, dtype=torch.float64, dropout=0.0):
    torch.manual_seed(1)
    return GNN(arch, 6, 8, NUM_CLASSES, num_layers, dropout=dropout, input_dropout=dropout, heads=2, norm="layer").to(dtype)


def make_chunk(seeds, num_layers, dtype=torch.float64, number=0, fanout=-1):
    """Return a chunk of ``seeds`` with the inputs of all layers."""
    graph, x, y, _ = make_case()
    batch = NeighborSampler([fanout] * num_layers).sample(graph, seeds).to("cpu")
    nodes = batch.node_ids.long()
    degrees = torch.from_numpy(graph.in_degrees()).to(dtype)[nodes]
    return Chunk(
        rows=[*(block.num_src for block in batch.blocks), len(seeds)],
        inputs=[(block, degrees[: block.num_src]) for block in batch.blocks],
        x=x[nodes].to(dtype),
        target=y[batch.seeds.long()],
        seed=address_seed(5, number),
    )


def chunk_loss(output, target):
    return F.cross_entropy(output, target, reduction="sum") / NUM_SEEDS


def in_one_process(model, chunks):
    """Return the loss and the gradients of chunks computed in sequence by the whole model."""
    total = 0.0
    for chunk in chunks:
        loss = chunk_loss(apply_layers(model, chunk, range(model.num_layers), chunk.x), chunk.target)
        loss.backward()
        total += loss.item()
    return total, {name: parameter.grad for name, parameter in model.named_parameters()}


def start_forked(folder, rank):
    """Fork a process of ``run_ranks``, to be set as ``launch._start``."""
    errors = folder / f"errors{rank}"
    errors.touch()
    return Forked(launch._PROGRAM, folder, rank, errors=errors)


def compare(cases):
    """Return, for each case, the largest relative error of a stage's gradients and of the loss, in each of 4 processes.

    A case is (arch, chunks, schedule, (stages, data), dtype, dropout). With dropout the reference is the chunks in sequence, otherwise the
    whole batch. Layouts that need fewer than 4 processes run several times.
    """
    meshes = {}
    return [_error(case, meshes) for case in cases]


def _error(case, meshes):
    arch, chunks, schedule, (stages, data), dtype, dropout = case
    dtype = getattr(torch, dtype)
    plan = Plan(stages=stages, data=data, chunks=chunks, schedule=schedule)
    layers = max(2, plan.num_runs)
    if (stages, data) not in meshes:
        mesh = init_device_mesh("cpu", (4 // (stages * data), data, stages), mesh_dim_names=("again", "data", "stages"))
        meshes[stages, data] = mesh["data", "stages"]
    seeds = make_case()[-1]
    own = np.array_split(seeds, data)
    shares = [np.array_split(part, min(chunks, len(part))) for part in own]
    whole = [make_chunk(seeds, layers, dtype)]
    if dropout:
        whole = [make_chunk(share, layers, dtype, n) for copy in shares for n, share in enumerate(copy)]
    loss, expected = in_one_process(make_model(arch, layers, dtype, dropout), whole)
    model = make_model(arch, layers, dtype, dropout)
    mesh = meshes[stages, data]
    pipeline = Pipeline(model, plan, chunk_loss, mesh=mesh)
    mine = [make_chunk(share, layers, dtype, n) for n, share in enumerate(shares[mesh.get_local_rank("data")])]
    for _ in range(2):  # the second step uses the buffers again
        model.zero_grad()
        step = pipeline.step(mine)
    total = torch.tensor([step.loss], dtype=torch.float64)
    torch.distributed.all_reduce(total, group=mesh.get_group("data"))
    found = dict(model.named_parameters())
    assert found, "a stage without parameters"
    assert stages == 1 or len(found) < len(expected), "a stage with all parameters"
    errors = [(found[name].grad - expected[name]).abs().max() / expected[name].abs().max().clamp(min=1e-3) for name in found]
    return max(*map(float, errors), abs(total.item() - loss))


class Failing(torch.nn.Module):
    """A model of two layers; the second layer raises, or kills its process, at the chunk with index 2."""

    num_layers = 2

    def __init__(self, how):
        super().__init__()
        self.how = how
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(2))

    def layer(self, i, x, number):
        if (i, number) == (1, 2):
            if self.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("this layer fails")
        return self.layers[i](x)

    def shape(self, i):
        return (4,)

    def modules_of(self, i):
        return (f"layers.{i}",)
