"""DGL's ``as_edge_prediction_sampler`` for the samplers of ``hoptrain.dgl``."""

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
    """Return a sampler of edges; a drop-in replacement for ``dgl.dataloading.as_edge_prediction_sampler``.

    DGL's code determines the pairs, the negatives and the excluded edges. ``sampler``, which must be from ``hoptrain.dgl``, samples around the nodes of the
    pairs. As in DGL, edges are excluded after sampling, so a node may have fewer sampled edges than its fanout.

    Raises:
        InputError: ``sampler`` is not one of ``hoptrain.dgl``, ``exclude`` is unknown or lacks its reverse edges, or ``negative_sampler`` is
            DGL's ``GlobalUniform``.
    """
    if not isinstance(sampler, BlockSampler | ShaDowKHopSampler):
        raise InputError(
            f"sampler is a {type(sampler).__name__}: edges need a sampler of hoptrain; give hoptrain.dgl's NeighborSampler, LaborSampler or "
            "ShaDowKHopSampler"
        )
    if not callable(exclude) and (reverse_etypes is None) != (exclude != "reverse_types"):
        raise InputError(
            f"exclude is {exclude!r} and reverse_etypes {reverse_etypes!r}: exclude='reverse_types' needs the reverse of each edge type; give both"
        )
    if exclude == "reverse_id" and reverse_eids is None:
        raise InputError(
            "exclude is 'reverse_id' without reverse_eids: the reverse edges must be known; give the id of each edge's reverse edge"
        )
    if isinstance(exclude, str) and exclude not in ("self", "reverse_id", "reverse_types"):
        raise InputError(f"exclude is {exclude!r}: must be 'self', 'reverse_id', 'reverse_types' or a function; choose one")
    if isinstance(negative_sampler, _GlobalOfDGL) and not isinstance(negative_sampler, negatives.GlobalUniform):
        raise InputError(
            "negative_sampler is DGL's GlobalUniform: its draws are not repeatable; give hoptrain.dgl.negative_sampler.GlobalUniform"
        )
    return dgl.dataloading.as_edge_prediction_sampler(sampler, exclude, reverse_eids, reverse_etypes, negative_sampler, prefetch_labels)
