"""Uniform random walks on a partitioned graph. The requester draws a step's random word, which depends on the root; the node's owner takes the step."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from hoptrain.engine import Address
from hoptrain.engine.arrays import Array
from hoptrain.engine.partition.exchange import Exchange
from hoptrain.engine.partition.topology.columns import OwnColumns
from hoptrain.engine.partition.topology.trade import packed, trade, unpacked
from hoptrain.kernels.cpu.programs import walk as kernels
from hoptrain.samplers.batch.minibatch import MiniBatch
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.checks import check_seeds
from hoptrain.samplers.programs.cpu import batch_of_walks
from hoptrain.samplers.programs.walks import RandomWalk


def walk_window(
    program: RandomWalk, columns: OwnColumns, batches: Sequence[tuple[Array, Address]], exchange: Exchange, workspace: Workspace
) -> list[MiniBatch]:
    """Sample batches of walks, as ``hoptrain.samplers.distributed.window.sample_window`` does. A step of all walks takes two communication rounds."""
    graph, copies = columns.graph, program.num_walks
    roots = [np.repeat(check_seeds(graph, seeds), copies) for seeds, _ in batches]
    ends = np.cumsum([0, *map(len, roots)])
    walks = np.empty((int(ends[-1]), program.steps + 1), graph.indices.dtype)
    walks[:, 0] = np.concatenate([walks[:0, 0], *roots])
    vertices, words = np.empty(len(walks), walks.dtype), np.empty(len(walks), np.uint64)
    for step in range(program.steps):
        for (_, address), (first, last) in zip(batches, pairwise(ends), strict=True):
            own, of_batch = walks[first:last], tuple(map(np.uint64, address))
            kernels.start_step(own, step, copies, program.restart_code, of_batch, vertices[first:last], words[first:last])
        walks[:, step + 1] = _next(columns, vertices, words, exchange)
    made = [
        batch_of_walks(walks[first:last], graph, np.asarray(seeds), workspace).map(np.copy)
        for (seeds, _), (first, last) in zip(batches, pairwise(ends), strict=True)
    ]
    return [program.addressed(batch, address) for batch, (_, address) in zip(made, batches, strict=True)]


def _next(columns: OwnColumns, vertices: Array, words: Array, exchange: Exchange) -> Array:
    """Return the next nodes (W,) of walks at ``vertices`` (W,) by random ``words`` (W,); -1 for walks that have ended."""
    found = np.full(len(vertices), -1, vertices.dtype)
    going = np.flatnonzero(vertices >= 0)
    owners = columns.owner(vertices[going])
    asked = [going[owners == part] for part in range(exchange.size)]
    questions = [packed(vertices[own], words[own].astype(np.uint32)) for own in asked]
    for own, answer in zip(asked, trade(exchange, questions, lambda question: _answer(columns, question)), strict=True):
        found[own] = answer.copy().view(found.dtype)
    return found


def _answer(columns: OwnColumns, question: Array) -> Array:
    vertices, words = unpacked(question, columns.graph.indices.dtype, np.uint32)
    kernels.take_step(columns.graph.indptr, columns.graph.indices, vertices, words)
    return vertices.view(np.uint8)
