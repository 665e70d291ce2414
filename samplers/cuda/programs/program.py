"""Sampling programs on a CUDA device: a bulk of mini-batches at once, to the bit those of the CPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from hoptrain.engine import Graph, InputError
from hoptrain.engine.arrays import id_dtype
from hoptrain.engine.device import DeviceStream
from hoptrain.engine.device_store import place
from hoptrain.kernels.cuda.group import clear
from hoptrain.kernels.cuda.programs import program as kernels
from hoptrain.samplers.batch.minibatch import MiniBatch
from hoptrain.samplers.cuda.bulk import Bulk
from hoptrain.samplers.cuda.nodewise.neighbor import CudaNeighborSampling
from hoptrain.samplers.programs.cpu import checked_size, explain, no_edge
from hoptrain.samplers.programs.program import Program


class CudaProgram(CudaNeighborSampling):
    """Runs one program on one graph. ``schedule`` tells of blocks only."""

    def __init__(self, graph: Graph, program: Program, **options: Any) -> None:
        """Copy the graph, and the program's arrays, to where the device reads them; ``options`` are those of a workspace.

        Raises:
            InputError: CUDA cannot be used, or an unknown kernel or placement.
        """
        walks = program.output == "walks"
        fanouts = [program.num_walks * (program.steps + 1)] if walks else [checked_size(program, step) for step in range(program.steps)]
        super().__init__(graph, fanouts, replace=True, bulk_type=WalkBulk if walks else BlockBulk, **options)
        self.program = program
        self.parameters = place_parameters(program, self.stream)
        weights = self.graph.threshold[:0] if graph.weights is None else place(graph.weights, options["placement"], self.stream)
        self.columns = self.graph.indptr, self.graph.indices, weights

    def start_bulk(self, *args: Any, **options: Any) -> Callable[[], list[MiniBatch]]:
        """See ``CudaNeighborSampling.start_bulk``.

        Raises:
            InputError: besides, the program cannot be compiled.
        """
        from numba.core.errors import NumbaError

        try:
            return super().start_bulk(*args, **options)
        except NumbaError as error:
            raise InputError(explain(self.program, str(error))) from error


class _ProgramBulk(Bulk):
    sampling: CudaProgram

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.wrong = self.buffers.array("wrong", (2,), np.int64)
        self.launch.flat(clear, 2, self.wrong)

    def queue_sizes(self) -> None:
        """And whether all was well."""
        super().queue_sizes()
        self.wrong.copy_to_host(self.buffers.pinned("wrong", self.wrong), stream=self.stream)

    def complete(self, batches: list[MiniBatch]) -> list[MiniBatch]:
        """The batches as they are, unless ``next`` returned no edge of its transit somewhere."""
        wrong = self.buffers.pinned("wrong", self.wrong)
        if wrong[0]:
            raise no_edge(self.sampling.program, f"vertex {wrong[1]}")
        return batches


class BlockBulk(_ProgramBulk):
    """Blocks: the requests are drawn before they are counted, since ``next`` may stop and draws may repeat."""

    def _count(self, requests: tuple[Any, Any, Any], capacity: int, draw: tuple[int, int, Any], counts: Any) -> None:
        sampling, step = self.sampling, len(self.schedule)
        num_draws, address = draw[0], draw[2]
        self.drawn = self.matrix("drawn", capacity * num_draws, id_dtype(self.num_graph_edges))
        by_sample, by_transit = _block_kernels(type(sampling.program))
        rest = num_draws, bool(sampling.program.unique(step)), step, address, self.drawn, counts, self.wrong
        order = self._order(requests, capacity, draw)
        if order.grouped:
            self.launch.rows(kernels.clear_counts, capacity, *requests[1:], counts)
            lists = requests[0], order.members, order.counters
            self.launch.flat(by_transit, capacity * self.num_batches, sampling.parameters, *sampling.columns, *lists, *rest)
        else:
            self.launch.rows(by_sample, capacity, sampling.parameters, *sampling.columns, *requests, *rest)

    def _draw(self, requests: tuple[Any, Any, Any], capacity: int, draw: tuple[int, int, Any], output: tuple[Any, Any, Any]) -> Any:
        self.launch.rows(kernels.move_together, capacity, self.sampling.graph.indices, self.drawn, *requests[1:], draw[0], *output)


class WalkBulk(_ProgramBulk):
    """Walks, and the vertices that they visit as nodes."""

    def sample_hop(self, hop: int) -> None:
        """Walk; there is one hop, and no block."""
        sampling, program = self.sampling, self.sampling.program
        copies, width, count = program.num_walks, program.steps + 1, self.num_nodes[0]
        self.room = self.known * copies
        walks = self.buffers.array("walks", (self.num_batches * self.room, width), self.id_dtype)
        states = self.buffers.array("states", (self.num_batches * self.room, max(1, program.state_size)), np.int64)
        kernel = _walk_kernel(type(program))
        self.launch.rows(
            kernel, self.room, sampling.parameters, *sampling.columns, self.nodes, count, copies, self.addresses[0], self.room,
            walks, states, self.wrong,
        )  # fmt: skip
        most = self.room * width
        self.local = self.matrix("local", most, self.id_dtype)
        end = self.num_edges[0]
        self.launch.rows(kernels.list_vertices, most, walks, self.room, count, copies, self.local, end)
        self.frontier.relabel(self.local, most, (self.zeros, end), *self.num_nodes[:2])
        self.launch.rows(kernels.mark_ends, most, walks, self.room, end, self.local)

    def complete(self, batches: list[MiniBatch]) -> list[MiniBatch]:
        """With their walks."""
        batches = super().complete(batches)
        program = self.sampling.program
        local = self.sampling.stream.result(self.local)
        width = program.steps + 1
        for b, batch in enumerate(batches):
            rows = batch.num_seeds * program.num_walks
            batch.extra["walks"] = local[b, : rows * width].reshape(rows, width)
        return batches


def place_parameters(program: Program, stream: DeviceStream) -> Any:
    """What ``next`` sees as ``self``, its arrays in device memory."""
    values = program.parameters()
    return type(values)(*(place(v, "device", stream) if isinstance(v, np.ndarray) else v for v in values))


@cache
def _walk_kernel(kind: type[Program]) -> Any:
    return kernels.walk_kernel(kind.next, kind.transit_of)


@cache
def _block_kernels(kind: type[Program]) -> Any:
    return kernels.block_kernels(kind.next)
