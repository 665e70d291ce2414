"""Any convolution of PyG's by its name, over a block; at the start it is seen that it can be."""

from __future__ import annotations

import inspect
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from hoptrain.engine import InputError
from hoptrain.engine.errors import did_you_mean
from hoptrain.samplers import Block
from hoptrain.trainers.models.edge_layers import edge_features, temporary_files_that_go
from hoptrain.trainers.models.layers import refuse_weights

LIBRARY = "torch_geometric.nn."
"""How the name of such a convolution begins. Names from elsewhere are not imported: a checkpoint's would be, too."""
MLP = "mlp"
"""A value in a convolution's arguments: a perceptron of two layers, as wide as the output, over whatever the convolution gives it."""

# Edges j -> i of a graph of six nodes, no loops; a source of node 0 or 1 has in-edges of its own, which their block does not know.
_EDGES = ((2, 3, 0, 3, 5, 4, 1, 5, 0, 2), (0, 0, 1, 1, 1, 2, 3, 3, 4, 5))
_BLOCK = 5
"""The first edges are those of nodes 0 and 1, over the first six nodes."""


class NamedLayer(nn.Module):
    """A convolution of PyG's, which is ``conv``, from (num_src, C) to (num_dst, C').

    One that takes a pair of sources and destinations gets it. Another gets the sources as a graph in which only the destinations have in-edges,
    and its other rows are left out.
    """

    def __init__(self, name: str, in_channels: int, out_channels: int, *, edge_channels: int, args: dict[str, Any]) -> None:
        """Make the convolution and try it on a graph of six nodes, in eval mode.

        Args:
            name: ``torch_geometric.nn.CLASS``.
            in_channels: C.
            out_channels: C'.
            edge_channels: D, features of an edge; 0 for none. Given to the convolution as its ``edge_dim`` where it has one.
            args: arguments by name, but for the channels. The value ``mlp`` stands for a perceptron.

        Raises:
            InputError: no such class, arguments that it does not take, another width; or what it gives for a node depends on more than the
                node and its in-edges.
        """
        super().__init__()
        self.name, self.edge_channels = name, edge_channels
        with temporary_files_that_go():
            kind = _find(name)
            self.conv = _make(kind, in_channels, out_channels, edge_channels, args)
        self._edge_input = _edge_input(kind, edge_channels)
        self._is_bipartite = True
        self._try(in_channels, out_channels)

    def forward(self, x: Tensor, block: Block, degrees: Tensor) -> Tensor:
        """Apply to one block.

        Raises:
            InputError: its edges have other features than the layer was made for; or the block has weights.
        """
        refuse_weights(block, f"arch {self.name}")
        features = edge_features(block, self.edge_channels, x.dtype)
        return self._convolve(x, block.num_dst, block.edge_index(), features)

    def _convolve(self, x: Tensor, num_dst: int, edge_index: Tensor, features: Tensor | None) -> Tensor:
        inputs = self._inputs(features)
        if self._is_bipartite:
            pair: Tensor = self.conv((x, x[:num_dst]), edge_index, **inputs)
            return pair
        out: Tensor = self.conv(x, edge_index, **inputs)
        return out[:num_dst]

    def _inputs(self, features: Tensor | None) -> dict[str, Tensor]:
        if features is None or self._edge_input is None:
            return {}
        return {self._edge_input: features[:, 0] if self._edge_input == "edge_weight" else features}

    @torch.no_grad()
    def _try(self, in_channels: int, out_channels: int) -> None:
        """Compare what nodes 0 and 1 get from their block with what they get from the whole graph."""
        was_training = self.training
        self.eval()
        generator = torch.Generator().manual_seed(0)
        edges = torch.tensor(_EDGES)
        x = torch.rand(6, in_channels, generator=generator)
        features = torch.rand(edges.shape[1], self.edge_channels, generator=generator) if self.edge_channels else None
        part = None if features is None else features[:_BLOCK]
        try:
            whole = self.conv(x, edges, **self._inputs(features))
        except Exception as error:
            raise InputError(
                f"arch {self.name} over features and edges: {_first_line(error)}; correct arch_args, or take another arch"
            ) from error
        if not isinstance(whole, Tensor) or whole.shape != (6, out_channels):
            got = f"{whole.shape[-1]} channels" if isinstance(whole, Tensor) else f"a {type(whole).__name__}"
            raise InputError(
                f"arch {self.name} gives {got} where {out_channels} channels are wanted: correct arch_args, as heads with concat: false"
            )
        out = self._first_that_runs(x, edges[:, :_BLOCK], part)
        if not torch.allclose(out, whole[:2], rtol=1e-4, atol=1e-5):
            raise InputError(
                f"arch {self.name} gives a node another output from its in-edges alone than from the whole graph (it reads degrees of sources, or "
                "several hops): a batch would be wrong; take arch gcn for GCN, or a convolution of one hop"
            )
        self.train(was_training)

    def _first_that_runs(self, x: Tensor, edge_index: Tensor, features: Tensor | None) -> Tensor:
        with suppress(Exception):  # whatever a convolution raises that takes no pair
            out = self._convolve(x, 2, edge_index, features)
            if out.shape[0] == 2:
                return out
        self._is_bipartite = False
        return self._convolve(x, 2, edge_index, features)


def _find(name: str) -> Any:
    """The class."""
    import torch_geometric.nn as library

    last = name.removeprefix(LIBRARY)
    known = [each for each in library.conv.__all__ if each != "MessagePassing"]
    if last not in known or not name.startswith(LIBRARY):
        near = did_you_mean(last, known)
        raise InputError(f"arch is {name!r}: a name with dots is {LIBRARY}CLASS, a convolution of PyG's" + (f"; {near}" if near else ""))
    return getattr(library, last)


def _make(kind: Any, in_channels: int, out_channels: int, edge_channels: int, args: dict[str, Any]) -> nn.Module:
    """The convolution: channels by the names that its class has for them."""
    forward_inputs = inspect.signature(kind).parameters
    given = {key: _perceptron(out_channels) if value == MLP else value for key, value in args.items()}
    given = {key: torch.tensor(value) if key == "deg" else value for key, value in given.items()}
    sizes = {"in_channels": in_channels, "out_channels": out_channels, "channels": out_channels, "edge_dim": edge_channels or None}
    made = {key: value for key, value in sizes.items() if key in forward_inputs and value is not None} | given
    try:
        conv: nn.Module = kind(**made)
    except Exception as error:
        raise InputError(f"arch {kind.__name__} with arch_args {args}: {_first_line(error)}; give its arguments by name") from error
    return conv


def _perceptron(out_channels: int) -> nn.Module:
    return nn.Sequential(nn.LazyLinear(out_channels), nn.ReLU(), nn.Linear(out_channels, out_channels))


def _edge_input(kind: Any, edge_channels: int) -> str | None:
    """By which name it takes features of edges."""
    forward_inputs = inspect.signature(kind.forward).parameters
    if edge_channels and "edge_attr" in forward_inputs:
        return "edge_attr"
    return "edge_weight" if edge_channels == 1 and "edge_weight" in forward_inputs else None


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
