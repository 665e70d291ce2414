"""Inference over full neighbourhoods: exact, layer by layer, or by batches where a model does not say its layers.

Sampled inference costs the product of all fanouts and is noisy. Here every node's hidden vector is computed once a layer, from all its
neighbours, in chunks of bounded size; only the last layer is limited to the nodes that are asked for. (As in GraphSAGE's and DGL's
offline inference.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from hoptrain.engine import Dataset, Graph
from hoptrain.engine.arrays import Array
from hoptrain.engine.features.quantized import QuantizedRows, codes_of
from hoptrain.engine.features.take import finish_rows
from hoptrain.engine.schedule import rows_per_rank
from hoptrain.samplers import MiniBatch, NeighborSampler, Workspace
from hoptrain.samplers.batch.transfer import as_tensor, expand_tensor
from hoptrain.trainers.models.batches import ForwardInputs, apply_model, side_inputs
from hoptrain.trainers.models.features import model_input, to_device, to_input, with_edge_features
from hoptrain.trainers.models.layered import LayerWise

if TYPE_CHECKING:
    from hoptrain.trainers.multinode.owned import Computed, LocalNodes

CHUNK_EDGES = 1 << 20
"""Edges of a chunk on the CPU, about: it bounds the memory of a layer's messages. A node's edges are never divided."""


EDGE_BYTES = 4 << 10
"""What an edge of a chunk may take on a device, where a chunk takes a quarter of the free memory."""


GATHERED_BYTES = 256 << 20
"""Of a hidden layer that ranks of one machine gather at once, or of features that are copied to a device: what lies beside it meanwhile."""


CHUNK_SEEDS = 512
"""Nodes whose whole neighbourhoods make a batch, where a model does not say its layers."""


@torch.no_grad()
def layerwise_inference(
    model: LayerWise,
    data: Dataset,
    nodes: Array,
    *,
    normalize: bool,
    device: torch.device,
    rank: int = 0,
    world_size: int = 1,
    forward_inputs: ForwardInputs = "blocks+degrees",
    x: Tensor | None = None,
    chunk_edges: int | None = None,
    free_bytes: int | None = None,
) -> Tensor:
    """Scores of ``nodes`` (N,) from their full neighbourhoods: (N, num_classes) on ``device``. The model has to be in eval mode.

    With several ranks each computes a share of the hidden layers and gathers the rest, so every rank has to call this. With features on several machines
    each keeps the rows it computed and receives others chunk by chunk; on a partitioned graph each computes its machine's nodes. ``x`` (V, F) enters the
    first layer, by default the features; ``forward_inputs`` names its other inputs. A chunk has about ``chunk_edges`` edges, by default ``edges_in``.

    A GPU's free memory, asked once unless ``free_bytes`` states it, is shared in four: features, as stored, and hidden layers, two at a time, stay on the GPU
    where a quarter each holds them; the rest is for a chunk. What does not fit lies on the CPU, and a chunk's rows travel through pinned memory.

    Examples:
        >>> import torch
        >>> from hoptrain import GNN, layerwise_inference, load_dataset
        >>> data = load_dataset("digits-knn")
        >>> model = GNN("sage", data.num_features, 32, data.num_classes, num_layers=2).eval()
        >>> layerwise_inference(model, data, data.split("test"), normalize=False, device=torch.device("cpu")).shape
        torch.Size([360, 10])
    """

    def apply(layer: int, nodes: Array, hidden: Tensor | Computed | None, to: torch.device | None = None) -> Tensor:
        """One layer's output for ``nodes`` on ``to``, or where ``device_for`` says; ``hidden`` (V, C) is its input, None stands for the features."""
        asked = chunks(graph.indptr, nodes if len(nodes) else every[:1], chunk_edges or edges_in(free))
        outputs = (output(layer, chunk, hidden) for chunk in asked)
        found = joined(outputs, len(nodes), partial(device_for, device, free=free) if to is None else lambda _: to)
        if hidden is None:
            finish_rows(data.x)
        elif not isinstance(hidden, Tensor):
            hidden.finish()
        return found

    own, host = _own_vertices(data), torch.device("cpu")
    graph = data.graph if own is None else own.graph
    every = np.arange(data.graph.num_nodes)
    share, last = rows_per_rank(len(every), world_size), model.num_layers - 1
    free = free_memory(device) if free_bytes is None else free_bytes
    hidden: Tensor | Computed | None = None if x is None else x.to(device_for(device, x.nbytes, free))
    features = features_of(data, normalize, device, free if hidden is None else 0)
    output = _chunk_by_layer(model, data, graph, forward_inputs, features, device)
    for layer in range(last):
        if own is not None:
            hidden = own.compute(partial(apply, layer, hidden=hidden, to=host), every)
        else:
            part = apply(layer, every[rank * share : (rank + 1) * share], hidden)
            hidden = part if world_size == 1 else gather_parts(part, share, len(every), device, free)
    if own is None or graph is data.graph:
        return apply(last, nodes, hidden, device)
    return own.compute(partial(apply, last, hidden=hidden, to=host), own.asked(nodes)).all_at_once(nodes).to(device)


def _own_vertices(data: Dataset) -> LocalNodes | None:
    """Return which nodes each rank computes; None where features do not lie on several machines."""
    if isinstance(codes_of(data.x), np.ndarray | None):
        return None
    from hoptrain.trainers.multinode.owned import own_vertices

    return own_vertices(data)


def _chunk_by_layer(
    model: LayerWise, data: Dataset, graph: Graph, forward_inputs: ForwardInputs, features: Callable[[Array], Tensor], device: torch.device
) -> Callable[[int, Array, Tensor | Computed | None], Tensor]:
    """A function that returns a layer's output for a chunk of nodes (N,), from the hidden layer before or, where that is None, from the features."""
    sampler, workspace = NeighborSampler([-1]), Workspace()

    def output(layer: int, chunk: Array, hidden: Tensor | Computed | None) -> Tensor:
        batch = with_edge_features(sampler.sample(graph, chunk, workspace=workspace), data)
        degrees = torch.from_numpy(degrees_of(data, batch.node_ids)).to(device)
        inputs = features(batch.node_ids) if hidden is None else rows_of(hidden, batch.node_ids, device)
        return model.layer(layer, inputs, *side_inputs(forward_inputs, batch.to(device).blocks[0], degrees))

    return output


def joined(pieces: Iterable[Tensor], number: int, place: Callable[[int], torch.device]) -> Tensor:
    """The first ``number`` rows of pieces, of which there is one at least, as one tensor on ``place(its bytes)``: beside it lies one piece at a time."""
    out, begin = torch.empty(0), 0
    for piece in pieces:
        if not begin:
            num_bytes = number * piece[:1].nbytes
            out = torch.empty(number, *piece.shape[1:], dtype=piece.dtype, device=place(num_bytes))
        end = min(begin + len(piece), number)
        out[begin:end] = piece[: end - begin]
        begin = end
    return out


def free_memory(device: torch.device) -> int:
    """Bytes of a GPU that nobody holds, with what torch keeps of them for later; 0 for the CPU, of which nothing is asked."""
    if device.type != "cuda":
        return 0
    return torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def device_for(device: torch.device, num_bytes: int, free: int) -> torch.device:
    """``device`` where a quarter of its ``free`` bytes holds ``num_bytes``, else the CPU."""
    return device if device.type != "cuda" or num_bytes <= free // 4 else torch.device("cpu")


def edges_in(free: int) -> int:
    """How many edges a chunk has on a device with ``free`` bytes: as many as a quarter of them holds, and ``CHUNK_EDGES`` at least, as on the CPU."""
    return max(CHUNK_EDGES, free // 4 // EDGE_BYTES)


def features_of(data: Dataset, normalize: bool, device: torch.device, free: int) -> Callable[[Array], Tensor]:
    """A function that returns the features of nodes (N,) as ``model_input`` does.

    It reads a copy of the table on ``device``, as stored, where a quarter of its ``free`` bytes holds one.
    """
    table = codes_of(data.x)
    if not isinstance(table, np.ndarray) or not 0 < table.nbytes <= free // 4 or (table.dtype.kind == "u" and table.itemsize > 1):
        return lambda nodes: model_input(data, nodes, normalize, device)  # torch does not index wider unsigned integers everywhere
    columns = data.x.columns if isinstance(data.x, QuantizedRows) else None
    step = max(1, GATHERED_BYTES * len(table) // table.nbytes)
    pieces = (to_device(as_tensor(np.array(table[begin : begin + step])), device) for begin in range(0, len(table), step))
    copy = joined(pieces, len(table), lambda _: device)

    def rows(nodes: Array) -> Tensor:
        taken = copy[torch.from_numpy(nodes).to(device).long()]
        return to_input(taken if columns is None else expand_tensor(taken, columns), normalize)

    return rows


def rows_of(hidden: Tensor | Computed, nodes: Array, device: torch.device) -> Tensor:
    """Rows of ``nodes`` (N,) of a hidden layer, on ``device``."""
    rows = torch.from_numpy(nodes)
    if not isinstance(hidden, Tensor):
        return to_device(hidden[rows.long()], device)
    if hidden.is_cuda or device.type != "cuda":
        return hidden[rows.to(hidden.device).long()].to(device)
    pinned = torch.empty(len(rows), *hidden.shape[1:], dtype=hidden.dtype, pin_memory=True)
    return torch.index_select(hidden, 0, rows.long(), out=pinned).to(device, non_blocking=True)


@torch.no_grad()
def neighborhood_logits(
    model: nn.Module, data: Dataset, nodes: Array, *, num_hops: int, normalize: bool, device: torch.device, forward_inputs: ForwardInputs
) -> Tensor:
    """Scores of ``nodes`` (N,) from batches with all neighbours over ``num_hops`` hops: (N, num_classes) on ``device``.

    For a model that does not say its layers. The model has to be in eval mode.
    """
    asked, outputs = nodes if len(nodes) else np.zeros(1, np.int64), []
    for batch in neighborhoods(data, asked, num_hops):
        degrees = torch.from_numpy(degrees_of(data, batch.node_ids)).to(device)
        x = model_input(data, batch.node_ids, normalize, device)
        outputs.append(apply_model(model, forward_inputs, x, batch.to(device), degrees))
    finish_rows(data.x)
    return torch.cat(outputs)[: len(nodes)]


def neighborhoods(data: Dataset, nodes: Array, num_hops: int) -> Iterator[MiniBatch]:
    """Batches of ``nodes`` (N,), in order, with all their neighbours over ``num_hops`` hops; each holds until the next one."""
    sampler, workspace = NeighborSampler([-1] * num_hops), Workspace()
    for begin in range(0, len(nodes), CHUNK_SEEDS):
        yield with_edge_features(sampler.sample(data.graph, nodes[begin : begin + CHUNK_SEEDS], workspace=workspace), data)


def degrees_of(data: Dataset, nodes: Array) -> Array:
    """(N,) float32 in-degrees."""
    degrees: Array = data.graph.indptr[nodes + 1] - data.graph.indptr[nodes]
    return degrees.astype(np.float32)


def chunks(indptr: Array, nodes: Array, most: int = CHUNK_EDGES) -> Iterator[Array]:
    """``nodes`` in runs of at most ``most`` edges, a node with more than that alone."""
    ends = np.cumsum(indptr[nodes + 1] - indptr[nodes] + 1)
    begin = 0
    while begin < len(nodes):
        before = ends[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield nodes[begin:end]
        begin = end


def gather_parts(part: Tensor, share: int, total: int, device: torch.device, free: int = 0) -> Tensor:
    """All ranks' parts of a hidden layer, one after another: (total, C) where ``device_for`` says. They go over ``device`` some rows at a time."""
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
