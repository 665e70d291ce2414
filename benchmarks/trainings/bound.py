"""Estimated lower bound of a GraphSAGE training step on a CPU, from the work of sampled mini-batches and the rates that this machine reaches.

The bound is the sum of three phases, since they follow one another in a step:

* products: their floating-point operations, at the rate of a float32 product of the largest layer's shape, which includes reading and writing its matrices;
* streams: the bytes that other passes must read and write in order, at the rate of a copy: the sums that are written, forward and backward, and
  ReLU with dropout in one pass forward (read, write) and one pass backward (read two, write one);
* rows: the bytes of random rows, at the rate of gathering rows of the feature width: each input node's features (read, write), and one row for each edge
  in a layer's sums and, except where the input needs no gradient, in their backward pass.

Products of the backward pass are as many as those of the forward pass for the gradients of weights, and again for the gradients of inputs, except in the
first layer. The bound ignores sampling, the optimiser, the loss and Python. Workers on cores of their own can gather features while the trainer computes, and
caches can hold some of the rows, so a step below the bound is possible.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import torch

from hoptrain.benchmarks.common.floor import COPY_BYTES
from hoptrain.benchmarks.common.rounds import time_rounds
from hoptrain.benchmarks.trainings.cell import Cell
from hoptrain.benchmarks.trainings.program import with_seeds
from hoptrain.engine import Dataset
from hoptrain.samplers import Block, NeighborSampler, SampleLoader
from hoptrain.trainers.models.sums import narrows_first

_BATCHES = 4
"""Number of mini-batches whose work is counted."""
_ROUNDS = 5
_NUMBER = 4
"""Bytes of a float32 number."""


class Work(NamedTuple):
    """The work of a step: floating-point operations of the ``products``, bytes of the ``streams``, and bytes of the random ``rows``."""

    products: int
    streams: int
    rows: int


class Phase(NamedTuple):
    """The milliseconds of a phase of the step, and the rate they assume: GFLOP/s of products, GB/s of memory (read plus written)."""

    ms: float
    rate: float


class Bound(NamedTuple):
    """The lower bound of a step, as its phases; see the module's docstring."""

    products: Phase
    streams: Phase
    rows: Phase

    @property
    def ms(self) -> float:
        """Milliseconds of all phases together."""
        return sum(phase.ms for phase in self)


def estimate(cell: Cell, folder: Path) -> Bound:
    """Return the lower bound of a step of a cell with arch sage, on the data set in ``folder``. Rates are those of the cell's number of threads."""
    data = with_seeds(Dataset.open(folder, verify=False), cell)
    widths = cell.widths(data.num_features, data.num_classes)
    loader = SampleLoader(data, NeighborSampler(cell.fanouts), batch_size=cell.batch_size, seed=cell.seed)
    batches = [batch.blocks for batch in islice(loader, _BATCHES)]
    works = [count_work(blocks, widths) for blocks in batches]
    threads = torch.get_num_threads()
    torch.set_num_threads(cell.threads)
    try:
        costs = time_rounds(_subjects(batches[0], widths, data.graph.num_nodes), _ROUNDS)
    finally:
        torch.set_num_threads(threads)
    amounts = {name: sum(numbers) / len(works) for name, numbers in zip(Work._fields, zip(*works, strict=True), strict=True)}
    return Bound(**{name: Phase(amount * costs[name].median / 1e6, 1 / costs[name].median) for name, amount in amounts.items()})


def count_work(blocks: Sequence[Block], widths: Sequence[tuple[int, int]]) -> Work:
    """Return the work of a step on a mini-batch. ``widths`` are the numbers of input and output channels of each layer."""
    products = streams = 0
    rows = 2 * blocks[0].num_src * widths[0][0]
    for i, (block, (width, out)) in enumerate(zip(blocks, widths, strict=True)):
        narrows = narrows_first(block, width, out)
        multiplied = block.num_dst + (block.num_src if narrows else block.num_dst)  # own rows, and the sources' rows or means over them
        products += 2 * multiplied * width * out * (3 if i else 2)
        summed = out if narrows else width
        rows += block.num_edges * summed
        streams += block.num_dst * summed
        if i or narrows:
            rows += block.num_edges * summed
            streams += block.num_src * summed
        if i:
            streams += 5 * block.num_src * width  # ReLU and dropout of the layer's inputs
    return Work(products, _NUMBER * streams, _NUMBER * rows)


def _subjects(blocks: Sequence[Block], widths: Sequence[tuple[int, int]], num_nodes: int) -> dict[str, Callable[[int], int]]:
    """Return the functions to time for each phase, which return their number of operations or bytes. Their outputs reuse memory, as in a training."""
    num_rows, inner, columns = max(
        (_shape(block, *pair) for block, pair in zip(blocks, widths, strict=True)), key=lambda shape: shape[0] * shape[1] * shape[2]
    )
    x, weights, out = torch.ones(num_rows, inner), torch.ones(columns, inner), torch.zeros(num_rows, columns)
    source, target = torch.ones(COPY_BYTES // _NUMBER), torch.zeros(COPY_BYTES // _NUMBER)
    num_features = widths[0][0]
    table = torch.ones(min(num_nodes, COPY_BYTES // (_NUMBER * num_features)), num_features)
    index = torch.randint(len(table), (blocks[0].num_src,), generator=torch.Generator().manual_seed(0))
    gathered = torch.zeros(len(index), num_features)

    def multiply(_: int) -> int:
        torch.mm(x, weights.T, out=out)
        return 2 * num_rows * inner * columns

    def copy(_: int) -> int:
        target.copy_(source)
        return 2 * source.nbytes

    def gather(_: int) -> int:
        torch.index_select(table, 0, index, out=gathered)
        return 2 * gathered.nbytes

    return {"products": multiply, "streams": copy, "rows": gather}


def _shape(block: Block, width: int, out: int) -> tuple[int, int, int]:
    """Return the rows, inner size and columns of a layer's product. Means and own rows are joined unless the layer multiplies before it sums."""
    return (block.num_src, width, out) if narrows_first(block, width, out) else (block.num_dst, 2 * width, out)
