"""Sampling programs on a CUDA device: a bulk of mini-batches at once, to the bit those of the CPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, cast

import numpy as np

from hoptrain.engine import Graph, InputError
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.device_store import place
from hoptrain.kernels.cuda import program as kernels
from hoptrain.kernels.cuda.group import clear, group_requests
from hoptrain.kernels.cuda.relabel import relabel
from hoptrain.samplers.bulk_cuda import Bulk
from hoptrain.samplers.cost_model import choose_schedule
from hoptrain.samplers.minibatch import MiniBatch
from hoptrain.samplers.neighbor_cuda import CudaNeighborSampling
from hoptrain.samplers.program import Program
from hoptrain.samplers.program_cpu import explain, no_edge
from hoptrain.samplers.workspace import Workspace


class CudaProgram(CudaNeighborSampling):
    """Runs one program on one graph. ``schedule`` tells of blocks only."""

    def __init__(self, graph: Graph, program: Program, workspace: Workspace) -> None:
        """Copy the graph, and the program's arrays, to where the device reads them.

        Raises:
            InputError: CUDA cannot be used, or an unknown kernel or placement.
        """
        if program.sampling_type == "collective":
            raise InputError(f'{type(program).__name__} with device="cuda": a collective program runs on the CPU only; use device="cpu"')
        walks = program.output == "walks"
        fanouts = [program.num_walks * (program.steps + 1)] if walks else [program.sample_size(step) for step in range(program.steps)]
        super().__init__(
            graph,
            fanouts,
            replace=True,
            kernel=workspace.kernel,
            placement=workspace.placement,
            thresholds=workspace.thresholds,
            stream=workspace.stream,
        )
        self.bulk_type = WalkBulk if walks else BlockBulk
        self.program = program
        values = program.parameters()
        on_device = [place(v, "device", self.stream) if isinstance(v, np.ndarray) else v for v in values]
        self.parameters = type(values)(*on_device)
        weights = self.graph.threshold[:0] if graph.weights is None else place(graph.weights, workspace.placement, self.stream)
        self.columns = self.graph.indptr, self.graph.indices, weights

    def _finish(self, bulk: Bulk, *args: Any) -> list[MiniBatch]:
        batches = super()._finish(bulk, *args)
        cast("_ProgramBulk", bulk).check()
        return cast("_ProgramBulk", bulk).complete(batches)


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

    def check(self) -> None:
        """Raise if ``next`` returned no edge of its transit somewhere."""
        wrong = self.buffers.pinned("wrong", self.wrong)
        if wrong[0]:
            raise no_edge(self.sampling.program, f"vertex {wrong[1]}")

    def complete(self, batches: list[MiniBatch]) -> list[MiniBatch]:
        """The batches as they are."""
        return batches


class BlockBulk(_ProgramBulk):
    """Blocks: the requests are drawn before they are counted, since ``next`` may stop and draws may repeat."""

    def _count(self, requests: tuple[Any, Any, Any], capacity: int, draw: tuple[int, int, Any], counts: Any) -> None:
        sampling, step = self.sampling, len(self.schedule)
        num_draws, address = draw[0], draw[2]
        self.drawn = self._matrix("drawn", capacity * num_draws, id_dtype(self.num_graph_edges))
        by_sample, by_transit = _block_kernels(type(sampling.program))
        rest = num_draws, bool(sampling.program.unique(step)), step, address, self.drawn, counts, self.wrong
        total, table = capacity * self.num_batches, sampling.thresholds
        schedule = sampling.kernel
        if schedule == "auto":
            cost = table.pinned_cost if sampling.graph.placement["indices"] == "pinned" else 1
            schedule = choose_schedule(total, num_draws, self.num_vertices, self.num_graph_edges, self.id_dtype.itemsize, cost, table)
        if schedule == "sample":
            self.launch.rows(by_sample, capacity, sampling.parameters, *sampling.columns, *requests, *rest)
        else:
            groups = self._groups(total)
            group_requests(self.launch, sampling.graph.arrays(), requests, capacity, draw, groups)
            self.launch.rows(kernels.clear_counts, capacity, *requests[1:], counts)
            lists = requests[0], groups.members, groups.counters
            self.launch.flat(by_transit, total, sampling.parameters, *sampling.columns, *lists, *rest)
        self.schedule.append(schedule)

    def _draw(self, requests: tuple[Any, Any, Any], capacity: int, draw: tuple[int, int, Any], output: tuple[Any, Any, Any]) -> None:
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
        self.local = self._matrix("local", most, self.id_dtype)
        end = self.num_edges[0]
        self.launch.rows(kernels.list_vertices, most, walks, self.room, count, copies, self.local, end)
        room = min(self.num_vertices, self.known + most)
        self.nodes = self._matrix("nodes", room, self.id_dtype, keep=True)
        table = self._reserve(room, 0)
        scratch = self._matrix("slots", most, self.dtype), self._matrix("ranks", most + 1, self.dtype), self._sums(most)
        relabel(self.launch, self.local, self.nodes, most, self.zeros, end, room, table, scratch, *self.num_nodes[:2])
        self.launch.rows(kernels.mark_ends, most, walks, self.room, end, self.local)

    def complete(self, batches: list[MiniBatch]) -> list[MiniBatch]:
        """With their walks."""
        program = self.sampling.program
        local = self.sampling.stream.result(self.local)
        width = program.steps + 1
        for b, batch in enumerate(batches):
            rows = batch.num_seeds * program.num_walks
            batch.extra["walks"] = local[b, : rows * width].reshape(rows, width)
        return batches


@cache
def _walk_kernel(kind: type[Program]) -> Any:
    return kernels.walk_kernel(kind.next, kind.transit_of)


@cache
def _block_kernels(kind: type[Program]) -> Any:
    return kernels.block_kernels(kind.next)


def start_program(
    program: Program, graph: Graph, seeds: list[Array], workspace: Workspace, **address: int
) -> Callable[[], list[MiniBatch]]:
    """Queue a bulk; the workspace keeps the device's copies until another graph or program is sampled.

    Raises:
        InputError: the program cannot be compiled; or as ``CudaNeighborSampling.start_bulk``.
    """
    from numba.core.errors import NumbaError

    key = graph, program
    if workspace.device_sampling is None or workspace.device_sampling[0] != key:
        workspace.device_sampling = None
        workspace.device_sampling = key, CudaProgram(graph, program, workspace)
    held: CudaProgram = workspace.device_sampling[1]
    try:
        return held.start_bulk(seeds, **address)
    except NumbaError as error:
        raise InputError(explain(program, str(error))) from error
