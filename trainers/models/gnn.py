"""A graph neural network over blocks: a stack of message-passing layers, one per block."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, get_args

from torch import Tensor, nn

from hoptrain.engine import InputError
from hoptrain.engine.errors import check_choice, explain_keywords
from hoptrain.samplers import Block
from hoptrain.samplers.batch.table_batch import TableRows
from hoptrain.trainers.models.edge_layers import NEED_EDGE_FEATURES, OF_EDGES, WITH_HEADS
from hoptrain.trainers.models.features import Standardize
from hoptrain.trainers.models.layers import Arch, Dropout, relu_dropout

Conv = Literal["pyg", "dgl"]
Norm = Literal["none", "batch", "layer"]


@explain_keywords
class GNN(nn.Module):
    """A stack of ``num_layers`` convolutions, with normalisation, activation and dropout between them. GAT and GATv2 use ELU, the others ReLU.

    Layer i maps the vectors of block i's sources to vectors of its destinations. The weights do not depend on how blocks were sampled, so they can be
    trained on sampled blocks and applied to full neighbourhoods in inference.

    Examples:
        >>> import torch
        >>> from hoptrain import GNN, NeighborSampler, SampleLoader, load_dataset
        >>> data = load_dataset("digits-knn")
        >>> batch = next(iter(SampleLoader(data, NeighborSampler([5, 5]), batch_size=64))).to("cpu")
        >>> model = GNN("sage", in_channels=64, hidden_channels=32, out_channels=10, num_layers=2)
        >>> degrees = torch.from_numpy(data.graph.in_degrees())[batch.node_ids]
        >>> model(batch.x.float(), batch.blocks, degrees).shape
        torch.Size([64, 10])
    """

    def __init__(
        self,
        arch: Arch | str,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int,
        *,
        dropout: float = 0.5,
        input_dropout: float = 0.0,
        standardize_features: bool = False,
        heads: int = 8,
        out_heads: int = 1,
        norm: Norm = "none",
        conv: Conv = "pyg",
        edge_channels: int = 0,
        arch_args: dict[str, Any] | None = None,
    ) -> None:
        """Build the layers.

        Args:
            arch: layer type: sage, gat, gcn or gin; gine, gatv2, transformer or nnconv, which read edge features; or ``torch_geometric.nn.CLASS``,
                any PyG convolution that reads only a node and its in-edges.
            in_channels: number of features of a node, F.
            hidden_channels: width of the hidden layers (the sum over all attention heads).
            out_channels: number of classes.
            num_layers: number of layers, and of blocks of a mini-batch.
            dropout: dropout probability of the inputs of hidden layers (and of attention weights).
            input_dropout: dropout probability of the features.
            standardize_features: subtract from each feature its mean over the training nodes, and divide by its standard deviation over them.
            heads: number of attention heads of gat, gatv2 and transformer, which divide ``hidden_channels`` among them.
            out_heads: number of attention heads in the last layer, which are averaged.
            norm: normalisation between layers: none, batch or layer.
            conv: library of the convolutions: pyg or dgl.
            edge_channels: number of features of an edge, D; required by gine and nnconv, optional for gatv2 and transformer.
            arch_args: arguments of a convolution named by its class, such as ``{heads: 4, concat: false}``; the value mlp stands for a two-layer MLP.

        Raises:
            InputError: sizes do not match, or an option is unknown.
        """
        super().__init__()
        for option, value, choices in (("norm", norm, Norm), ("conv", conv, Conv)):
            check_choice(option, value, get_args(choices))
        _check_sizes(num_layers, in_channels, hidden_channels, out_channels)
        _check_arch(arch, hidden_channels, heads, out_heads, edge_channels)
        widths = [in_channels] + [hidden_channels] * (num_layers - 1) + [out_channels]
        self.widths: list[int] = widths
        make = _layer_factory(arch, conv, arch_args)
        self.layers: nn.ModuleList = nn.ModuleList()
        for i in range(num_layers):
            last = i == num_layers - 1
            options = {"heads": out_heads if last else heads, "concat": not last, "dropout": dropout} if arch in WITH_HEADS else {}
            options |= {"edge_channels": edge_channels} if arch in OF_EDGES or "." in arch else {}
            self.layers.append(make(arch, widths[i], widths[i + 1], **options))
        self.norms: nn.ModuleList = nn.ModuleList(_normalisation(norm, width) for width in widths[1:-1])
        self.activation: nn.Module = nn.ELU() if arch in ("gat", "gatv2") else nn.ReLU()
        self.dropout: Dropout = Dropout(dropout)
        self.input_dropout: Dropout = Dropout(input_dropout)
        self.standardize: nn.Module = Standardize(in_channels) if standardize_features else nn.Identity()

    def forward(self, x: Tensor | TableRows, blocks: Sequence[Block], degrees: Tensor) -> Tensor:
        """Compute the logits of the last block's destinations.

        Args:
            x: float features (S, F) of the input nodes; ``TableRows`` if the model ``sums_table_rows``.
            blocks: one block per layer, outermost first.
            degrees: in-degrees (S,) of the input nodes in the whole graph.

        Returns:
            Logits (B, out_channels).
        """
        made: Any = x
        for i, block in enumerate(blocks):
            made = self.layer(i, made, block, degrees[: block.num_src])
        out: Tensor = made
        return out

    @property
    def sums_table_rows(self) -> bool:
        """True if the first layer can sum rows of the feature table: nothing changes a feature, wraps or observes the layer before that."""
        layers = [self, *self.layers]
        is_observed = "layer" in vars(self) or any(layer._forward_pre_hooks or layer._forward_hooks for layer in layers)
        is_changed = not isinstance(self.standardize, nn.Identity) or self.input_dropout.p > 0
        return getattr(self.layers[0], "sums_table_rows", False) and not is_observed and not is_changed

    def layer(self, i: int, x: Tensor | TableRows, block: Block, degrees: Tensor) -> Tensor:
        """Apply layer ``i`` with the activation and dropout of its inputs, and normalisation: (num_src, C) in, (num_dst, C') out."""
        rows: Any = x if isinstance(x, TableRows) else self._activated(x) if i else self.input_dropout(self.standardize(x))
        out: Tensor = self.layers[i](rows, block, degrees)
        return self.norms[i](out) if i < len(self.norms) else out

    def _activated(self, x: Tensor) -> Tensor:
        if isinstance(self.activation, nn.ReLU):
            return relu_dropout(x, self.dropout.p, self.training)
        out: Tensor = self.dropout(self.activation(x))
        return out

    def shape(self, i: int) -> tuple[int, ...]:
        """Return the shape of one row (one node) of the input of layer ``i``."""
        return (self.widths[i],)

    def modules_of(self, i: int) -> tuple[str, ...]:
        """Return the names of the submodules that only layer ``i`` uses."""
        return (f"layers.{i}", *[f"norms.{i}"] * (i < len(self.norms)), *["standardize"] * (i == 0))

    @property
    def reads_edges(self) -> bool:
        """True if the layers read edge features."""
        return any(getattr(layer, "reads_edges", False) for layer in self.layers)

    @property
    def num_layers(self) -> int:
        """Number of layers, and of blocks that ``forward`` takes."""
        return len(self.layers)


def _check_sizes(num_layers: int, in_channels: int, hidden_channels: int, out_channels: int) -> None:
    if min(num_layers, in_channels, hidden_channels, out_channels) < 1:
        raise InputError(
            f"a model of {num_layers} layers from {in_channels} over {hidden_channels} to {out_channels} channels: all must be at least 1"
        )


def _check_arch(arch: str, hidden_channels: int, heads: int, out_heads: int, edge_channels: int) -> None:
    """Raise InputError if options do not fit the layer type."""
    if edge_channels < 0 or (arch in NEED_EDGE_FEATURES and not edge_channels):
        raise InputError(
            f"edge_channels is {edge_channels} with arch {arch}: it needs edge features; give the Dataset edge_attr, or use another arch"
        )
    if arch in WITH_HEADS and min(heads, out_heads) < 1:
        raise InputError(f"heads is {heads} and out_heads {out_heads}: both must be at least 1; give 1 or more")
    if arch in WITH_HEADS and hidden_channels % heads:
        raise InputError(f"hidden_channels {hidden_channels} cannot be divided among {heads} heads: give a multiple of heads")


def _layer_factory(arch: str, conv: Conv, arch_args: dict[str, Any] | None) -> Any:
    """Return the function that builds a layer from its type, widths and options."""
    if "." in arch:
        if conv != "pyg":
            raise InputError(f"arch {arch} with conv {conv}: it is a PyG convolution; leave conv out")
        from hoptrain.trainers.models.named_layers import NamedLayer

        return partial(NamedLayer, args=arch_args or {})
    check_choice("arch", arch, get_args(Arch))
    if arch_args is not None:
        raise InputError(
            f"arch_args with arch {arch}: they are for a convolution named by its class, such as torch_geometric.nn.GraphConv; leave arch_args out"
        )
    if conv == "dgl":
        from hoptrain.trainers.models.dgl_layers import make_layer as make_dgl_layer

        return make_dgl_layer
    from hoptrain.trainers.models.pyg_layers import make_layer

    return make_layer


def _normalisation(norm: Norm, width: int) -> nn.Module:
    kinds: dict[Norm, type[nn.Module]] = {"none": nn.Identity, "batch": nn.BatchNorm1d, "layer": nn.LayerNorm}
    return kinds[norm](width)
