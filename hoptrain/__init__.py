"""hoptrain: a training engine for graph neural networks with fast neighbour sampling on CPUs and GPUs.

The public API is importable from here: ``hoptrain.load_dataset``, ``hoptrain.NeighborSampler`` and so on. ``dir(hoptrain)`` lists all names. Each name
is imported at first use, so ``import hoptrain`` loads neither torch nor NumPy. The folders next to this file are symbolic links to the layers.
"""

# ruff: noqa: F401, I001 - names for type checkers, several to a line

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hoptrain.engine import Dataset, Graph, HeteroDataset, HeteroGraph, InputError, WorkerOptions, load_dataset, load_hetero_dataset
    from hoptrain.samplers import ASGCNSampler, Block, ClusterSampler, FastGCNSampler, HeteroSampler, LaborSampler, LadiesSampler
    from hoptrain.samplers import HeteroLinkSampler, MetapathWalk, Node2Vec, RandomWalk
    from hoptrain.samplers import LinkSampler, MiniBatch, MVSSampler, NeighborSampler, PinSAGESampler, SamplingProgram, RippleWalkSampler
    from hoptrain.samplers import SaintEdgeSampler, SaintNodeSampler, SaintWalkSampler, SampleLoader, Sampler, ShadowPPRSampler
    from hoptrain.samplers import ShadowSampler, TemporalSampler, VRGCNSampler, Workspace
    from hoptrain.trainers.models import GNN
    from hoptrain.trainers.models.inference import layerwise_inference
    from hoptrain.engine.datasets.events import Events, load_events
    from hoptrain.engine.datasets.small_graphs import SmallGraphs
    from hoptrain.engine.datasets.triples import Triples, load_triples
    from hoptrain.engine.datasets.tables.folders import read_hetero_tables
    from hoptrain.engine.datasets.tables.frames import from_pandas
    from hoptrain.trainers.callbacks.callbacks import ThroughputMonitor, ProgressBar
    from hoptrain.trainers.callbacks.layer_options import ActivationCheckpointing, CompiledLayers
    from hoptrain.trainers.callbacks.predictions import PredictionWriter
    from hoptrain.trainers.callbacks.timeline import BatchTraceCallback
    from hoptrain.trainers.tasks.adaptive import AdaptiveNodeClassifier
    from hoptrain.trainers.tasks.edges import EdgeDataModule, EdgePredictor
    from hoptrain.trainers.tasks.temporal_links import EventDataModule, EventPredictor
    from hoptrain.trainers.tasks.items.graphs import GraphClassifier, GraphDataModule
    from hoptrain.trainers.tasks.items.sign import SIGNDataModule, SIGNClassifier
    from hoptrain.trainers.tasks.items.images import ImageClassifier, ImageDataModule
    from hoptrain.trainers.tasks.links.data import HeteroLinkDataModule, LinkDataModule
    from hoptrain.trainers.tasks.links.task import HeteroLinkPredictor, LinkPredictor
    from hoptrain.trainers.tasks.nodes.data import NodeDataModule, HeteroDataModule
    from hoptrain.trainers.tasks.nodes.task import HeteroClassifier, NodeClassifier
    from hoptrain.trainers.tasks.kg import TripleDataModule, TriplePredictor

__version__ = "0.1.0"

_NAMES = {
    "engine": "Dataset Graph HeteroDataset HeteroGraph InputError WorkerOptions load_dataset load_hetero_dataset",
    "engine.datasets.events": "Events load_events",
    "engine.datasets.small_graphs": "SmallGraphs",
    "engine.datasets.triples": "Triples load_triples",
    "engine.datasets.tables.folders": "read_hetero_tables",
    "engine.datasets.tables.frames": "from_pandas",
    "samplers": "ASGCNSampler Block ClusterSampler FastGCNSampler HeteroLinkSampler HeteroSampler LaborSampler LadiesSampler LinkSampler "
    "MVSSampler MetapathWalk MiniBatch NeighborSampler Node2Vec PinSAGESampler RandomWalk RippleWalkSampler SaintEdgeSampler "
    "SaintNodeSampler SaintWalkSampler SampleLoader Sampler SamplingProgram ShadowPPRSampler ShadowSampler TemporalSampler VRGCNSampler "
    "Workspace",
    "trainers.models": "GNN",
    "trainers.models.inference": "layerwise_inference",
    "trainers.callbacks.callbacks": "ThroughputMonitor ProgressBar",
    "trainers.callbacks.layer_options": "ActivationCheckpointing CompiledLayers",
    "trainers.callbacks.predictions": "PredictionWriter",
    "trainers.callbacks.timeline": "BatchTraceCallback",
    "trainers.tasks.adaptive": "AdaptiveNodeClassifier",
    "trainers.tasks.temporal_links": "EventDataModule EventPredictor",
    "trainers.tasks.items.graphs": "GraphClassifier GraphDataModule",
    "trainers.tasks.items.sign": "SIGNDataModule SIGNClassifier",
    "trainers.tasks.items.images": "ImageClassifier ImageDataModule",
    "trainers.tasks.edges": "EdgeDataModule EdgePredictor",
    "trainers.tasks.links.data": "HeteroLinkDataModule LinkDataModule",
    "trainers.tasks.links.task": "HeteroLinkPredictor LinkPredictor",
    "trainers.tasks.kg": "TripleDataModule TriplePredictor",
    "trainers.tasks.nodes.data": "NodeDataModule HeteroDataModule",
    "trainers.tasks.nodes.task": "HeteroClassifier NodeClassifier",
}
"""Public names by the module that defines them. Keep it in step with the imports above, which are for type checkers."""

_HOME = {name: f"hoptrain.{module}" for module, names in _NAMES.items() for name in names.split()}
__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'hoptrain' has no attribute {name!r}: dir(hoptrain) lists what it has")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
