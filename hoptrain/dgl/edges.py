"""DGL's sampler of edges, around one of hoptrain's."""

from __future__ import annotations

from typing import Any

from hoptrain.dgl import negative_sampler as negatives
from hoptrain.dgl.blocks import BlockSampler
from hoptrain.dgl.outputs import dgl
from hoptrain.dgl.subgraphs import ShaDowKHopSampler
from hoptrain.engine import InputError

_GlobalOfDGL = dgl.dataloading.negative_sampler.GlobalUniform


def as_edge_prediction_sampler(
    sampler: Any,
    exclude: Any = None,
    reverse_eids: Any = None,
    reverse_etypes: Any = None,
    negative_sampler: Any = None,
    prefetch_labels: Any = None,
) -> Any:
    """DGL's, by name, arguments and results; see ``dgl.dataloading.as_edge_prediction_sampler``.

    Pairs, negatives and what is excluded are made by DGL's code; around their nodes samples ``sampler``, one of hoptrain's. As in DGL, edges
    are excluded after they were drawn: a node that had drawn one has one fewer.

    Raises:
        InputError: a sampler of DGL's, or a way of excluding that lacks its edges.
    """
    if not isinstance(sampler, BlockSampler | ShaDowKHopSampler):
        raise InputError(
            f"sampler is a {type(sampler).__name__}: around edges sample hoptrain.dgl's NeighborSampler, LaborSampler, ShaDowKHopSampler"
        )
    if not callable(exclude) and (reverse_etypes is None) != (exclude != "reverse_types"):
        raise InputError(
            f"exclude is {exclude!r} and reverse_etypes {reverse_etypes!r}: 'reverse_types' goes with the reverse of each edge type; give both"
        )
    if exclude == "reverse_id" and reverse_eids is None:
        raise InputError("exclude is 'reverse_id' without reverse_eids: give the id of each edge's reverse edge")
    if isinstance(exclude, str) and exclude not in ("self", "reverse_id", "reverse_types"):
        raise InputError(f"exclude is {exclude!r}: edges are excluded by 'self', 'reverse_id', 'reverse_types' or a function; choose one")
    if isinstance(negative_sampler, _GlobalOfDGL) and not isinstance(negative_sampler, negatives.GlobalUniform):
        raise InputError(
            "negative_sampler is DGL's GlobalUniform, whose draws do not repeat: take hoptrain.dgl.negative_sampler.GlobalUniform"
        )
    return dgl.dataloading.as_edge_prediction_sampler(sampler, exclude, reverse_eids, reverse_etypes, negative_sampler, prefetch_labels)
