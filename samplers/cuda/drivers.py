"""The table of CUDA drivers by sampler class, and the functions that create a driver for a sampler."""

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


def _make_neighbor_driver(graph: Graph, sampler: NeighborSampler, workspace: Workspace) -> Driver:
    """Return the driver for weighted draws of distinct edges if a hop takes them, else the common one."""
    for columns in sampler.columns(graph):
        if isinstance(columns, WeightedColumns):
            return CudaWeighted(graph, sampler, columns, workspace)
    return CudaNeighbor(graph, sampler, workspace)


def _make_program_driver(graph: Graph, program: SamplingProgram, workspace: Workspace) -> Driver:
    """Return the driver for the output and sampling type of a program."""
    program.check_graph(graph)
    if program.sampling_type == "collective":
        return CudaCollective(graph, program, workspace)
    return (CudaWalks if program.output == "walks" else CudaBlocks)(graph, program, workspace)


def _make_inner_driver(
    graph: Graph, sampler: LinkSampler | MVSSampler | WeightedSeedSampler, workspace: Workspace
) -> DeviceSampler[MiniBatch]:
    """Return the driver of the wrapped sampler, which takes seeds."""
    return cast("DeviceSampler[MiniBatch]", _make_driver(graph, sampler.sampler, workspace))


def _make_link_driver(graph: Graph, sampler: LinkSampler, workspace: Workspace) -> Driver:
    return CudaLinks(graph, sampler, workspace, _make_inner_driver(graph, sampler, workspace))


def _make_drawn_seeds_driver(graph: Graph, sampler: MVSSampler | WeightedSeedSampler, workspace: Workspace) -> Driver:
    return CudaDrawnSeeds(graph, sampler, workspace, _make_inner_driver(graph, sampler, workspace))


DRIVERS: dict[type, Callable[[Any, Any, Workspace], Driver]] = {
    NeighborSampler: _make_neighbor_driver,
    LaborSampler: CudaLabor,
    PinSAGESampler: CudaPinSAGE,
    TemporalSampler: CudaTemporal,
    VRGCNSampler: CudaVRGCN,
    HeteroSampler: CudaHetero,
    LayerWiseSampler: CudaLayers,
    SamplingProgram: _make_program_driver,
    ClusterSampler: CudaClusters,
    RippleWalkSampler: CudaRipple,
    SaintNodeSampler: CudaSaintNodes,
    SaintEdgeSampler: CudaSaintEdges,
    SaintWalkSampler: CudaSaintWalks,
    ShadowSampler: CudaShadow,
    ShadowPPRSampler: CudaShadowPPR,
    LinkSampler: _make_link_driver,
    MVSSampler: _make_drawn_seeds_driver,
    WeightedSeedSampler: _make_drawn_seeds_driver,
}
"""Functions that create the driver for a graph, a sampler and a workspace, by sampler class. A subclass has its parent's driver unless it overrides a
method in ``_SAMPLE_ON_CPU``."""


_SAMPLE_ON_CPU = frozenset(("sample_on_cpu", "_draw"))
"""Names of the methods that define a sampler's algorithm on the CPU; the GraphSAINT samplers use ``_draw``."""


def driver_for(graph: object, sampler: object, workspace: Workspace) -> Driver:
    """Return the driver of a sampler. The workspace keeps it, with its copy of the graph, until another graph or sampler is used.

    Raises:
        InputError: the sampler has no CUDA kernels, CUDA cannot be used, or the workspace's options do not apply.
    """
    slot, made_for = workspace.on_device, (graph, sampler, getattr(sampler, "sampler", None))  # MVSSampler may replace its wrapped sampler
    if slot.driver is None or any(now is not before for now, before in zip(made_for, slot.made_for, strict=True)):
        slot.driver = None  # frees the old driver's memory before the new driver allocates
        slot.driver, slot.made_for = _make_driver(graph, sampler, workspace), made_for
    return slot.driver


def check_driver(sampler: object) -> None:
    """Raise ``InputError`` if a sampler has no CUDA driver.

    Raises:
        InputError: the sampler has no CUDA kernels.
    """
    _find_maker(sampler)


def _make_driver(graph: object, sampler: object, workspace: Workspace) -> Driver:
    return _find_maker(sampler)(graph, sampler, workspace)


def _find_maker(sampler: object) -> Callable[[Any, Any, Workspace], Driver]:
    for kind in type(sampler).__mro__:
        if kind in DRIVERS:
            return DRIVERS[kind]
        if not _SAMPLE_ON_CPU.isdisjoint(vars(kind)):
            break  # this class overrides the algorithm, so the parent's kernels would sample something else
    raise InputError(f'{type(sampler).__name__} with device="cuda": it has no kernels for CUDA; use device="cpu"')
