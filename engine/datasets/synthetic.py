"""``synthetic:*``: generated data sets with the sizes of well-known ones. They can be scaled, and are the same on every machine.

Degrees follow a power law with exponent 2.5. A class is a community: about a fraction ``inside`` of the edges connect two nodes of one class. Features are
the mean of the class plus strong noise, so that a node's own features contain little information about its class, and averages over neighbourhoods much
more. Both directions of an edge are stored. Duplicate edges may occur, self loops do not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numba
import numpy as np

from hoptrain.engine.arrays import Array, id_dtype, offset_dtype
from hoptrain.engine.dataset import Dataset
from hoptrain.engine.datasets.cache import check_room, open_cached
from hoptrain.engine.datasets.source import Counts, Source
from hoptrain.engine.errors import InputError
from hoptrain.engine.graph import Graph
from hoptrain.engine.store import FolderWriter
from hoptrain.kernels.cpu import synthetic as kernels
from hoptrain.kernels.cpu.csc import sort_columns
from hoptrain.kernels.cpu.shuffle import permutation

_VERSION = 1
_COUNTS_BYTES = 2 << 30
"""Maximum memory for the edge counts of all threads; with very many nodes fewer threads are used."""

_ROWS = 1 << 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """The parameters from which a synthetic data set is generated.

    Attributes:
        counts: numbers of nodes, edges, features and classes at scale 1.
        split: number of nodes of train, val and test at scale 1.
        offset: rank r is drawn with probability proportional to (r + offset) ** (-2/3); a larger offset lowers the largest degree.
        seed: seed of all random numbers.
        inside: fraction of the edges whose second node is moved into the first one's community.
        signal: standard deviation of the class means; that of the noise is 1.
        dtype: dtype of the features.
    """

    counts: Counts
    split: tuple[int, int, int]
    offset: int
    seed: int
    inside: float = 0.65
    signal: float = 0.13
    dtype: str = "float32"


RECIPES = {
    "reddit": Recipe(
        counts=Counts(232_965, 114_615_892, 602, 41), split=(153_431, 23_831, 55_703), offset=160, seed=1, inside=0.75, signal=0.05
    ),
    "products": Recipe(counts=Counts(2_449_029, 123_718_280, 100, 47), split=(196_615, 39_323, 2_213_091), offset=75, seed=2, inside=0.8),
    "arxiv": Recipe(counts=Counts(169_343, 2_332_486, 128, 40), split=(90_941, 29_799, 48_603), offset=1, seed=3),
    "papers100M": Recipe(
        counts=Counts(111_059_956, 1_615_685_872, 128, 172),
        split=(1_207_179, 125_265, 214_338),
        offset=100,
        seed=4,
        signal=0.15,
        dtype="float16",
    ),
    # Graphs of the paper "The Case for Sampling on Very Large Graphs". Nodes of PPI may have several of 121 labels; here each has one. The last three
    # have neither features nor classes, so these numbers and the splits are invented.
    "ppi": Recipe(counts=Counts(56_944, 1_637_432, 50, 121), split=(44_906, 6_514, 5_524), offset=106, seed=5, signal=0.2),
    "orkut": Recipe(counts=Counts(3_072_441, 234_370_166, 128, 32), split=(1_500_000, 500_000, 1_072_441), offset=66, seed=6),
    "patents": Recipe(counts=Counts(3_774_768, 33_037_896, 128, 32), split=(1_900_000, 600_000, 1_274_768), offset=930, seed=7),
    "livejournal": Recipe(counts=Counts(4_847_571, 68_993_772, 128, 32), split=(2_400_000, 800_000, 1_647_571), offset=18, seed=8),
}


def load_synthetic(name: str, root: Path | None, scale: float) -> Dataset:
    """Open a synthetic data set. The first call generates it and stores it in the cache.

    Raises:
        InputError: ``scale`` is outside (0, 1] or leaves fewer than two nodes per class.
    """
    recipe = RECIPES[name.removeprefix("synthetic:")]
    counts = scaled_counts(name, recipe, scale)
    key = f"{name.replace(':', '-')}-{scale!r}-{_VERSION}"
    return open_cached(Dataset, key, lambda writer: generate(writer, name, recipe, counts, scale))


def scaled_counts(name: str, recipe: Recipe, scale: float) -> Counts:
    """Return the sizes with V and E multiplied by ``scale``, E even; F and C are unchanged."""
    if not 0 < scale <= 1:
        raise InputError(f"scale is {scale}: it must be a share of {name} in (0, 1]; give for example 0.02")
    num_nodes = round(recipe.counts.num_nodes * scale)
    if num_nodes < 2 * recipe.counts.num_classes:
        raise InputError(
            f"scale is {scale}: that leaves {num_nodes} nodes for the {recipe.counts.num_classes} classes of {name}, "
            "which needs two of each; give a larger scale"
        )
    return recipe.counts._replace(num_nodes=num_nodes, num_edges=2 * round(recipe.counts.num_edges // 2 * scale))


def generate(writer: FolderWriter, name: str, recipe: Recipe, counts: Counts, scale: float) -> None:
    """Generate the data set array by array, directly into memory-mapped files."""
    row_bytes = 8 + 8 + counts.num_features * np.dtype(recipe.dtype).itemsize
    check_room(writer.folder, counts.num_nodes * row_bytes + counts.num_edges * id_dtype(counts.num_nodes).itemsize)
    factor, shift = affine_bijection(counts.num_nodes)
    graph = _write_graph(writer, recipe, counts, factor, shift)
    y = writer.create("y", np.int64, (counts.num_nodes,))
    kernels.fill_labels(counts.num_classes, factor, shift, y)
    x = writer.create("x", recipe.dtype, (counts.num_nodes, counts.num_features))
    _fill_features(recipe, y, x)
    splits = _splits(recipe, counts.num_nodes, scale)
    for split, ids in splits.items():
        writer.add(f"split_{split}", ids)
    meta = {
        "source": f"generated by hoptrain, version {_VERSION}: sizes of {name.removeprefix('synthetic:')}, no real data",
        "scale": scale,
        "split": "random, from hoptrain's permutation",
        "note": "undirected, both directions stored, no self loops; duplicate edges may occur",
        "inside": recipe.inside,
        "signal": recipe.signal,
    }
    data = Dataset(
        name=name, graph=graph, x=x, y=y, splits=splits, num_classes=counts.num_classes, meta=meta, validate=False
    )  # valid by construction, and validation would take long
    writer.meta.update(data.header())


def _write_graph(writer: FolderWriter, recipe: Recipe, counts: Counts, factor: int, shift: int) -> Graph:
    """Generate the edges twice: first to count them by column, then to store them."""
    num_nodes, num_edges = counts.num_nodes, counts.num_edges
    law = (np.uint64(recipe.seed), num_edges // 2, counts.num_classes, law_start(recipe.offset, num_nodes))
    inside = np.uint64(round(recipe.inside * (1 << 32)))
    parts = max(1, min(numba.get_num_threads(), _COUNTS_BYTES // (8 * num_nodes)))
    cursors = np.zeros((parts, num_nodes), np.int64)
    kernels.count_edges(*law, inside, factor, shift, cursors)
    indptr = writer.create("indptr", offset_dtype(num_edges), (num_nodes + 1,))
    kernels.counts_to_cursors(cursors, indptr)
    indices = writer.create("indices", id_dtype(num_nodes), (num_edges,))
    kernels.place_edges(*law, inside, factor, shift, cursors, indices)
    sort_columns(indptr, indices)
    return Graph(indptr, indices, is_sorted=True, validate=False)


def law_start(offset: int, num_nodes: int) -> float:
    """Return the start of the inverse distribution: the cube root of offset / V, rounded down to 2**-16 in integers, since results of libm versions differ."""
    low, high = 0, 1 << 16
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if middle**3 * num_nodes <= offset << 48 else (low, middle)
    return low / (1 << 16)


def affine_bijection(num_nodes: int) -> tuple[int, int]:
    """Return (factor, shift) of the bijection rank -> (factor * rank + shift) mod V. The factor, about 0.618 V, spreads adjacent ranks."""
    factor = max(1, num_nodes * 618_033_989 // 1_000_000_000)
    while math.gcd(factor, num_nodes) != 1:
        factor += 1
    return factor, num_nodes // 3


def _fill_features(recipe: Recipe, y: Array, x: Array) -> None:
    """Generate features in pieces of float32, which NumPy converts to the file's dtype, because Numba cannot write float16."""
    means = np.empty((recipe.counts.num_classes, x.shape[1]), np.float64)
    kernels.class_means(np.uint64(recipe.seed), means)
    for begin in range(0, len(x), _ROWS):
        piece = np.empty((min(_ROWS, len(x) - begin), x.shape[1]), np.float32)
        kernels.fill_features(np.uint64(recipe.seed), begin, y, means, recipe.signal, piece)
        x[begin : begin + len(piece)] = piece


def _splits(recipe: Recipe, num_nodes: int, scale: float) -> dict[str, Array]:
    sizes = [max(1, round(size * scale)) for size in recipe.split]
    sizes[2] = min(sizes[2], num_nodes - sizes[0] - sizes[1])  # three sizes rounded up may exceed V
    bounds = np.cumsum([0, *sizes])
    order = permutation(num_nodes, recipe.seed, 0)
    return {split: np.sort(order[begin:end]) for split, begin, end in zip(("train", "val", "test"), bounds[:-1], bounds[1:], strict=True)}


SOURCES = {
    f"synthetic:{name}": Source(
        about=f"generated, with the sizes of {name}", origin="generated", load=load_synthetic, counts=recipe.counts, is_scalable=True
    )
    for name, recipe in RECIPES.items()
}
