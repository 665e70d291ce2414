"""CUDA drivers of individual sampling programs, with blocks or with walks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from hoptrain.engine import Graph
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.gpu_memory.device_store import to_device
from hoptrain.engine.gpu_memory.device_stream import DeviceStream, to_host
from hoptrain.kernels.cuda.draw import REPLACE
from hoptrain.kernels.cuda.group import ROW_BITS
from hoptrain.kernels.cuda.programs import program as kernels
from hoptrain.samplers.batch.minibatch import MiniBatch
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.cuda.bounded import FixedSizeSampler
from hoptrain.samplers.cuda.bulk import Bulk
from hoptrain.samplers.cuda.device_sampler import NEVER
from hoptrain.samplers.programs.cpu import check_sample_size, explain_compile_errors, no_edge
from hoptrain.samplers.programs.program import SamplingProgram


class _Individual(FixedSizeSampler):
    """The base class of the drivers of programs with blocks and with walks. ``schedule`` is set for blocks only."""

    own_sizes = ("wrong",)

    def __init__(self, graph: Graph, program: SamplingProgram, workspace: Workspace, fanouts: Sequence[int]) -> None:
        super().__init__(graph, workspace, fanouts, REPLACE)
        self.program = program
        self.parameters = place_parameters(program, self.stream)
        no_weights = self.stream.empty((0,), np.float32)  # an empty array in pinned memory would have no device address
        weights = no_weights if graph.weights is None else self.to_device(graph.weights, "the graph")
        self.columns = self.graph.indptr, self.graph.indices, weights

    def begin(self, seeds: list[Array]) -> None:
        """Check the seeds, and reset the position of the first invalid draw."""
        super().begin(seeds)
        self.given["wrong"] = NEVER

    def queue(self) -> None:
        """Queue all steps; the first call compiles the program."""
        with explain_compile_errors(self.program):
            super().queue()

    @abstractmethod
    def name_of(self, b: int, step: int, place: int) -> str:
        """Return the description of an invalid draw for a message."""

    def batches(self) -> Bulk[MiniBatch]:
        """Return the mini-batches of the bulk.

        Raises:
            InputError: ``next`` returned an edge that its transit node does not have.
        """
        if (first := find_first_invalid(self.host_size("wrong"))) is not None:
            raise no_edge(self.program, self.name_of(*first))
        return super().batches()


class CudaBlocks(_Individual):
    """The driver of programs with blocks. It draws before it counts, since ``next`` may stop and draws may repeat."""

    def __init__(self, graph: Graph, program: SamplingProgram, workspace: Workspace) -> None:
        """Copy the graph, and the program's arrays, to the device.

        Raises:
            InputError: a step has no draw, CUDA cannot be used, or the kernel or placement is unknown.
        """
        super().__init__(graph, program, workspace, [check_sample_size(program, step) for step in range(program.steps)])

    def name_of(self, b: int, step: int, place: int) -> str:  # noqa: D102
        return f"node {to_host(self.nodes[b])[place]} at step {step}"

    def _count(self, requests: tuple[Any, Any, Any], capacity: int, draw: tuple[int, int, Any], counts: Any) -> None:
        program, step, (num_draws, _, address) = self.program, len(self.schedule), draw
        self.drawn = self.matrix("drawn", capacity * num_draws, id_dtype(self.num_graph_edges))
        by_sample, by_transit = _block_kernels(type(program))
        rest = num_draws, bool(program.unique(step)), step, address, self.drawn, counts, self.sizes["wrong"]
        order = self._order(requests, capacity, draw)
        if order.grouped:
            self.launch.rows(kernels.clear_counts, capacity, *requests[1:], counts)
            lists = requests[0], order.members, order.counters
            self.launch.flat(by_transit, capacity * self.num_batches, self.parameters, *self.columns, *lists, *rest)
        else:
            self.launch.rows(by_sample, capacity, self.parameters, *self.columns, *requests, *rest)

    def _draw(self, requests: tuple[Any, Any, Any], capacity: int, draw: tuple[int, int, Any], output: tuple[Any, Any, Any]) -> Any:
        self.launch.rows(kernels.move_together, capacity, self.graph.indices, self.drawn, *requests[1:], draw[0], *output)


class CudaWalks(_Individual):
    """The driver of programs with walks. The nodes of a batch are those that its walks visit."""

    def __init__(self, graph: Graph, program: SamplingProgram, workspace: Workspace) -> None:
        """Copy the graph, and the program's arrays, to the device."""
        super().__init__(graph, program, workspace, [program.num_walks * (program.steps + 1)])

    def name_of(self, b: int, step: int, place: int) -> str:  # noqa: D102
        return f"the walk from node {self.seeds[b][place // self.program.num_walks]}"

    def sample_hop(self, hop: int) -> None:
        """Queue all walks as the only hop, which has no block."""
        program = self.program
        copies, width, count = program.num_walks, program.steps + 1, self.num_nodes[0]
        most_walks = self.known * copies
        walks = self.buffers.array("walks", (self.num_batches * most_walks, width), self.id_dtype)
        states = self.buffers.array("states", (self.num_batches * most_walks, max(1, program.state_size)), np.int64)
        kernel = _walk_kernel(type(program))
        self.launch.rows(
            kernel, most_walks, self.parameters, *self.columns, self.nodes, count, copies, self.addresses[0], most_walks,
            walks, states, self.sizes["wrong"],
        )  # fmt: skip
        most = most_walks * width
        self.local = self.matrix("local", most, self.id_dtype)
        end = self.num_edges[0]
        self.launch.rows(kernels.list_nodes, most, walks, most_walks, count, copies, self.local, end)
        self.frontier.relabel(self.local, most, (self.zeros, end), *self.num_nodes[:2])
        self.launch.rows(kernels.mark_ends, most, walks, most_walks, end, self.local)

    def batches(self) -> Bulk[MiniBatch]:
        """Return the mini-batches of the bulk, with their walks."""
        local, width = self.stream.result(self.local), self.program.steps + 1

        def with_walks(b: int, batch: MiniBatch) -> MiniBatch:
            rows = batch.num_seeds * self.program.num_walks
            return replace(batch, extra={"walks": local[b, : rows * width].reshape(rows, width)})

        return super().batches().map(with_walks)


def find_first_invalid(wrong: Array) -> tuple[int, int, int] | None:
    """Return (batch, step, position) of the first invalid draw of a bulk, from the output (K,) of ``kernels.note_wrong``; None if all are valid."""
    for b, packed in enumerate(wrong.tolist()):
        if packed != NEVER:
            return b, *divmod(packed, 1 << int(ROW_BITS))
    return None


def place_parameters(program: SamplingProgram, stream: DeviceStream) -> Any:
    """Return the ``self`` of ``next``, with its arrays in device memory."""
    values = program.parameters()
    return type(values)(*(to_device(v, "device", stream) if isinstance(v, np.ndarray) else v for v in values))


@cache
def _walk_kernel(kind: type[SamplingProgram]) -> Any:
    return kernels.walk_kernel(kind.next, kind.transit_of)


@cache
def _block_kernels(kind: type[SamplingProgram]) -> Any:
    return kernels.block_kernels(kind.next)
