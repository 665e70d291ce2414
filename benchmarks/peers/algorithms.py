"""The peers of ``hoptrain bench algorithms``, each driven as its documentation advises.

DGL
    Its samplers' ``sample`` on graphs that hold the one format which the algorithm needs, with int32 ids, which hoptrain has too (and int64
    for its fused neighbour sampler, which is wrong with int32). Walks are its functions of ``dgl.sampling``. Threads are OpenMP threads; in the
    variant "pooled" each takes whole mini-batches, since much of DGL is serial.
PyG
    Its loaders' collation of one mini-batch, without the loader's processes, over the operators of torch-sparse; int64 ids. The operators are
    serial, so threads take whole mini-batches.
papers
    FastGCN and LADIES are in neither library. Their place takes what the authors of LADIES published for both (a matrix in scipy, draws by
    ``numpy.random.choice``, blocks as torch's sparse tensors), written down again.

All return new tensors: the edges with local ids, the global ids of their ends, and ids of the edges where the library gives these. Features
are not fetched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hoptrain.benchmarks.cases.algorithms import Open
from hoptrain.benchmarks.peers.dgl import open_dgl
from hoptrain.benchmarks.peers.papers import open_papers
from hoptrain.benchmarks.peers.pyg import open_pyg
from hoptrain.engine import Graph

PEERS: Mapping[str, Callable[[Graph], Open]] = {"dgl": open_dgl, "pyg": open_pyg, "papers": open_papers}
