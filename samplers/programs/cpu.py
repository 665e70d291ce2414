"""Sampling programs on the CPU: buffers for the output of a program, and the loops that run it, compiled for its class."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from itertools import chain
from typing import Any, Protocol

import numpy as np

from hoptrain.engine import Address, Graph, InputError
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.kernels.cpu.columns import total_degree
from hoptrain.kernels.cpu.programs import program as kernels
from hoptrain.kernels.cpu.relabel import relabel
from hoptrain.samplers.batch.minibatch import Block, MiniBatch, batch_from_hops
from hoptrain.samplers.buffers.frontier import Frontier
from hoptrain.samplers.buffers.workspace import Workspace


class SamplingProgram(Protocol):
    """The interface of ``hoptrain.samplers.programs.program.Program`` that the loops of this module use; importing the class would be circular."""

    steps: int
    sampling_type: str
    num_walks: int
    state_size: int

    def sample_size(self, step: int) -> int: ...  # noqa: D102
    def unique(self, step: int) -> bool: ...  # noqa: D102
    def transit_of(self, earlier: Any, step: int, rng: Any) -> int: ...  # noqa: D102
    def next(self, transit: Any, step: int, rng: Any) -> Any: ...  # noqa: D102
    def cpu_walks(self, graph: Graph) -> Callable[..., None] | None: ...  # noqa: D102
    def parameters(self) -> Any: ...  # noqa: D102


def walk(program: SamplingProgram, graph: Graph, seeds: Array, address: Address, workspace: Workspace) -> Array:
    """Return walks from ``seeds``, (B * num_walks, steps + 1) global ids, -1 after an end. The threads of the workspace divide the walks."""
    num_walks, width = len(seeds) * program.num_walks, program.steps + 1
    walks = workspace.array("walks", num_walks * width, graph.indices.dtype).reshape(num_walks, width)
    walks[:, 0] = np.repeat(seeds, program.num_walks)
    width_of_state = max(1, program.state_size)  # at least 1, since a device has no empty arrays
    states = workspace.array("states", num_walks * width_of_state, np.int64).reshape(num_walks, width_of_state)
    states[:] = 0
    words, own = tuple(map(np.uint64, address)), program.cpu_walks(graph)
    wrong = [-1] * workspace.threads
    bounds = [num_walks * i // workspace.threads for i in range(workspace.threads + 1)]

    def walk_some(thread: int) -> None:
        first, last = bounds[thread : thread + 2]
        if own is not None:
            own(words, first, last, walks)
        else:
            kernel, arguments = _walk_kernel(type(program)), (program.parameters(), _columns(graph), program.num_walks)
            wrong[thread] = _run(program, kernel, *arguments, words, first, last, walks, states)

    workspace.run([partial(walk_some, thread) for thread in range(workspace.threads)])
    for w in wrong:
        if w >= 0:
            raise no_edge(program, f"the walk from node {walks[w, 0]}")
    return walks


def sample_walks(program: SamplingProgram, graph: Graph, seeds: Array, address: Address, workspace: Workspace) -> MiniBatch:
    """Return the mini-batch of a program with walks: the nodes that they visit, and the walks in local ids."""
    return batch_of_walks(walk(program, graph, seeds, address, workspace), graph, seeds, workspace)


def batch_of_walks(walks: Array, graph: Graph, seeds: Array, workspace: Workspace) -> MiniBatch:
    """Return the mini-batch of walks (W, steps + 1), which are given in global ids."""
    frontier = Frontier.of_seeds(graph, seeds, workspace)
    local = workspace.array("local", walks.size, graph.indices.dtype).reshape(walks.shape)
    local[...] = walks
    flat = local.reshape(-1)
    ended = flat < 0
    flat[ended] = seeds[0]  # a placeholder for ended walks: the seed is a node of the batch, so relabelling adds no node
    frontier.relabel(flat)
    flat[ended] = -1
    return MiniBatch(node_ids=frontier.nodes(), blocks=(), num_seeds=len(seeds), extra={"walks": local})


def sample_blocks(program: SamplingProgram, graph: Graph, seeds: Array, address: Address, workspace: Workspace) -> MiniBatch:
    """Return the mini-batch of a program with blocks, one for every step."""
    frontier = Frontier.of_seeds(graph, seeds, workspace)
    words = tuple(map(np.uint64, address))
    draw = _draw_layer if program.sampling_type == "collective" else _draw_edges
    blocks: list[Block] = []
    for step in range(program.steps):
        indptr, edge_ids, indices = draw(program, graph, frontier.nodes(), step, words, workspace)
        frontier.relabel(indices)
        blocks.append(Block(indptr=indptr, indices=indices, edge_ids=edge_ids, num_src=frontier.num_nodes))
    return batch_from_hops(frontier.nodes(), blocks, len(seeds))


def _edges(graph: Graph, num_dst: int, most: int, step: int, workspace: Workspace) -> tuple[Array, Array, Array]:
    """Return arrays of the workspace for a block: indptr, edge ids, and global ids of neighbours."""
    indptr = workspace.array(f"indptr{step}", num_dst + 1, id_dtype(most + 1))
    indptr[0] = 0
    edge_ids = workspace.array(f"edge_ids{step}", most, id_dtype(graph.num_edges))
    return indptr, edge_ids, workspace.array(f"indices{step}", most, graph.indices.dtype)


def check_sample_size(program: SamplingProgram, step: int) -> int:
    """Return the ``sample_size`` of a step, checked to be an integer of at least 1."""
    num_draws = program.sample_size(step)
    if not is_count(num_draws) or num_draws < 1:
        raise InputError(
            f"sample_size({step}) is {num_draws!r} in {type(program).__name__}: it must be a whole number, at least one draw; return 1 or more"
        )
    return num_draws


def is_count(value: object) -> bool:
    """Return whether a value is an integer of Python or NumPy."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _draw_edges(
    program: SamplingProgram, graph: Graph, nodes: Array, step: int, address: tuple[Any, ...], workspace: Workspace
) -> tuple[Array, Array, Array]:
    """Draw the edges of each transit (node whose neighbours are drawn) separately; return indptr, edge ids and global ids of neighbours."""
    num_draws, last = check_sample_size(program, step), len(nodes)
    edges = _edges(graph, last, last * num_draws, step, workspace)
    unique = bool(program.unique(step))
    kernel = _block_kernel(type(program))
    total = _run(program, kernel, program.parameters(), _columns(graph), nodes, 0, last, num_draws, unique, step, address, *edges, 0)
    if total < 0:
        raise no_edge(program, f"node {nodes[-1 - total]} at step {step}")
    return edges[0], edges[1][:total], edges[2][:total]


def _draw_layer(
    program: SamplingProgram, graph: Graph, nodes: Array, step: int, address: tuple[Any, ...], workspace: Workspace
) -> tuple[Array, Array, Array]:
    """Draw neighbours of all nodes of a layer together; return indptr, edge ids and global ids of neighbours."""
    last = len(nodes)
    most = total_degree(graph.indptr, nodes, last)
    indptr, edge_ids, neighbors = _edges(graph, last, most, step, workspace)
    kernels.all_edges(graph.indptr, graph.indices, nodes, last, indptr, edge_ids, neighbors)
    table = workspace.part(0).table
    candidates = workspace.array("candidates", most + 1, graph.indices.dtype)
    places = workspace.array("places", most, graph.indices.dtype)
    places[:] = neighbors
    table.start(graph.num_nodes, most)
    candidates = candidates[: relabel(places, 0, most, table.view(), candidates, 0)]
    counts = np.bincount(places, minlength=len(candidates)).astype(np.float32)
    chosen = np.zeros(len(candidates), np.bool_)
    kernel = _collective_kernel(type(program))
    num_draws = check_sample_size(program, step)
    wrong = _run(program, kernel, program.parameters(), _columns(graph), candidates, counts, nodes, num_draws, step, address, chosen)
    if wrong >= 0:
        raise no_edge(program, f"draw {wrong} at step {step}")
    kept = kernels.keep_chosen(indptr, places, chosen, edge_ids, neighbors)
    return indptr, edge_ids[:kept], neighbors[:kept]


_NO_WEIGHTS = np.zeros(0, np.float32)
_NO_WEIGHTS.flags.writeable = False  # read-only like a graph's weights, so that Numba compiles kernels for one array type only


def _columns(graph: Graph) -> tuple[Array, Array, Array]:
    return graph.indptr, graph.indices, _NO_WEIGHTS if graph.weights is None else graph.weights


@cache
def _walk_kernel(kind: type[SamplingProgram]) -> Any:
    return kernels.walk_kernel(kind.next, kind.transit_of)


@cache
def _collective_kernel(kind: type[SamplingProgram]) -> Any:
    return kernels.collective_kernel(kind.next)


@cache
def _block_kernel(kind: type[SamplingProgram]) -> Any:
    return kernels.block_kernel(kind.next)


def _run(program: SamplingProgram, kernel: Callable[..., Any], *args: Any) -> int:
    """Call a kernel, which is compiled on its first call."""
    with explain_compile_errors(program):
        return int(kernel(*args))


@contextmanager
def explain_compile_errors(program: SamplingProgram) -> Iterator[None]:
    """Turn an error of Numba in the block into an ``InputError`` that explains it.

    Raises:
        InputError: the program cannot be compiled.
    """
    from numba.core.errors import NumbaError

    try:
        yield
    except NumbaError as error:
        raise InputError(explain(program, str(error))) from error


_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""Pattern of the colour codes that Numba adds to its messages if colorama is installed."""
_OWN_ERROR = "TypingError: "
"""Prefix of hoptrain's own errors (``hoptrain.kernels.shared.program``) within Numba's message about overloads that did not match."""


def explain(program: SamplingProgram, message: str) -> str:
    """Return Numba's message as one line with the user's function, its line and the cause."""
    message = _COLOURS.sub("", message)
    code = {name: getattr(type(program), name).__code__ for name in ("next", "transit_of")}
    file = code["next"].co_filename
    lines = [int(line) for place, line in re.findall(r'File "([^"]*)", line (\d+)', message) if file.endswith(place.lstrip("./"))]
    line = lines[-1] if lines else code["next"].co_firstlineno
    name = max((name for name in code if code[name].co_firstlineno <= line), key=lambda name: code[name].co_firstlineno, default="next")
    causes = [text.strip() for text in message.splitlines() if text.strip()]
    own = (text.removeprefix(_OWN_ERROR) for text in causes if text.startswith(_OWN_ERROR))
    theirs = (text for text in causes if not text.startswith(("Failed in", "During:", "File", "-", "Traceback")))
    cause = next(chain(own, theirs), causes[0])
    return f"{type(program).__name__}.{name}, {file}:{line}, cannot be compiled: {cause}; {_remedy(cause)}"


def _remedy(cause: str) -> str:
    if re.match(r"Unknown attribute '\w+' of type Transit\b", cause):
        return "a transit has node, neighbors (as many as its in-degree), weights, first_edge, earlier and state; use these"
    if function := re.search(r"'(\w+)'.*<class 'function'>", cause):
        return f"decorate {function[1]} with numba.njit"
    return "use numbers, arrays and the functions of a program"


def no_edge(program: SamplingProgram, where: str) -> InputError:
    """Return the error for a program whose ``next`` returned an edge that its transit node does not have."""
    return InputError(
        f"{type(program).__name__}.next returned no edge of the transit node for {where}: it must return a number from 0 to "
        "len(transit.neighbors) - 1, or STOP; transit_of must return an index of earlier"
    )
