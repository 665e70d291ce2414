"""Sampling programs: samplers in a few lines of Python, compiled for the CPU and for CUDA.

The interface is that of NextDoor (Jangda, Polisetty, Guha, Serafini, EuroSys'21). A program defines the number of steps, the number of edges that a
transit (a node whose neighbours are being sampled) draws in each, and which edge a draw takes. See docs/write_your_own_sampler.md.
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
    """A user-defined sampler. A subclass defines ``steps``, ``next`` and, if the defaults do not fit, the other functions.

    ``next`` and ``transit_of`` are compiled. They may use numbers, arrays, loops, and the functions ``randint``, ``bernoulli`` and ``has_edge``.
    Their ``self`` holds the instance's public attributes that are numbers or NumPy arrays, and is read-only.

    With ``output = "blocks"`` a mini-batch has a block for every step. Its transits are all nodes found so far, each of which draws
    ``sample_size(step)`` edges. With "walks" every seed is the root of ``num_walks`` walks, which visit one node in each step. The mini-batch has
    no blocks, its nodes are the visited nodes, and ``extra["walks"]`` (B * num_walks, steps + 1) holds the walks in local ids, -1 after an end.

    With ``sampling_type = "collective"`` (blocks only) the draws of a step are made once for the layer of all nodes found so far. ``next`` gets
    the distinct neighbours of the layer as ``transit.neighbors``, in order of first appearance, the number of edges of each into the layer
    as ``transit.weights``, and the layer as ``transit.earlier``. It returns the index of a neighbour. The block holds all edges from the
    drawn neighbours to the layer.

    Attributes:
        steps: number of steps, set by a subclass or an instance.
        output: "blocks" or "walks".
        sampling_type: "individual" for draws of each transit, or "collective" for draws of a layer.
        num_walks: number of walks from each seed.
        state_size: number of integers that a walk keeps in ``transit.state``.

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
        """Return the number of draws in a step, for each node or for the whole layer. Only for programs with blocks."""
        return 1

    @property
    def repeats_edges(self) -> bool:  # type: ignore[override]
        """True if a node may draw the same edge several times in a step."""
        return self.sampling_type == "individual" and not all(self.unique(step) for step in range(self.num_hops))

    def unique(self, step: int) -> bool:
        """Return whether repeated draws of an edge by one node in a step are dropped. Only for programs with blocks."""
        return False

    def transit_of(self, earlier: Any, step: int, random: Any) -> int:
        """Return the index in ``earlier`` of the node that the walk continues from, by default the last one. Compiled by Numba."""
        return step

    def next(self, transit: Any, step: int, random: Any) -> Any:
        """Return the index of the drawn edge, in [0, len(transit.neighbors)), or ``STOP``.

        The method is compiled. It is not called for a node without edges.

        Args:
            transit: a ``hoptrain.kernels.shared.program.Transit``, with fields node, neighbors, weights, first_edge, earlier and state.
            step: number of the step, from 0.
            random: source of random numbers, the first argument of ``randint`` and ``bernoulli``.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not implement next(), which draws an edge; define next(self, transit, step, random)"
        )

    def cpu_walks(self, graph: Graph) -> Callable[..., None] | None:
        """Return a loop over walks that is faster on the CPU than the compiled ``next`` and gives the same result, or None.

        The loop is called with (seed, epoch, batch) as ``uint64``, the bounds [first, last) of the walks, and the walks, whose first column is filled.
        """
        return None

    @property
    def num_hops(self) -> int:
        """Number of blocks: one for every step, none with walks."""
        return self.steps if self.output == "blocks" else 0

    def sample_on_cpu(self, graph: Graph, seeds: Array, address: Address, workspace: Workspace) -> MiniBatch:
        """Sample one mini-batch; see ``Sampler.sample_on_cpu``.

        Raises:
            InputError: a seed or an option is out of range, the program cannot be compiled, or ``next`` returns no edge of the transit node.
        """
        self.check_graph(graph)
        seeds = check_seeds(graph, seeds)
        make = sample_walks if self.output == "walks" else sample_blocks
        return make(self, graph, seeds, address, workspace)

    def walks(self, graph: Graph, seeds: Array, *, seed: int = 0, epoch: int = 0, batch: int = 0) -> Array:
        """Return the program's walks from ``seeds``, as global node ids.

        Args:
            graph: graph to sample; a step of a walk goes from a node to one of its in-neighbours.
            seeds: (B,) distinct node ids, from each of which ``num_walks`` walks start. A walk depends only on its seed and its number.
            seed: random seed, in [0, 2**64).
            epoch: number of the epoch, in [0, 2**20).
            batch: number of the batch within the epoch, in [0, 2**32).

        Returns:
            (B * num_walks, steps + 1) int32 or int64, ``num_walks`` rows for each seed; -1 after the end of a walk.

        Raises:
            InputError: the program returns blocks, a seed or an option is out of range, the program cannot be compiled, or ``next`` returns no
                edge of the transit node.
        """
        if self.output != "walks":
            raise InputError(f'{type(self).__name__} returns blocks: it has no walks; use sample, or set output = "walks"')
        check_address(seed, epoch, batch)
        self.check_graph(graph)
        seeds = check_seeds(graph, seeds, distinct=True, remedy=f"several walks from each: {type(self).__name__}(num_walks=...)")
        return walk(self, graph, seeds, Address(seed, epoch, batch), Workspace()).copy()

    def check_graph(self, graph: Graph) -> None:
        """Raise ``InputError`` if an attribute of the program is invalid, or the program needs sorted columns that the graph lacks.

        Raises:
            InputError: a number is out of range, ``output`` or ``sampling_type`` is unknown, attributes exclude each other, or ``has_edge`` is
                used with a graph whose columns are not sorted.
        """
        for name, least, most in (("steps", 1, MAX_STEPS), ("num_walks", 1, _MOST), ("state_size", 0, _MOST)):
            value = getattr(self, name)
            if not is_count(value) or not least <= value <= most:
                raise InputError(
                    f"{name} is {value!r} in {type(self).__name__}: it must be a whole number from {least} to {most}; set it to one"
                )
        for function in (self.next, self.transit_of):
            check_random(function, type(self).__name__)
        if self.output not in ("blocks", "walks"):
            raise InputError(f'output is {self.output!r} in {type(self).__name__}: a program returns "blocks" or "walks"; choose one')
        if self.sampling_type not in ("individual", "collective") or (self.sampling_type, self.output) == ("collective", "walks"):
            raise InputError(
                f'sampling_type is {self.sampling_type!r} with output {self.output!r} in {type(self).__name__}: it must be "individual", or '
                '"collective" for blocks; choose one'
            )
        if self.output == "blocks" and self.state_size:
            raise InputError(f'state_size is {self.state_size} in {type(self).__name__}: only a walk keeps a state; set output = "walks"')
        if "has_edge" in type(self).next.__code__.co_names and not graph.is_sorted:
            raise InputError("has_edge on a graph whose columns are not sorted: it uses binary search; build the graph by Graph.from_edges")

    def parameters(self) -> Any:
        """Return the ``self`` of ``next``: a named tuple of the public attributes that are numbers or arrays."""
        kinds = bool | int | float | np.generic | np.ndarray
        fields = {name: value for name, value in sorted(vars(self).items()) if not name.startswith("_") and isinstance(value, kinds)}
        return _tuple_type(type(self).__name__, tuple(fields))(**fields)


def check_random(function: Callable[..., Any], name: str) -> None:
    """Raise ``InputError`` if a function uses a random generator without addresses, so that batches could not be repeated.

    Raises:
        InputError: the function uses Python's ``random`` or ``numpy.random``.
    """
    code, known = function.__code__, function.__globals__
    # Compares identities: a script may have an array of that name, and == would compare its entries.
    values = [known.get(word) for word in code.co_names]
    named = set(map(id, values))
    are_imported = any(isinstance(getattr(value, "__self__", None), random.Random | np.random.RandomState) for value in values)
    if are_imported or named & {id(random), id(np.random)} or ("random" in code.co_names and id(np) in named):
        raise InputError(
            f"{name}.{function.__name__} uses a random generator of its own: batches could not be repeated; draw by randint(rng, n) or bernoulli(rng, p)"
        )


def compile_program(program: SamplingProgram, device: str = "cpu", graph: Graph | None = None) -> SamplingProgram:
    """Compile a program and return it, so that an error in it is raised here and the first batch does not wait for the compiler.

    Args:
        program: program to compile; the types of its attributes must not change afterwards.
        device: "cpu" or "cuda".
        graph: graph whose dtypes it is compiled for; by default a graph without weights and with fewer than 2**31 nodes and edges.

    Raises:
        InputError: the program cannot be compiled; the message names the function and the line.
    """
    if graph is None:
        graph = Graph.from_edges(np.array([0, 1]), np.array([1, 0]))
    program.sample(graph, np.zeros(1, np.int64), device=device)
    return program


@cache
def _tuple_type(name: str, fields: tuple[str, ...]) -> Any:
    return namedtuple(name, fields)
