"""Random walks as sampling programs. A step goes from a node to one of its in-neighbours; in an undirected graph these are its neighbours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from hoptrain.engine import Graph, InputError
from hoptrain.engine.arrays import Array
from hoptrain.kernels.cpu.programs import walk as kernels
from hoptrain.kernels.shared.program import STOP, bernoulli, has_edge, randint
from hoptrain.samplers.programs.program import SamplingProgram


class _Walk(SamplingProgram):
    output = "walks"

    def __init__(self, length: int, num_walks: int) -> None:
        if length < 1 or num_walks < 1:
            raise InputError(f"length is {length} and num_walks {num_walks}: both must be at least 1; give 1 or more")
        self.steps = length
        self.num_walks = num_walks

    @property
    def length(self) -> int:
        """Number of steps of a walk."""
        return self.steps


class RandomWalk(_Walk):
    """A sampler of uniform random walks as in DeepWalk (Perozzi, Al-Rfou, Skiena 2014), or of random walks with restart.

    A step takes each in-edge of the current node with the same probability. With probability ``restart`` the step starts at the root instead. The
    long-run distribution of the visits is then sum over k >= 0 of restart (1 - restart)**k P**(k+1) e_root, with P the transition matrix, which
    is a personalised PageRank.

    Examples:
        >>> from hoptrain import RandomWalk, load_dataset
        >>> RandomWalk(length=4, num_walks=2).walks(load_dataset("digits-knn").graph, [7, 8], seed=1)
        array([[   7, 1135,  533, 1674,  862],
               [   7, 1135, 1674, 1201, 1238],
               [   8, 1123, 1103, 1149,  828],
               [   8, 1705,  183,  249,  242]], dtype=int32)
    """

    def __init__(self, length: int = 80, num_walks: int = 1, restart: float = 0.0) -> None:
        """Check and keep the options.

        Args:
            length: number of steps of a walk.
            num_walks: number of walks from each seed.
            restart: probability in [0, 1) that a step starts at the root.

        Raises:
            InputError: an option is out of range.
        """
        super().__init__(length, num_walks)
        if not 0 <= restart < 1:
            raise InputError(f"restart is {restart}: it must be a probability, from 0 to below 1; give for instance 0.15")
        self.restart: float = float(restart)

    def cpu_walks(self, graph: Graph) -> Callable[..., None] | None:
        """Return the loop of ``hoptrain.kernels.cpu.programs.walk``, or None for a subclass, which may override ``next``."""
        if type(self) is not RandomWalk:
            return None
        return partial(kernels.uniform_walks, graph.indptr, graph.indices, self.num_walks, self.restart_code)

    @property
    def restart_code(self) -> np.uint64:
        """``restart`` in units of 2**-32, as the kernels take it."""
        return np.uint64(self.restart * 2**32)

    def transit_of(self, earlier: Any, step: int, rng: Any) -> int:
        """Return the index of the last node or, with probability ``restart``, of the root."""
        return 0 if bernoulli(rng, self.restart) else step

    def next(self, transit: Any, step: int, rng: Any) -> Any:
        """Return the index of a uniformly drawn edge."""
        return randint(rng, len(transit.neighbors))


class Node2Vec(_Walk):
    """A sampler of the second-order random walks of node2vec (Grover & Leskovec 2016).

    From v, reached from t, the walk goes to a neighbour x with a probability proportional to 1/p if x = t, 1 if x is a neighbour of t, and
    1/q otherwise. It uses rejection sampling (Yang et al., KnightKing, SOSP'19), which has exactly this distribution. The columns of the graph must
    be sorted.

    Examples:
        >>> from hoptrain import Node2Vec, load_dataset
        >>> Node2Vec(length=6, q=0.25).walks(load_dataset("digits-knn").graph, [7, 8], seed=1)  # a small q leads away
        array([[   7, 1135, 1145, 1056, 1139,  803,  597],
               [   8, 1123, 1047, 1383, 1280, 1325, 1150]], dtype=int32)
    """

    def __init__(self, length: int = 80, num_walks: int = 1, p: float = 1.0, q: float = 1.0) -> None:
        """Check and keep the options.

        Args:
            length: number of steps of a walk.
            num_walks: number of walks from each seed.
            p: return parameter; a large value makes steps back to the previous node rare.
            q: in-out parameter; a large value keeps the walk near the previous node.

        Raises:
            InputError: an option is out of range.
        """
        super().__init__(length, num_walks)
        if not (0 < p < float("inf") and 0 < q < float("inf")):
            raise InputError(f"p is {p} and q is {q}: node2vec divides by them, so both must be positive and finite; give for instance 1.0")
        top = max(1.0, 1 / p, 1 / q)
        self.back: float = 1 / p / top
        self.near: float = 1 / top
        self.out: float = 1 / q / top

    @property
    def p(self) -> float:
        """The return parameter p of node2vec."""
        return self.near / self.back

    @property
    def q(self) -> float:
        """The in-out parameter q of node2vec."""
        return self.near / self.out

    def cpu_walks(self, graph: Graph) -> Callable[..., None] | None:
        """Return the loop of ``hoptrain.kernels.cpu.programs.walk``, or None for a subclass, which may override ``next``."""
        if type(self) is not Node2Vec:
            return None
        biases = tuple(np.uint64(bias * 2**32) for bias in (self.back, self.near, self.out))
        return partial(kernels.second_order_walks, graph.indptr, graph.indices, self.num_walks, biases)

    def next(self, transit: Any, step: int, rng: Any) -> Any:
        """Return the index of an edge, by uniform proposals until one is accepted."""
        degree = len(transit.neighbors)
        if step == 0:
            return randint(rng, degree)
        before = transit.earlier[step - 1]
        trial = 0
        while True:
            i = randint(rng, degree, 2 * trial)
            vertex = transit.neighbors[i]
            if vertex == before:
                bias = self.back
            elif self.near == self.out:
                bias = self.near
            else:
                bias = self.near if has_edge(transit, vertex, before) else self.out
            if bernoulli(rng, bias, 2 * trial + 1):
                return i
            trial += 1


class MetapathWalk(_Walk):
    """A sampler of random walks along a metapath (Dong, Chawla, Swami 2017, metapath2vec): each step follows an edge of the metapath's next relation.

    A step is uniform over the current node's in-edges of that relation; a walk ends if there are none. A metapath shorter than ``length`` is
    repeated.

    Examples:
        >>> import numpy as np
        >>> from hoptrain import Graph, MetapathWalk
        >>> graph = Graph.from_edges([2, 0, 1, 3], [0, 2, 3, 1])  # users 0 and 1, items 2 and 3
        >>> kinds = np.array([0, 1, 1, 0])[graph.ids_of(np.arange(4))]  # by CSC position: 0 leads to a user, 1 to an item
        >>> MetapathWalk(kinds, metapath=[0, 1], length=4).walks(graph, [0, 1], seed=1)  # against the edges: user, item, user, ...
        array([[0, 2, 0, 2, 0],
               [1, 3, 1, 3, 1]], dtype=int32)
    """

    def __init__(self, edge_types: Array, metapath: Sequence[int], length: int | None = None, num_walks: int = 1) -> None:
        """Check and keep the options.

        Args:
            edge_types: (E,) integers, the relation of each edge by its CSC position in ``graph.indices``. For types by edge id
                use ``types[graph.ids_of(np.arange(graph.num_edges))]``.
            metapath: relations, one for each step.
            length: number of steps of a walk; by default the length of the metapath.
            num_walks: number of walks from each seed.

        Raises:
            InputError: the metapath is empty, or has a relation that no edge has.
        """
        super().__init__(len(metapath) if length is None else length, num_walks)
        self.edge_types: Array = np.ascontiguousarray(edge_types, np.int32)
        self.metapath: Array = np.asarray(metapath, np.int32)
        known = np.unique(self.edge_types)
        for relation in metapath:
            if relation not in known:
                raise InputError(
                    f"relation {relation} in the metapath {list(metapath)}: the edges have the relations {known.tolist()}; choose among them"
                )

    def check_graph(self, graph: Graph) -> None:
        """Raise ``InputError`` as ``Program.check_graph`` does, or if ``edge_types`` does not have one entry for each edge of the graph."""
        super().check_graph(graph)
        if len(self.edge_types) != graph.num_edges:
            raise InputError(f"edge_types has {len(self.edge_types):,} entries for {graph.num_edges:,} edges: give one for each edge")

    def next(self, transit: Any, step: int, rng: Any) -> Any:
        """Return the index of a uniformly drawn edge of the step's relation, or ``STOP`` if there is none."""
        relation = self.metapath[step % len(self.metapath)]
        fitting = 0
        for i in range(len(transit.neighbors)):
            fitting += self.edge_types[transit.first_edge + i] == relation
        if fitting == 0:
            return STOP
        chosen = randint(rng, fitting)
        for i in range(len(transit.neighbors)):
            if self.edge_types[transit.first_edge + i] == relation:
                if chosen == 0:
                    return i
                chosen -= 1
        return STOP
