"""CUDA driver of collective sampling programs."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from hoptrain.engine import Graph
from hoptrain.engine.arrays import Array
from hoptrain.kernels.cuda.programs import program as kernels
from hoptrain.kernels.cuda.relabel import clear_table
from hoptrain.kernels.cuda.rows import fill_rows
from hoptrain.samplers.batch.minibatch import MiniBatch
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.cuda.bulk import Bulk
from hoptrain.samplers.cuda.device_sampler import NEVER
from hoptrain.samplers.cuda.layers import Layer, LayerSampler
from hoptrain.samplers.cuda.programs.program import find_first_invalid, place_parameters
from hoptrain.samplers.programs.cpu import check_sample_size, explain_compile_errors, no_edge
from hoptrain.samplers.programs.program import SamplingProgram


class CudaCollective(LayerSampler):
    """The driver of a program with ``sampling_type`` "collective"."""

    def __init__(self, graph: Graph, program: SamplingProgram, workspace: Workspace) -> None:
        """Copy the graph, and the program's arrays, to the device.

        Raises:
            InputError: a step has no draw, CUDA cannot be used, or the kernel or placement is unknown.
        """
        super().__init__(graph, [check_sample_size(program, step) for step in range(program.steps)], workspace)
        self.program, self.size_names = program, (*self.size_names, "wrong")
        self.parameters = place_parameters(program, self.stream)

    def begin(self, seeds: list[Array]) -> None:
        """Check the seeds, and reset the position of the first invalid draw."""
        super().begin(seeds)
        self.given["wrong"] = NEVER

    def queue(self) -> None:
        """Queue all steps; the first call compiles the program."""
        with explain_compile_errors(self.program):
            super().queue()

    def sample_hop(self, hop: int) -> Layer:
        """Queue the draws among the neighbours of the layer, and the search for the edges of the drawn ones."""
        launch, sizes = self.launch, self.sizes
        offsets = self.scan_in_edges(hop)
        candidates, sources = self.list_candidates(hop, offsets)
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
            sizes["wrong"],
        )  # fmt: skip
        table = self.table("draw_table", self.layer_sizes[hop], self.id_dtype)
        clear_table(launch, *table)
        launch.rows(kernels.enter_chosen, most, candidates, found, chosen, *table)
        return Layer(self.connect(hop, offsets, table, candidates), {})

    def batches(self) -> Bulk[MiniBatch]:
        """Return the mini-batches of the bulk.

        Raises:
            InputError: ``next`` returned an invalid index of a neighbour.
        """
        if (first := find_first_invalid(self.host_size("wrong"))) is not None:
            raise no_edge(self.program, "draw {2} at step {1}".format(*first))
        return super().batches()


@cache
def _draw_kernel(kind: type[SamplingProgram]) -> Any:
    return kernels.collective_kernel(kind.next)
