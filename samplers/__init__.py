"""Sampling algorithms, the mini-batches they return, and the loader that runs them in worker processes. This package does not import torch.

Each name is imported on first use. A sampler process starts 20 % faster because it does not import the other samplers.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hoptrain.kernels.shared.program import STOP, bernoulli, has_edge, randint
    from hoptrain.samplers.base import Sampler
    from hoptrain.samplers.batch.minibatch import Block, HeteroMiniBatch, MiniBatch
    from hoptrain.samplers.buffers.workspace import Workspace
    from hoptrain.samplers.layerwise.asgcn import ASGCNSampler
    from hoptrain.samplers.layerwise.fastgcn import FastGCNSampler
    from hoptrain.samplers.layerwise.hgt import HGTSampler
    from hoptrain.samplers.layerwise.ladies import LadiesSampler
    from hoptrain.samplers.loader.loader import SampleLoader
    from hoptrain.samplers.nodewise.hetero_pinsage import HeteroPinSAGESampler
    from hoptrain.samplers.nodewise.labor import HeteroLaborSampler, LaborSampler
    from hoptrain.samplers.nodewise.neighbor import HeteroSampler, NeighborSampler
    from hoptrain.samplers.nodewise.pinsage import PinSAGESampler
    from hoptrain.samplers.nodewise.probabilities import sampling_probabilities
    from hoptrain.samplers.nodewise.temporal import HeteroTemporalSampler, TemporalSampler
    from hoptrain.samplers.nodewise.vrgcn import VRGCNSampler
    from hoptrain.samplers.programs.program import SamplingProgram, compile_program
    from hoptrain.samplers.programs.walks import MetapathWalk, Node2Vec, RandomWalk
    from hoptrain.samplers.subgraphs.cluster import ClusterSampler
    from hoptrain.samplers.subgraphs.ripple import RippleWalkSampler
    from hoptrain.samplers.subgraphs.saint import SaintEdgeSampler, SaintNodeSampler, SaintWalkSampler
    from hoptrain.samplers.subgraphs.shadow import ShadowPPRSampler, ShadowSampler
    from hoptrain.samplers.wrappers.link import HeteroLinkSampler, LinkSampler
    from hoptrain.samplers.wrappers.mvs import MVSSampler
    from hoptrain.samplers.wrappers.weighted import WeightedSeedSampler

_NAMES = {
    "kernels.shared.program": "STOP bernoulli has_edge randint",
    "samplers.base": "Sampler",
    "samplers.batch.minibatch": "Block HeteroMiniBatch MiniBatch",
    "samplers.loader.loader": "SampleLoader",
    "samplers.layerwise.asgcn": "ASGCNSampler",
    "samplers.layerwise.fastgcn": "FastGCNSampler",
    "samplers.layerwise.hgt": "HGTSampler",
    "samplers.layerwise.ladies": "LadiesSampler",
    "samplers.nodewise.hetero_pinsage": "HeteroPinSAGESampler",
    "samplers.nodewise.labor": "HeteroLaborSampler LaborSampler",
    "samplers.nodewise.neighbor": "HeteroSampler NeighborSampler",
    "samplers.nodewise.pinsage": "PinSAGESampler",
    "samplers.nodewise.probabilities": "sampling_probabilities",
    "samplers.nodewise.temporal": "HeteroTemporalSampler TemporalSampler",
    "samplers.nodewise.vrgcn": "VRGCNSampler",
    "samplers.programs.program": "SamplingProgram compile_program",
    "samplers.programs.walks": "MetapathWalk Node2Vec RandomWalk",
    "samplers.buffers.workspace": "Workspace",
    "samplers.wrappers.link": "HeteroLinkSampler LinkSampler",
    "samplers.wrappers.mvs": "MVSSampler",
    "samplers.wrappers.weighted": "WeightedSeedSampler",
    "samplers.subgraphs.cluster": "ClusterSampler",
    "samplers.subgraphs.ripple": "RippleWalkSampler",
    "samplers.subgraphs.saint": "SaintEdgeSampler SaintNodeSampler SaintWalkSampler",
    "samplers.subgraphs.shadow": "ShadowPPRSampler ShadowSampler",
}
"""Public names by the module that defines them, separated by spaces. The imports above repeat the list for type checkers."""

_HOME = {name: f"hoptrain.{module}" for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "STOP",
    "ASGCNSampler",
    "Block",
    "ClusterSampler",
    "FastGCNSampler",
    "HGTSampler",
    "HeteroLaborSampler",
    "HeteroLinkSampler",
    "HeteroMiniBatch",
    "HeteroPinSAGESampler",
    "HeteroSampler",
    "HeteroTemporalSampler",
    "LaborSampler",
    "LadiesSampler",
    "LinkSampler",
    "MVSSampler",
    "MetapathWalk",
    "MiniBatch",
    "NeighborSampler",
    "Node2Vec",
    "PinSAGESampler",
    "RandomWalk",
    "RippleWalkSampler",
    "SaintEdgeSampler",
    "SaintNodeSampler",
    "SaintWalkSampler",
    "SampleLoader",
    "Sampler",
    "SamplingProgram",
    "ShadowPPRSampler",
    "ShadowSampler",
    "TemporalSampler",
    "VRGCNSampler",
    "WeightedSeedSampler",
    "Workspace",
    "bernoulli",
    "compile_program",
    "has_edge",
    "randint",
    "sampling_probabilities",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value
