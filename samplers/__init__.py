"""Sampling algorithms, the mini-batches they make, and the loader that runs them in the engine's workers. Imports no torch."""

from hoptrain.kernels.shared.program import STOP, below, chance, has_edge
from hoptrain.samplers.asgcn import ASGCNSampler
from hoptrain.samplers.base import Sampler
from hoptrain.samplers.cluster import ClusterSampler
from hoptrain.samplers.fastgcn import FastGCNSampler
from hoptrain.samplers.hetero import HeteroSampler
from hoptrain.samplers.hetero_loader import HeteroLoader
from hoptrain.samplers.hetero_minibatch import HeteroMiniBatch
from hoptrain.samplers.labor import LaborSampler
from hoptrain.samplers.ladies import LadiesSampler
from hoptrain.samplers.link import LinkSampler
from hoptrain.samplers.loader import SampleLoader
from hoptrain.samplers.minibatch import Block, MiniBatch
from hoptrain.samplers.mvs import MVSSampler
from hoptrain.samplers.neighbor import NeighborSampler
from hoptrain.samplers.pinsage import PinSAGESampler
from hoptrain.samplers.program import Program, compile_program
from hoptrain.samplers.ripple import RippleWalkSampler
from hoptrain.samplers.saint import SaintEdgeSampler, SaintNodeSampler, SaintWalkSampler
from hoptrain.samplers.shadow import ShadowPPRSampler, ShadowSampler
from hoptrain.samplers.temporal import TemporalSampler
from hoptrain.samplers.vrgcn import VRGCNSampler
from hoptrain.samplers.walks import MetapathWalk, Node2Vec, RandomWalk
from hoptrain.samplers.workspace import Workspace

__all__ = [
    "STOP",
    "ASGCNSampler",
    "Block",
    "ClusterSampler",
    "FastGCNSampler",
    "HeteroLoader",
    "HeteroMiniBatch",
    "HeteroSampler",
    "LaborSampler",
    "LadiesSampler",
    "LinkSampler",
    "MVSSampler",
    "MetapathWalk",
    "MiniBatch",
    "NeighborSampler",
    "Node2Vec",
    "PinSAGESampler",
    "Program",
    "RandomWalk",
    "RippleWalkSampler",
    "SaintEdgeSampler",
    "SaintNodeSampler",
    "SaintWalkSampler",
    "SampleLoader",
    "Sampler",
    "ShadowPPRSampler",
    "ShadowSampler",
    "TemporalSampler",
    "VRGCNSampler",
    "Workspace",
    "below",
    "chance",
    "compile_program",
    "has_edge",
]
