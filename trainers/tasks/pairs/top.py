"""Recommendations: for each source the destinations that score highest, but for those that it is known to be linked with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hoptrain.engine import Graph, InputError
from hoptrain.engine.arrays import Array
from hoptrain.trainers.models.ranks import MOST_NUMBERS


@torch.no_grad()
def best_of_sources(
    decoder: Any, vectors: Tensor, links: Tensor, bounds: tuple[int, int], known: Graph, number: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """The best destinations of the sources of ``links``, in parts of bounded size, and the links of these.

    Destinations that are linked with a source in ``known`` come last, and what scores no number.

    Args:
        decoder: ``against`` gives scores of vectors and others.
        vectors: (V, C) of all vertices.
        links: (2, N) int64, sources above destinations.
        bounds: destinations are the D vertices [begin, end).
        known: a graph in both directions.
        number: K, at most D.

    Yields:
        (B, K) of [0, D), the best first; and (2, n), each link once: the number of its source in this part above its destination, less begin.
    """
    begin, end = bounds
    sources, rows = torch.unique(links[0], return_inverse=True)
    own = torch.unique(torch.stack([rows, links[1] - begin]), dim=1)
    most = max(1, MOST_NUMBERS // ((end - begin) * decoder.numbers_a_pair(vectors.shape[1])))
    for first in range(0, len(sources), most):
        part = sources[first : first + most]
        scores = decoder.against(vectors[part], vectors[begin:end], True).nan_to_num_(nan=-torch.inf)
        scores[_places_of(known, part, bounds)] = -torch.inf
        place = torch.searchsorted(own[0].contiguous(), torch.tensor([first, first + len(part)], device=own.device))
        mine = own[:, int(place[0]) : int(place[1])]
        yield scores.topk(number).indices, torch.stack([mine[0] - first, mine[1]])


def _places_of(known: Graph, nodes: Tensor, bounds: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Rows of ``nodes`` and columns, less begin, of what leads to them in ``known``."""
    own = nodes.cpu().numpy()
    begins, degrees = known.indptr[own].astype(np.int64), np.diff(known.indptr)[own].astype(np.int64)
    rows = np.repeat(np.arange(len(own)), degrees)
    columns = known.indices[np.arange(len(rows)) + np.repeat(begins - (np.cumsum(degrees) - degrees), degrees)]
    is_inside = (columns >= bounds[0]) & (columns < bounds[1])
    pairs = rows[is_inside], columns[is_inside].astype(np.int64) - bounds[0]
    return torch.from_numpy(pairs[0]).to(nodes.device), torch.from_numpy(pairs[1]).to(nodes.device)


def directed(graph: Graph, links: Mapping[str, Array], bounds: tuple[int, int]) -> dict[str, Array]:
    """Links (2, N) by name, turned round where their source is a destination and their destination none.

    Raises:
        InputError: an edge of the graph, or a link, joins two vertices that are destinations; or a link two that are none.
    """
    begin, end = bounds
    turned = {}
    pairs = {"the graph": np.stack([graph.indices.astype(np.int64), graph.destinations()]), **links}
    for name, own in pairs.items():
        is_item = (own >= begin) & (own < end)
        wrong = np.flatnonzero(is_item[0] & is_item[1] if name not in links else is_item[0] == is_item[1])
        if len(wrong):
            u, v = own[:, wrong[0]]
            what = "both are" if is_item[0, wrong[0]] else "neither is"
            raise InputError(
                f"vertices {u} and {v} are linked in {name} and destinations is ({begin}, {end}): {what} among them, a link leads from another "
                "vertex to one of them, as from a user to an item; correct destinations or leave the link out"
            )
        if name in links:
            turned[name] = np.where(is_item[0], own[::-1], own)
    return turned
