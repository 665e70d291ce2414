"""Sampling algorithms, the mini-batches they make, and the loader that runs them in the engine's workers. Imports no torch."""

from hoptrain.kernels.shared.program import STOP, below, chance, has_edge
from hoptrain.samplers.base import Sampler
from hoptrain.samplers.batch.hetero_minibatch import HeteroMiniBatch
from hoptrain.samplers.batch.minibatch import Block, MiniBatch
from hoptrain.samplers.feed.loader import SampleLoader
from hoptrain.samplers.layerwise.asgcn import ASGCNSampler
from hoptrain.samplers.layerwise.fastgcn import FastGCNSampler
from hoptrain.samplers.layerwise.ladies import LadiesSampler
from hoptrain.samplers.nodewise.hetero import HeteroSampler
from hoptrain.samplers.nodewise.labor import LaborSampler
from hoptrain.samplers.nodewise.neighbor import NeighborSampler
from hoptrain.samplers.nodewise.pinsage import PinSAGESampler
from hoptrain.samplers.nodewise.temporal import TemporalSampler
from hoptrain.samplers.nodewise.vrgcn import VRGCNSampler
from hoptrain.samplers.programs.program import Program, compile_program
from hoptrain.samplers.programs.walks import MetapathWalk, Node2Vec, RandomWalk
from hoptrain.samplers.scratch.workspace import Workspace
from hoptrain.samplers.seeds.link import LinkSampler
from hoptrain.samplers.seeds.mvs import MVSSampler
from hoptrain.samplers.subgraphs.cluster import ClusterSampler
from hoptrain.samplers.subgraphs.ripple import RippleWalkSampler
from hoptrain.samplers.subgraphs.saint import SaintEdgeSampler, SaintNodeSampler, SaintWalkSampler
from hoptrain.samplers.subgraphs.shadow import ShadowPPRSampler, ShadowSampler

__all__ = [
    "STOP",
    "ASGCNSampler",
    "Block",
    "ClusterSampler",
    "FastGCNSampler",
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
