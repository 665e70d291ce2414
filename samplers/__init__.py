"""Sampling algorithms, the mini-batches they make, and the loader that runs them in the engine's workers. Imports no torch."""

from hoptrain.samplers.base import Sampler
from hoptrain.samplers.loader import SampleLoader
from hoptrain.samplers.minibatch import Block, MiniBatch
from hoptrain.samplers.neighbor import NeighborSampler
from hoptrain.samplers.workspace import Workspace

__all__ = ["Block", "MiniBatch", "NeighborSampler", "SampleLoader", "Sampler", "Workspace"]
