"""Full-neighbour inference: layer by layer over all nodes, or in batches of nodes for a model without a method ``layer``.

The cost of sampled inference grows with the product of all fanouts, and its outputs are noisy. Layer-wise inference computes the vector of each node once
per layer, from all of its neighbours, in chunks of bounded size. Only the last layer is limited to the requested nodes, as in DGL's offline inference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import numpy as np
import torch
from torch import Tensor, nn

from hoptrain.engine import Dataset, Graph, InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.features.quantized import QuantizedRows, codes_of
from hoptrain.engine.features.take import finish_rows
from hoptrain.engine.schedule import rows_per_rank
from hoptrain.samplers import MiniBatch, NeighborSampler, Workspace
from hoptrain.samplers.batch.transfer import as_tensor, expand_tensor
from hoptrain.trainers.models.batches import ForwardInputs, apply_model, side_inputs
from hoptrain.trainers.models.features import model_input, to_device, to_input, with_edge_features
from hoptrain.trainers.models.layered import LayerwiseModule

if TYPE_CHECKING:
    from hoptrain.trainers.multinode.owned import Computed, LocalNodes

LayerInputs: TypeAlias = Mapping[str, Any]
"""Input rows (V_t, C) of a layer by node type: a tensor, ``Computed`` rows that are stored on several machines, or None for the stored features."""

CHUNK_EDGES = 1 << 20
"""Approximate number of edges in a chunk on the CPU; it bounds the memory of a layer's messages. The edges of one node are never divided."""


EDGE_BYTES = 4 << 10
"""Assumed bytes per edge of a chunk on a GPU. A chunk has as many edges as fit in a quarter of the free memory."""


GATHERED_BYTES = 256 << 20
"""Maximum bytes of a hidden layer that ranks gather at once, and of features that are copied to a GPU at once."""


_CPU = torch.device("cpu")


CHUNK_SEEDS = 512
"""Number of nodes per batch of full neighbourhoods, for a model without a method ``layer``."""


ChooseDevice: TypeAlias = Callable[[int], torch.device]
"""A function that selects the device for a given number of bytes."""

ApplyLayer: TypeAlias = Callable[[int, str, LayerInputs, Array, ChooseDevice], Tensor]
"""A function that computes output rows (N, C) of a layer.

Its arguments are the layer's index, a node type, the layer's input rows, nodes (N,) of the type, and a function that selects the output's device.
"""


class LayerLoop:
    """A loop over a model's layers that computes each layer for all nodes before the next one, node type by node type.

    The only node type of a homogeneous graph is "". Each rank computes a part of the rows of every hidden layer, and gathers the rows of other ranks.
    So all ranks must call the same methods in the same order.

    Attributes:
        free: free bytes of GPU memory per node type. The rows of a type may use a quarter of them.
        choose: returns the device for a given number of bytes: the GPU if they fit in a quarter of ``free``, else the CPU.
    """

    def __init__(
        self,
        indptr: Mapping[str, Array],
        device: torch.device,
        *,
        num_types: int = 1,
        rank: int = 0,
        world_size: int = 1,
        chunk_edges: int | None = None,
        free_bytes: int | None = None,
        own: LocalNodes | None = None,
        is_partial: bool = False,
    ) -> None:
        """Prepare the loop.

        Args:
            indptr: CSC offsets (V_t + 1,) of the edges into the nodes of each type t.
            device: the device on which layers are computed.
            num_types: maximum number of node types that enter a layer; they share the GPU's free memory.
            rank: this rank's number.
            world_size: the number of ranks.
            chunk_edges: approximate number of edges in a chunk; None derives it from the free memory.
            free_bytes: free bytes of the GPU; None queries CUDA.
            own: assignment of nodes to ranks, if features are partitioned across machines; None divides nodes evenly.
            is_partial: True if each rank has only the edges into its own nodes.
        """
        self._indptr, self._device, self._rank, self._world_size = indptr, device, rank, world_size
        self._own, self._is_partial = own, is_partial
        free = free_memory(device) if free_bytes is None else free_bytes
        self._chunk_edges, self.free = chunk_edges or edges_in(free), free // max(1, num_types)
        self.choose: ChooseDevice = partial(device_for, device, free=self.free)

    def run(self, apply: ApplyLayer, hidden: LayerInputs, needed: Sequence[Sequence[str]], nodes: Mapping[str, Array]) -> dict[str, Tensor]:
        """Apply all layers, and return the last layer's rows (N_t, C) for ``nodes`` (N_t,) of each type t, on the device.

        Args:
            apply: computes rows of one layer.
            hidden: input rows of the first layer by type.
            needed: types that enter each layer, one sequence per layer.
            nodes: nodes (N_t,) of each type for which the last layer is computed.
        """
        for i, kinds in enumerate(needed[1:]):
            hidden = {kind: self.all_rows(kind, partial(apply, i, kind, hidden)) for kind in kinds}
        return {kind: self._last_rows(partial(apply, len(needed) - 1, kind, hidden), asked) for kind, asked in nodes.items()}

    def share(self, kind: str) -> Array:
        """Return the nodes of a type that this rank computes."""
        number = len(self._indptr[kind]) - 1
        share = rows_per_rank(number, self._world_size)
        return np.arange(number)[self._rank * share : (self._rank + 1) * share]

    def all_rows(self, kind: str, compute: Callable[[Array, ChooseDevice], Tensor]) -> Tensor | Computed:
        """Return the rows (V_t, C) of all nodes of a type: ``compute`` returns the rows of this rank's nodes, and other ranks send the remaining rows."""
        total = len(self._indptr[kind]) - 1
        if self._own is not None:
            return self._own.compute(lambda ids: compute(ids, _on_host), np.arange(total))
        part = compute(self.share(kind), self.choose)
        if self._world_size == 1:
            return part
        return gather_parts(part, rows_per_rank(total, self._world_size), total, self._device, self.free)

    def _last_rows(self, compute: Callable[[Array, ChooseDevice], Tensor], nodes: Array) -> Tensor:
        """Return rows of ``nodes`` on the device. Rows of nodes whose in-edges this rank lacks come from ranks that have these edges."""
        if self._own is None or not self._is_partial:
            return compute(nodes, lambda _: self._device)
        return self._own.compute(lambda ids: compute(ids, _on_host), self._own.asked(nodes)).all_at_once(nodes).to(self._device)

    def by_chunks(self, kind: str, nodes: Array, output: Callable[[Array], Tensor], choose: ChooseDevice) -> Tensor:
        """Return ``output`` of ``nodes`` (N,) of a type, chunk by chunk, as one tensor (N, C). Without nodes, an empty chunk gives the width C."""
        return join_rows(map(output, self.chunks(kind, nodes if len(nodes) else np.zeros(1, np.int64))), len(nodes), choose)

    def chunks(self, kind: str, nodes: Array) -> Iterator[Array]:
        """Yield ``nodes`` of a type in chunks of bounded numbers of edges."""
        return chunks(self._indptr[kind], nodes, self._chunk_edges)


def _on_host(_: int) -> torch.device:
    return _CPU


@torch.no_grad()
def layerwise_inference(
    model: nn.Module,
    data: Dataset,
    nodes: Array,
    *,
    normalize: bool = False,
    device: torch.device = _CPU,
    rank: int = 0,
    world_size: int = 1,
    forward_inputs: ForwardInputs = "blocks+degrees",
    num_hops: int | None = None,
    x: Tensor | None = None,
    chunk_edges: int | None = None,
    free_bytes: int | None = None,
) -> Tensor:
    """Compute logits of nodes from their full neighbourhoods, layer by layer if the model has a method ``layer``. The model must be in eval mode.

    A model that takes ``edge_index``, or has no method ``layer``, is instead applied to batches of nodes with all neighbours over ``num_hops`` hops, with
    the same logits. The graph needs no labels, and may differ from the graph of the training.

    With several ranks, every rank must call this. Each computes a part of the rows of hidden layers, and the last layer for its own ``nodes``. If features
    are partitioned across machines, each rank keeps the hidden rows that it computed, and fetches other ranks' rows chunk by chunk. If the graph is
    partitioned too,
    each rank computes only nodes of its machine, also in the last layer.

    The free memory of a GPU is divided into four quarters: for the features (as stored), for the input and the output of a hidden layer, and for a chunk.
    Features or a layer that do not fit in their quarter stay on the CPU, and the rows of a chunk are copied through pinned memory.

    Args:
        model: the model, on ``device`` and in eval mode.
        data: the data set, with its graph and features.
        nodes: node ids (N,) to compute logits for.
        normalize: divide each node's features by their sum.
        device: the device to compute on.
        rank: this rank's number.
        world_size: the number of ranks.
        forward_inputs: inputs of the model, and of its layers, in addition to the features: blocks, blocks+degrees or edge_index.
        num_hops: hops of neighbours in a batch, for a model without a method ``layer``; by default its ``num_layers``.
        x: input rows (V, F) of the first layer; None takes the data set's features.
        chunk_edges: approximate number of edges in a chunk; None derives it from the free memory.
        free_bytes: free bytes of the GPU; None queries CUDA once.

    Returns:
        Logits (N, num_classes) on ``device``.

    Raises:
        InputError: the model has neither ``layer`` nor ``num_layers``, and ``num_hops`` is not given.

    Examples:
        >>> from hoptrain import GNN, layerwise_inference, load_dataset
        >>> data = load_dataset("digits-knn")
        >>> layerwise_inference(GNN("sage", 64, 32, 10, num_layers=2).eval(), data, data.split("test")).shape
        torch.Size([360, 10])
    """
    given: dict[str, Any] = {"normalize": normalize, "device": device, "forward_inputs": forward_inputs, "x": x}
    if not offers_layers(model, forward_inputs):
        return neighborhood_logits(model, data, np.asarray(nodes), num_hops=num_hops or _num_layers(model), **given)
    options: dict[str, Any] = {"rank": rank, "world_size": world_size, "chunk_edges": chunk_edges, "free_bytes": free_bytes}
    return _by_layers(model, data, np.asarray(nodes), **given, **options)


def _by_layers(
    model: LayerwiseModule,
    data: Dataset,
    nodes: Array,
    *,
    normalize: bool,
    device: torch.device,
    forward_inputs: ForwardInputs,
    x: Tensor | None,
    **options: Any,
) -> Tensor:
    own = _own_vertices(data)
    graph = data.graph if own is None else own.graph
    loop = LayerLoop({"": graph.indptr}, device, own=own, is_partial=graph is not data.graph, **options)
    features = features_of(data, normalize, device, loop.free if x is None else 0)
    apply = _layers(loop, model, data, graph, forward_inputs, features, device)
    return loop.run(apply, {"": None if x is None else x.to(loop.choose(x.nbytes))}, [[""]] * model.num_layers, {"": nodes})[""]


def _own_vertices(data: Dataset) -> LocalNodes | None:
    """Return the assignment of nodes to the ranks that compute them, or None if features are not partitioned across machines."""
    if isinstance(codes_of(data.x), np.ndarray | None):
        return None
    from hoptrain.trainers.multinode.owned import own_vertices

    return own_vertices(data)


def _layers(
    loop: LayerLoop,
    model: LayerwiseModule,
    data: Dataset,
    graph: Graph,
    forward_inputs: ForwardInputs,
    features: Callable[[Array], Tensor],
    device: torch.device,
) -> ApplyLayer:
    """Return a function that computes a layer's output rows for nodes. Its inputs are the previous layer's rows, or the features."""
    sampler, workspace = NeighborSampler([-1]), Workspace()

    def output(i: int, hidden: Tensor | Computed | None, chunk: Array) -> Tensor:
        batch = with_edge_features(sampler.sample(graph, chunk, workspace=workspace), data)
        degrees = torch.from_numpy(degrees_of(data, batch.node_ids)).to(device)
        inputs = features(batch.node_ids) if hidden is None else rows_of(hidden, batch.node_ids, device)
        return model.layer(i, inputs, *side_inputs(forward_inputs, batch.to(device).blocks[0], degrees))

    def apply(i: int, kind: str, hidden: LayerInputs, nodes: Array, choose: ChooseDevice) -> Tensor:
        before: Tensor | Computed | None = hidden[kind]
        rows = loop.by_chunks(kind, nodes, partial(output, i, before), choose)
        if before is None:
            finish_rows(data.x)
        elif not isinstance(before, Tensor):
            before.finish()
        return rows

    return apply


def join_rows(pieces: Iterable[Tensor], number: int, choose: ChooseDevice) -> Tensor:
    """Return the first ``number`` rows of one or more pieces as one tensor, on the device that ``choose`` returns for the bytes of this tensor.

    In addition to this tensor, only one piece is in memory at a time.
    """
    out, begin = torch.empty(0), 0
    for piece in pieces:
        if not begin:
            num_bytes = number * piece[:1].nbytes
            out = torch.empty(number, *piece.shape[1:], dtype=piece.dtype, device=choose(num_bytes))
        end = min(begin + len(piece), number)
        out[begin:end] = piece[: end - begin]
        begin = end
    return out


def free_memory(device: torch.device) -> int:
    """Return the free bytes of a GPU, including those that torch's allocator caches; 0 for the CPU."""
    if device.type != "cuda":
        return 0
    return torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def device_for(device: torch.device, num_bytes: int, free: int) -> torch.device:
    """Return ``device`` if ``num_bytes`` fit in a quarter of its ``free`` bytes, else the CPU."""
    return device if device.type != "cuda" or num_bytes <= free // 4 else _CPU


def edges_in(free: int) -> int:
    """Return the number of edges in a chunk: those that fit in a quarter of the device's ``free`` bytes, and at least ``CHUNK_EDGES``."""
    return max(CHUNK_EDGES, free // 4 // EDGE_BYTES)


def features_of(data: Dataset, normalize: bool, device: torch.device, free: int) -> Callable[[Array], Tensor]:
    """Return a function from nodes (N,) to their features, in the form of ``model_input``.

    If the stored features fit in a quarter of the ``free`` bytes of ``device``, they are copied there first.
    """
    table = codes_of(data.x)
    if not isinstance(table, np.ndarray) or not 0 < table.nbytes <= free // 4 or (table.dtype.kind == "u" and table.itemsize > 1):
        return lambda nodes: model_input(
            data, nodes, normalize, device
        )  # torch cannot index unsigned integers wider than uint8 on all devices
    columns = data.x.columns if isinstance(data.x, QuantizedRows) else None
    step = max(1, GATHERED_BYTES * len(table) // table.nbytes)
    pieces = (to_device(as_tensor(np.array(table[begin : begin + step])), device) for begin in range(0, len(table), step))
    copy = join_rows(pieces, len(table), lambda _: device)

    def rows(nodes: Array) -> Tensor:
        taken = copy[torch.from_numpy(nodes).to(device).long()]
        return to_input(taken if columns is None else expand_tensor(taken, columns), normalize)

    return rows


def rows_of(hidden: Tensor | Computed, nodes: Array, device: torch.device) -> Tensor:
    """Return the rows of ``nodes`` (N,) of a hidden layer, on ``device``."""
    rows = torch.from_numpy(nodes)
    if not isinstance(hidden, Tensor):
        return to_device(hidden[rows.long()], device)
    if hidden.is_cuda or device.type != "cuda":
        return hidden[rows.to(hidden.device).long()].to(device)
    pinned = torch.empty(len(rows), *hidden.shape[1:], dtype=hidden.dtype, pin_memory=True)
    return torch.index_select(hidden, 0, rows.long(), out=pinned).to(device, non_blocking=True)


def offers_layers(model: nn.Module, forward_inputs: ForwardInputs) -> TypeGuard[LayerwiseModule]:
    """Return whether a model has the methods of ``LayerwiseModule``, and its layers take blocks."""
    return forward_inputs != "edge_index" and isinstance(model, LayerwiseModule)


def _num_layers(model: nn.Module) -> int:
    """Return a model's ``num_layers``.

    Raises:
        InputError: the model has no such attribute.
    """
    number = getattr(model, "num_layers", None)
    if not isinstance(number, int):
        raise InputError(
            f"num_hops is missing: {type(model).__name__} offers neither its layers nor num_layers; give the number of hops that it reads"
        )
    return number


@torch.no_grad()
def neighborhood_logits(
    model: nn.Module,
    data: Dataset,
    nodes: Array,
    *,
    num_hops: int,
    normalize: bool,
    device: torch.device,
    forward_inputs: ForwardInputs,
    x: Tensor | None = None,
) -> Tensor:
    """Compute logits (N, C) of nodes from batches of their full neighbourhoods; arguments are those of ``layerwise_inference``."""
    asked, outputs = nodes if len(nodes) else np.zeros(1, np.int64), []
    for batch in neighborhoods(data, asked, num_hops):
        degrees = torch.from_numpy(degrees_of(data, batch.node_ids)).to(device)
        rows = model_input(data, batch.node_ids, normalize, device) if x is None else rows_of(x, batch.node_ids, device)
        outputs.append(apply_model(model, forward_inputs, rows, batch.to(device), degrees))
    finish_rows(data.x)
    return torch.cat(outputs)[: len(nodes)]


def neighborhoods(data: Dataset, nodes: Array, num_hops: int) -> Iterator[MiniBatch]:
    """Yield batches of ``nodes`` (N,), in order, with all neighbours over ``num_hops`` hops. A batch is valid until the next one is yielded."""
    sampler, workspace = NeighborSampler([-1] * num_hops), Workspace()
    for begin in range(0, len(nodes), CHUNK_SEEDS):
        yield with_edge_features(sampler.sample(data.graph, nodes[begin : begin + CHUNK_SEEDS], workspace=workspace), data)


def degrees_of(data: Dataset, nodes: Array) -> Array:
    """Return the in-degrees (N,) of nodes, as float32."""
    degrees: Array = data.graph.indptr[nodes + 1] - data.graph.indptr[nodes]
    return degrees.astype(np.float32)


def chunks(indptr: Array, nodes: Array, most: int = CHUNK_EDGES) -> Iterator[Array]:
    """Yield ``nodes`` in contiguous chunks of at most ``most`` edges (and nodes); a node with more edges forms a chunk by itself."""
    ends = np.cumsum(indptr[nodes + 1] - indptr[nodes] + 1)
    begin = 0
    while begin < len(nodes):
        before = ends[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield nodes[begin:end]
        begin = end


def gather_parts(part: Tensor, share: int, total: int, device: torch.device, free: int = 0) -> Tensor:
    """Gather all ranks' parts of a hidden layer into one tensor (total, C), on the device that ``device_for`` selects.

    The ranks exchange the rows on ``device``, at most ``GATHERED_BYTES`` at a time.

    Args:
        part: this rank's rows.
        share: number of rows of a rank; the last ranks may have fewer.
        total: number of rows of all ranks.
        device: the device of the collective.
        free: free bytes of a GPU.
    """
    ranks, width = torch.distributed.get_world_size(), part.shape[1]
    out = torch.empty(total, width, device=device_for(device, 4 * total * width, free))
    step = max(1, GATHERED_BYTES // max(1, ranks * part.shape[1] * part.element_size()))
    for begin in range(0, share, step):
        number = min(step, share - begin)
        padded = torch.zeros(number, part.shape[1], device=device)
        padded[: max(0, len(part) - begin)] = part[begin : begin + number].to(device)
        pieces = [torch.empty_like(padded) for _ in range(ranks)]
        torch.distributed.all_gather(pieces, padded)
        for rank, piece in enumerate(pieces):
            rows = out[rank * share + begin : rank * share + begin + number]
            rows[...] = piece[: len(rows)]
    return out
