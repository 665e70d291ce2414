"""Collective programs on a CUDA device: a bulk of mini-batches at once, to the bit those of the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from hoptrain.engine import Graph, InputError
from hoptrain.engine.arrays import Array
from hoptrain.kernels.cuda.group import clear
from hoptrain.kernels.cuda.programs import program as kernels
from hoptrain.kernels.cuda.rows import fill_rows
from hoptrain.samplers.batch.minibatch import MiniBatch
from hoptrain.samplers.cuda.layers import HopEdges, LayerWork
from hoptrain.samplers.cuda.programs.program import place_parameters
from hoptrain.samplers.programs.cpu import checked_size, explain, no_edge
from hoptrain.samplers.programs.program import Program
from hoptrain.samplers.scratch.workspace import Workspace


class CudaCollective(LayerWork):
    """Runs one program on one graph."""

    def __init__(self, graph: Graph, program: Program, workspace: Workspace) -> None:
        """Copy the graph, and the program's arrays, to where the device reads them.

        Raises:
            InputError: CUDA cannot be used, an unknown placement, or a step without a draw.
        """
        super().__init__(graph, [checked_size(program, step) for step in range(program.steps)], workspace)
        self.program = program
        self.parameters = place_parameters(program, self.stream)

    def start(self, units: Sequence[Array], *, seed: int, epoch: int, first_batch: int) -> Callable[[], list[MiniBatch]]:
        """Queue a bulk; see ``Sampler.start_bulk``.

        Raises:
            InputError: besides, the program cannot be compiled.
        """
        from numba.core.errors import NumbaError

        try:
            return super().start(units, seed=seed, epoch=epoch, first_batch=first_batch)
        except NumbaError as error:
            raise InputError(explain(self.program, str(error))) from error

    def queue(self) -> None:
        """Hop after hop, and whether all was well in each."""
        self.wrong = self.buffers.array("wrong", (self.num_hops, 2), np.int64)
        self.launch.flat(clear, 2 * self.num_hops, self.wrong.reshape(2 * self.num_hops))
        super().queue()
        self.wrong.copy_to_host(self.buffers.pinned("wrong", self.wrong), stream=self.stream.numba)

    def sample_hop(self, hop: int) -> HopEdges:
        """Draw among the neighbours of the layer, and find the edges of those drawn."""
        launch, sizes = self.launch, self.sizes
        offsets = self.scan_in_edges(hop)
        candidates, sources, table = self.list_candidates(hop, offsets)
        most, found = candidates.shape[1], sizes[f"candidates{hop}"]
        counts, chosen = self.matrix("candidate_counts", most, np.int32), self.matrix("chosen", most, np.int32)
        weights = self.matrix("candidate_weights", most, np.float32)
        for array in (counts, chosen):
            launch.rows(fill_rows, most, array, 0)
        launch.rows(kernels.count_entries, sources.shape[1], sources, sizes[f"listed{hop}"], counts)
        launch.rows(kernels.as_weights, most, counts, found, weights)
        launch.rows(
            _draw_kernel(type(self.program)), self.layer_sizes[hop], self.parameters, self.graph.indptr, self.graph.indices,
            candidates, weights, found, self.nodes, sizes[f"nodes{hop}"], self.layer_sizes[hop], hop, self.addresses[hop], chosen,
            self.wrong[hop],
        )  # fmt: skip
        launch.rows(kernels.drop_others, most, candidates, found, chosen, *table)
        return self.connect(hop, offsets, table, candidates)

    def batches(self, address: list[dict[str, Any]]) -> list[MiniBatch]:
        """The mini-batches.

        Raises:
            InputError: ``next`` returned no neighbour somewhere.
        """
        for step, (is_wrong, draw) in enumerate(self.buffers.pinned("wrong", self.wrong)):
            if is_wrong:
                raise no_edge(self.program, f"draw {draw} at step {step}")
        return super().batches(address)


@cache
def _draw_kernel(kind: type[Program]) -> Any:
    return kernels.collective_kernel(kind.next)
