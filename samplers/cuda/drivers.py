"""The table of what samples on a CUDA device: a driver for each class of samplers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from hoptrain.engine import Graph, InputError
from hoptrain.kernels.cpu.nodewise.weighted import WeightedColumns
from hoptrain.samplers.batch.minibatch import MiniBatch
from hoptrain.samplers.buffers.workspace import Driver, Workspace
from hoptrain.samplers.cuda.device_sampler import DeviceSampler
from hoptrain.samplers.cuda.layerwise.layers import CudaLayers
from hoptrain.samplers.cuda.nodewise.hetero import CudaHetero
from hoptrain.samplers.cuda.nodewise.labor import CudaLabor
from hoptrain.samplers.cuda.nodewise.neighbor import CudaNeighbor
from hoptrain.samplers.cuda.nodewise.pinsage import CudaPinSAGE
from hoptrain.samplers.cuda.nodewise.temporal import CudaTemporal
from hoptrain.samplers.cuda.nodewise.vrgcn import CudaVRGCN
from hoptrain.samplers.cuda.nodewise.weighted import CudaWeighted
from hoptrain.samplers.cuda.programs.collective import CudaCollective
from hoptrain.samplers.cuda.programs.program import CudaBlocks, CudaWalks
from hoptrain.samplers.cuda.seeds.link import CudaLinks
from hoptrain.samplers.cuda.seeds.mvs import CudaDrawnSeeds
from hoptrain.samplers.cuda.subgraphs.cluster import CudaClusters
from hoptrain.samplers.cuda.subgraphs.ripple import CudaRipple
from hoptrain.samplers.cuda.subgraphs.saint import CudaSaintEdges, CudaSaintNodes, CudaSaintWalks
from hoptrain.samplers.cuda.subgraphs.shadow import CudaShadow, CudaShadowPPR
from hoptrain.samplers.layerwise.layers import LayerWiseSampler
from hoptrain.samplers.nodewise.labor import LaborSampler
from hoptrain.samplers.nodewise.neighbor import HeteroSampler, NeighborSampler
from hoptrain.samplers.nodewise.pinsage import PinSAGESampler
from hoptrain.samplers.nodewise.temporal import TemporalSampler
from hoptrain.samplers.nodewise.vrgcn import VRGCNSampler
from hoptrain.samplers.programs.program import SamplingProgram
from hoptrain.samplers.subgraphs.cluster import ClusterSampler
from hoptrain.samplers.subgraphs.ripple import RippleWalkSampler
from hoptrain.samplers.subgraphs.saint import SaintEdgeSampler, SaintNodeSampler, SaintWalkSampler
from hoptrain.samplers.subgraphs.shadow import ShadowPPRSampler, ShadowSampler
from hoptrain.samplers.wrappers.link import LinkSampler
from hoptrain.samplers.wrappers.mvs import MVSSampler
from hoptrain.samplers.wrappers.weighted import WeightedSeedSampler


def _of_neighbors(graph: Graph, sampler: NeighborSampler, workspace: Workspace) -> Driver:
    """By whether some hop takes distinct edges by weight."""
    for columns in sampler.columns(graph):
        if isinstance(columns, WeightedColumns):
            return CudaWeighted(graph, sampler, columns, workspace)
    return CudaNeighbor(graph, sampler, workspace)


def _of_program(graph: Graph, program: SamplingProgram, workspace: Workspace) -> Driver:
    """By what the program makes."""
    program.check_graph(graph)
    if program.sampling_type == "collective":
        return CudaCollective(graph, program, workspace)
    return (CudaWalks if program.output == "walks" else CudaBlocks)(graph, program, workspace)


def _within(graph: Graph, sampler: LinkSampler | MVSSampler | WeightedSeedSampler, workspace: Workspace) -> DeviceSampler[MiniBatch]:
    """Of the sampler within, whose batches are asked for by their seeds: it is none that finds them on the host itself."""
    return cast("DeviceSampler[MiniBatch]", _made(graph, sampler.sampler, workspace))


def _of_links(graph: Graph, sampler: LinkSampler, workspace: Workspace) -> Driver:
    return CudaLinks(graph, sampler, workspace, _within(graph, sampler, workspace))


def _of_drawn(graph: Graph, sampler: MVSSampler | WeightedSeedSampler, workspace: Workspace) -> Driver:
    return CudaDrawnSeeds(graph, sampler, workspace, _within(graph, sampler, workspace))


DRIVERS: dict[type, Callable[[Any, Any, Workspace], Driver]] = {
    NeighborSampler: _of_neighbors,
    LaborSampler: CudaLabor,
    PinSAGESampler: CudaPinSAGE,
    TemporalSampler: CudaTemporal,
    VRGCNSampler: CudaVRGCN,
    HeteroSampler: CudaHetero,
    LayerWiseSampler: CudaLayers,
    SamplingProgram: _of_program,
    ClusterSampler: CudaClusters,
    RippleWalkSampler: CudaRipple,
    SaintNodeSampler: CudaSaintNodes,
    SaintEdgeSampler: CudaSaintEdges,
    SaintWalkSampler: CudaSaintWalks,
    ShadowSampler: CudaShadow,
    ShadowPPRSampler: CudaShadowPPR,
    LinkSampler: _of_links,
    MVSSampler: _of_drawn,
    WeightedSeedSampler: _of_drawn,
}
"""What makes a driver of a graph, a sampler and a workspace; also for subclasses, as long as they sample on the CPU as the class does."""


_SAMPLE_ON_CPU = frozenset(("sample_on_cpu", "_draw"))
"""Methods that say what a sampler samples on the CPU; ``_draw`` is that of GraphSAINT's samplers."""


def driver_for(graph: object, sampler: object, workspace: Workspace) -> Driver:
    """What samples on the workspace's device; the workspace keeps it, with the graph's copy, until another graph or sampler is asked for.

    Raises:
        InputError: the sampler has no kernels for CUDA; or CUDA cannot be used, or not with these options.
    """
    slot, made_for = workspace.on_device, (graph, sampler, getattr(sampler, "sampler", None))  # MVSSampler may exchange the one within
    if slot.driver is None or any(now is not before for now, before in zip(made_for, slot.made_for, strict=True)):
        slot.driver = None  # so that its memory is free before the new one asks for some
        slot.driver, slot.made_for = _made(graph, sampler, workspace), made_for
    return slot.driver


def check_driver(sampler: object) -> None:
    """Raise if nothing samples on a CUDA device in the place of a sampler.

    Raises:
        InputError: it has no kernels for CUDA.
    """
    _maker(sampler)


def _made(graph: object, sampler: object, workspace: Workspace) -> Driver:
    return _maker(sampler)(graph, sampler, workspace)


def _maker(sampler: object) -> Callable[[Any, Any, Workspace], Driver]:
    for kind in type(sampler).__mro__:
        if kind in DRIVERS:
            return DRIVERS[kind]
        if not _SAMPLE_ON_CPU.isdisjoint(vars(kind)):
            break  # what it samples is not what its parent's kernels do
    raise InputError(f'{type(sampler).__name__} with device="cuda": it has no kernels for CUDA; use device="cpu"')
