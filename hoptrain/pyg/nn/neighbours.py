"""The neighbours of a sampled batch's nodes, as a layer sees them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.aggr import MeanAggregation, SumAggregation

from hoptrain.engine.machine import keep_freed_memory
from hoptrain.pyg.nn.lazy import LazyRows, all_of, computed_of, first_rows
from hoptrain.samplers import Block
from hoptrain.trainers.models.sums import aggregate, aggregate_with_own
from hoptrain.trainers.models.sums.edge_index import SampledEdges

_keep_freed_memory = cache(keep_freed_memory)
_OVERRIDABLE = ("message", "aggregate", "message_and_aggregate", "update", "edge_update", "propagate", "edge_updater")
_HOOKS = tuple(
    f"_{name}_forward_{when}hooks"
    for name in ("propagate", "message", "aggregate", "message_and_aggregate", "edge_update")
    for when in ("pre_", "")
)


class Neighbours:
    """The neighbours of a batch's nodes, for one call of a layer.

    Outputs are ``LazyRows``. Their computed rows are those of nodes whose neighbours were sampled, if the inputs of these neighbours are computed, too.

    Attributes:
        edges: edges of the batch.
        block: block of the nodes whose outputs are computed.
    """

    def __init__(self, edges: SampledEdges, block: Block) -> None:
        self.edges, self.block = edges, block

    @classmethod
    def of(
        cls, layer: MessagePassing, kind: type[MessagePassing], x: Any, edge_index: Any, edge_attr: Tensor | None = None
    ) -> Neighbours | None:
        """Return the neighbours, or None if the layer must run PyG's own code of ``kind``.

        Args:
            layer: the layer, an instance of a subclass of ``kind``.
            kind: PyG's class of this layer.
            x: first argument of the layer.
            edge_index: second argument of the layer.
            edge_attr: features or weights of the edges.
        """
        if torch.compiler.is_compiling() or not isinstance(edge_index, SampledEdges) or torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
            return None
        is_input = isinstance(x, Tensor) and x.dim() == 2 and x.is_floating_point() and x.device == edge_index.device
        is_input = is_input and (edge_attr is None or (len(edge_attr) == edge_index.shape[1] and edge_attr.is_floating_point()))
        if not is_input or len(x) != edge_index.num_nodes or not edge_index.knows_blocks or _is_changed(layer, kind):
            return None
        if not x.is_cuda:
            _keep_freed_memory()
        block = edge_index.block_from(len(computed_of(x)))
        return cls(edge_index, edge_index.block_from(len(all_of(x))) if block is None else block)  # type: ignore[arg-type]

    def own(self, x: Tensor) -> Tensor:
        """Return ``x`` (N, C) with as many computed rows as the layer's outputs."""
        return self._own(x, first_rows(x, self.block.num_dst))

    def _own(self, x: Tensor, rows: Tensor) -> Tensor:
        return LazyRows.of(rows, self.edges.num_nodes, lambda: all_of(x)[len(rows) :], [x])

    def reduce(self, x: Tensor, weights: Tensor | None = None, reduce: Literal["sum", "mean"] = "sum") -> Tensor:
        """Return the sum or mean (N, C) of the neighbours' rows of ``x`` (N, C), times the ``weights`` (M,) or (M, H) of the edges."""
        return self.reduce_with_own(x, weights, reduce)[0]

    def reduce_with_own(self, x: Tensor, weights: Tensor | None = None, reduce: Literal["sum", "mean"] = "sum") -> tuple[Tensor, Tensor]:
        """Return ``reduce`` and ``own`` of ``x``, whose gradients share one buffer on a CPU."""
        block, edges = self.block, self.edges

        def others() -> Tensor:
            rest = edges.rest_of(block)
            rows, own = all_of(x), None if weights is None else weights[block.num_edges :]
            return aggregate(rest, rows, own, reduce).to(rows.dtype) if rest.num_edges else rows.new_zeros(rest.num_dst, rows.shape[1])

        rows, own = first_rows(x, block.num_src), None if weights is None else weights[: block.num_edges]
        reads = [x, edges] if weights is None else [x, edges, weights]
        sums, own_rows = aggregate_with_own(block, rows, own, reduce)
        return LazyRows.of(sums.to(rows.dtype), edges.num_nodes, others, reads), self._own(x, own_rows)

    def apply(
        self,
        layer: Callable[..., Tensor],
        x: Tensor,
        edge_attr: Tensor | None,
        reads: list[Tensor],
        on_block: Callable[[Tensor, Block], Tensor] | None = None,
    ) -> Tensor:
        """Run PyG's code of a layer, and return its outputs (N, C').

        Args:
            layer: function that calls PyG's code as ``layer(x, edge_index, edge_attr)``, where ``x`` may be a pair of sources and destinations.
            x: input rows (N, C).
            edge_attr: features of the edges, with a row for each, or None.
            reads: parameters of the layer, which must not change before all rows are computed.
            on_block: function that computes the outputs of the block's destinations from the sources' rows, or None for ``layer``.
        """
        block, edges = self.block, self.edges
        rows, attributes = first_rows(x, block.num_src), None if edge_attr is None else edge_attr[: block.num_edges]
        first = None if on_block is None else on_block(rows, block)
        if first is None:
            first = layer((rows, rows[: block.num_dst]), edges.plain()[:, : block.num_edges], attributes)
        given = [x, edges, *reads] if edge_attr is None else [x, edges, edge_attr, *reads]
        return LazyRows.of(first, edges.num_nodes, lambda: layer(all_of(x), edges.plain(), edge_attr)[block.num_dst :], given)


def reduction_of(layer: MessagePassing) -> Literal["sum", "mean"] | None:
    """Return how a layer reduces the messages of neighbours, or None if ``aggregate`` has no such reduction."""
    return {MeanAggregation: "mean", SumAggregation: "sum"}.get(type(layer.aggr_module))  # type: ignore[return-value]


def _is_changed(layer: MessagePassing, kind: type[MessagePassing]) -> bool:
    """Return whether a subclass, a hook or an option makes a layer pass messages differently from PyG's class ``kind``."""
    if layer.flow != "source_to_target" or layer.explain or layer.decomposed_layers != 1 or any(getattr(layer, name) for name in _HOOKS):
        return True
    return layer.node_dim not in (0, -2) or any(name in vars(layer) for name in _OVERRIDABLE) or _overrides(type(layer), kind)  # type: ignore[arg-type]


@cache
def _overrides(own: type[MessagePassing], kind: type[MessagePassing]) -> bool:
    """Return whether a class overrides how PyG's class ``kind`` passes messages. PyG itself sets ``propagate`` and ``edge_updater`` of each class."""
    between = own.__mro__[: own.__mro__.index(kind)]
    defined = {name: value for each in between for name, value in vars(each).items() if name in _OVERRIDABLE}
    return any(not getattr(value, "__module__", "").endswith(f"_{name}") for name, value in defined.items())
