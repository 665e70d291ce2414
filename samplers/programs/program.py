"""Sampling programs: samplers in a few lines of Python, compiled for the CPU and for CUDA.

The interface is NextDoor's (Jangda, Polisetty, Guha, Serafini, EuroSys'21): a program says how many steps there are, how many edges a transit
(a node whose neighbours are being sampled) draws in each, and which edge a draw takes. See docs/write_your_own_sampler.md.
"""

from __future__ import annotations

import random
from collections import namedtuple
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from hoptrain.engine import Address, Graph, InputError
from hoptrain.engine.arrays import Array
from hoptrain.kernels.shared.program import MAX_STEPS
from hoptrain.samplers.base import Sampler
from hoptrain.samplers.batch.minibatch import MiniBatch
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.checks import check_address, check_seeds
from hoptrain.samplers.programs.cpu import is_count, sample_blocks, sample_walks, walk

_MOST = (1 << 31) - 1


class SamplingProgram(Sampler):
    """A sampler given by its decisions. A subclass states ``steps``, ``next`` and, where the defaults do not fit, the other functions.

    ``next`` and ``transit_of`` are compiled: they may use numbers, arrays, loops, and the functions ``randint``, ``bernoulli`` and ``has_edge``.
    Their ``self`` holds the instance's public attributes that are numbers or NumPy arrays; nothing can be changed in it.

    With ``output = "blocks"`` a mini-batch has a block for every step: its transits are all nodes found so far, each draws
    ``sample_size(step)`` edges. With "walks" every seed is the root of ``num_walks`` walks of one node a step: the mini-batch has no block,
    its nodes are the nodes visited, and ``extra["walks"]`` (B * num_walks, steps + 1) holds the walks in local ids, -1 after an end.

    With ``sampling_type = "collective"`` (blocks only) the draws of a step are made once for the layer of all nodes found so far: ``next``
    sees the distinct neighbours of all of them as ``transit.neighbors``, in order of first appearance, how many edges each has into the layer
    as ``transit.weights``, and the layer as ``transit.earlier``; what it returns is the number of a neighbour. The block holds all edges
    from the neighbours that were drawn.

    Attributes:
        steps: number of steps; a subclass or instance states it.
        output: "blocks" or "walks".
        sampling_type: "individual", for each transit, or "collective", for a layer.
        num_walks: walks from each seed.
        state_size: integers that a walk keeps in ``transit.state``.

    Examples:
        >>> from hoptrain import SamplingProgram, load_dataset
        >>> from hoptrain.samplers import randint
        >>> class OneEach(SamplingProgram):  # in each of two steps every node draws one of its in-edges
        ...     steps = 2
        ...     def next(self, transit, step, rng):
        ...         return randint(rng, len(transit.neighbors))
        >>> OneEach().sample(load_dataset("digits-knn").graph, [7, 8], seed=1).node_ids
        array([   7,    8, 1135, 1123,  943,  533, 1141], dtype=int32)
    """

    steps: int
    output = "blocks"
    sampling_type = "individual"
    num_walks = 1
    state_size = 0

    def sample_size(self, step: int) -> int:
        """How many draws a transit makes at a step, or a layer; for blocks."""
        return 1

    @property
    def repeats_edges(self) -> bool:  # type: ignore[override]
        """Whether a transit's draws may repeat an edge."""
        return self.sampling_type == "individual" and not all(self.unique(step) for step in range(self.num_hops))

    def unique(self, step: int) -> bool:
        """Whether an edge that a transit draws again in a step is left out, for blocks."""
        return False

    def transit_of(self, earlier: Any, step: int, random: Any) -> int:
        """The place in ``earlier`` of the node that a walk extends: by default the last one. Compiled."""
        return step

    def next(self, transit: Any, step: int, random: Any) -> Any:
        """The number of the edge that a draw takes, in [0, len(transit.neighbors)), or ``STOP``. Compiled; not called for a node without edges.

        Args:
            transit: a ``hoptrain.kernels.shared.program.Transit``: node, neighbors, weights, first_edge, earlier, state.
            step: from 0.
            random: for ``randint`` and ``bernoulli``.
        """
        raise NotImplementedError(f"{type(self).__name__} states no next")

    def cpu_walks(self, graph: Graph) -> Callable[..., None] | None:
        """A loop over walks that is faster on the CPU than the one which is made of ``next``, and gives the same; None where there is none.

        It is called with (seed, epoch, batch) as ``uint64``, the first walk, the one behind the last, and the walks, whose first column is filled.
        """
        return None

    @property
    def num_hops(self) -> int:
        """A block for every step; none with walks."""
        return self.steps if self.output == "blocks" else 0

    def sample_on_cpu(self, graph: Graph, seeds: Array, address: Address, workspace: Workspace) -> MiniBatch:
        """Sample one mini-batch; see ``Sampler.sample_on_cpu``.

        Raises:
            InputError: besides, a program that cannot be compiled, or whose ``next`` returns no edge of its transit.
        """
        self.check_graph(graph)
        seeds = check_seeds(graph, seeds)
        make = sample_walks if self.output == "walks" else sample_blocks
        return make(self, graph, seeds, address, workspace)

    def walks(self, graph: Graph, seeds: Array, *, seed: int = 0, epoch: int = 0, batch: int = 0) -> Array:
        """Only the walks, in global ids.

        Args:
            graph: the graph; walks go from a node to one of its in-neighbours.
            seeds: (B,) distinct node ids; ``num_walks`` says how many walks begin at each: a walk is a function of its node and its number.
            seed: as of ``sample``.
            epoch: as of ``sample``.
            batch: as of ``sample``.

        Returns:
            (B * num_walks, steps + 1) int32 or int64, ``num_walks`` rows for each seed; -1 after a walk's end.

        Raises:
            InputError: as ``sample``, or a program with blocks.
        """
        if self.output != "walks":
            raise InputError(f'{type(self).__name__} makes blocks: it has no walks; use sample, or set output = "walks"')
        check_address(seed, epoch, batch)
        self.check_graph(graph)
        seeds = check_seeds(graph, seeds, distinct=True, remedy=f"several walks from each: {type(self).__name__}(num_walks=...)")
        return walk(self, graph, seeds, Address(seed, epoch, batch), Workspace()).copy()

    def check_graph(self, graph: Graph) -> None:
        """Refuse what the program states wrongly, or what the graph has not.

        Raises:
            InputError: a number out of range, an unknown word, or what excludes each other.
        """
        for name, least, most in (("steps", 1, MAX_STEPS), ("num_walks", 1, _MOST), ("state_size", 0, _MOST)):
            value = getattr(self, name)
            if not is_count(value) or not least <= value <= most:
                raise InputError(f"{name} is {value!r} in {type(self).__name__}: it is a whole number from {least} to {most}; correct it")
        for function in (self.next, self.transit_of):
            check_random(function, type(self).__name__)
        if self.output not in ("blocks", "walks"):
            raise InputError(f'output is {self.output!r} in {type(self).__name__}: a program makes "blocks" or "walks"; choose one')
        if self.sampling_type not in ("individual", "collective") or (self.sampling_type, self.output) == ("collective", "walks"):
            raise InputError(
                f'sampling_type is {self.sampling_type!r} with output {self.output!r} in {type(self).__name__}: it is "individual", or '
                '"collective" for blocks; choose one'
            )
        if self.output == "blocks" and self.state_size:
            raise InputError(f'state_size is {self.state_size} in {type(self).__name__}: only a walk keeps a state; set output = "walks"')
        if "has_edge" in type(self).next.__code__.co_names and not graph.is_sorted:
            raise InputError("has_edge with a graph whose columns are not sorted: it searches them; build the graph by Graph.from_edges")

    def parameters(self) -> Any:
        """What ``next`` sees as ``self``: the public attributes that are numbers or arrays, a named tuple."""
        kinds = bool | int | float | np.generic | np.ndarray
        fields = {name: value for name, value in sorted(vars(self).items()) if not name.startswith("_") and isinstance(value, kinds)}
        return _tuple_type(type(self).__name__, tuple(fields))(**fields)


def check_random(function: Callable[..., Any], name: str) -> None:
    """Refuse generators that compile, and have no address.

    Raises:
        InputError: the function uses NumPy's or Python's own.
    """
    code, known = function.__code__, function.__globals__
    named = {
        id(known.get(word)) for word in code.co_names
    }  # by what they are: an array that a script has under the name would compare by entries
    if named & {id(random), id(np.random)} or ("random" in code.co_names and id(np) in named):
        raise InputError(
            f"{name}.{function.__name__} draws from a generator of its own: batches could not be repeated; draw by randint(rng, n) or bernoulli(rng, p)"
        )


def compile_program(program: SamplingProgram, device: str = "cpu", graph: Graph | None = None) -> SamplingProgram:
    """The program, compiled, so that a mistake in it is met here and the first batch does not wait.

    Args:
        program: whose parameters keep their types from now on.
        device: "cpu" or "cuda".
        graph: what it is compiled for; by default a graph without weights of less than 2**31 nodes and edges.

    Raises:
        InputError: it cannot be compiled: the message names the function and the line.
    """
    if graph is None:
        graph = Graph.from_edges(np.array([0, 1]), np.array([1, 0]))
    program.sample(graph, np.zeros(1, np.int64), device=device)
    return program


@cache
def _tuple_type(name: str, fields: tuple[str, ...]) -> Any:
    return namedtuple(name, fields)
