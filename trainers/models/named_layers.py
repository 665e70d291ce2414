"""A layer that applies a PyG convolution, given by class name, to a block. A test at construction verifies that the convolution works on blocks."""

from __future__ import annotations

import inspect
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from hoptrain.engine import InputError
from hoptrain.engine.errors import did_you_mean
from hoptrain.samplers import Block
from hoptrain.trainers.models.edge_layers import edge_features, temporary_pyg_files
from hoptrain.trainers.models.layers import refuse_weights

LIBRARY = "torch_geometric.nn."
"""Prefix of the class names. Names without it are rejected, since importing a name from a checkpoint could run any code."""
MLP = "mlp"
"""Value in a convolution's arguments that stands for a two-layer MLP of the output width, which infers its input width."""

# Edges j -> i of a test graph of six nodes without self loops. The block of nodes 0 and 1 lacks the in-edges of their in-neighbours.
_EDGES = ((2, 3, 0, 3, 5, 4, 1, 5, 0, 2), (0, 0, 1, 1, 1, 2, 3, 3, 4, 5))
_BLOCK = 5
"""Number of edges of the test block: the first edges of the test graph, which lead to nodes 0 and 1."""


class NamedLayer(nn.Module):
    """A layer with a PyG convolution, ``conv``, from (num_src, C) to (num_dst, C').

    A convolution that accepts a pair (source vectors, destination vectors) gets such a pair. Any other convolution gets the sources as a graph in which only
    destinations
    have in-edges, and its output rows of other nodes are dropped.
    """

    def __init__(self, name: str, in_channels: int, out_channels: int, *, edge_channels: int, args: dict[str, Any]) -> None:
        """Build the convolution, and test it on a graph of six nodes in eval mode.

        Args:
            name: class name, ``torch_geometric.nn.CLASS``.
            in_channels: input width, C.
            out_channels: output width, C'.
            edge_channels: number of features of an edge, D; 0 for none. It is passed to the convolution as ``edge_dim`` if it has such an argument.
            args: arguments of the class by name, except for the channels. The value ``mlp`` stands for a two-layer MLP.

        Raises:
            InputError: the class is unknown, its arguments or its output width are wrong, or a node's output depends on more than the node and its
                in-edges.
        """
        super().__init__()
        self.name, self.edge_channels = name, edge_channels
        with temporary_pyg_files():
            kind = _find(name)
            self.conv = _make(kind, in_channels, out_channels, edge_channels, args)
        self._edge_input = _edge_input(kind, edge_channels)
        self.reads_edges = self._edge_input is not None
        self._is_bipartite = True
        self._try(in_channels, out_channels)

    def forward(self, x: Tensor, block: Block, degrees: Tensor) -> Tensor:
        """Compute the outputs (num_dst, C') of one block.

        Raises:
            InputError: the number of edge features is not D, or the block has edge weights.
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
        """Compare the outputs of nodes 0 and 1 from their block with those from the whole graph."""
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
                f"arch {self.name} over features and edges: {_first_line(error)}; change arch_args, or use another arch"
            ) from error
        if not isinstance(whole, Tensor) or whole.shape != (6, out_channels):
            got = f"{whole.shape[-1]} channels" if isinstance(whole, Tensor) else f"a {type(whole).__name__}"
            raise InputError(
                f"arch {self.name} returns {got} instead of {out_channels} channels: change arch_args, for instance heads with concat: false"
            )
        out = self._first_that_runs(x, edges[:, :_BLOCK], part)
        if not torch.allclose(out, whole[:2], rtol=1e-4, atol=1e-5):
            raise InputError(
                f"arch {self.name} gives a node another output from its in-edges alone than from the whole graph (it reads degrees of sources, or "
                "several hops): batches would be wrong; use arch gcn for GCN, or a convolution of one hop"
            )
        self.train(was_training)

    def _first_that_runs(self, x: Tensor, edge_index: Tensor, features: Tensor | None) -> Tensor:
        with suppress(Exception):  # a convolution that takes no pair may raise anything
            out = self._convolve(x, 2, edge_index, features)
            if out.shape[0] == 2:
                return out
        self._is_bipartite = False
        return self._convolve(x, 2, edge_index, features)


def _find(name: str) -> Any:
    """Return the PyG class named ``name``."""
    import torch_geometric.nn as library

    last = name.removeprefix(LIBRARY)
    known = [each for each in library.conv.__all__ if each != "MessagePassing"]
    if last not in known or not name.startswith(LIBRARY):
        near = did_you_mean(last, known)
        raise InputError(f"arch is {name!r}: a name with dots must be {LIBRARY}CLASS, a PyG convolution" + (f"; {near}" if near else ""))
    return getattr(library, last)


def _make(kind: Any, in_channels: int, out_channels: int, edge_channels: int, args: dict[str, Any]) -> nn.Module:
    """Build the convolution, with the channels under the argument names of its class."""
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
    """Return the argument name under which a convolution takes edge features; None if it takes none."""
    forward_inputs = inspect.signature(kind.forward).parameters
    if edge_channels and "edge_attr" in forward_inputs:
        return "edge_attr"
    return "edge_weight" if edge_channels == 1 and "edge_weight" in forward_inputs else None


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
