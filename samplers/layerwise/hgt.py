"""HGT's budget-based sampling of heterogeneous graphs (Hu, Dong, Wang, Sun, "Heterogeneous Graph Transformer", WWW 2020, algorithms 1 and 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hoptrain.engine import Address, InputError
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.hetero_graph import HeteroGraph, Relation
from hoptrain.kernels.cpu.address import HopAddress
from hoptrain.kernels.cpu.columns import total_degree
from hoptrain.kernels.cpu.layerwise import hgt as kernels
from hoptrain.samplers.batch.minibatch import Block, HeteroMiniBatch, nested_hops
from hoptrain.samplers.buffers.frontier import Frontier
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.checks import as_counts
from hoptrain.samplers.hetero import BaseHeteroSampler
from hoptrain.samplers.hops import MOST_HOPS, SeedsByType


class HGTSampler(BaseHeteroSampler):
    """A sampler of heterogeneous graphs that adds a number of nodes of each type in every hop, and then takes all edges between the sampled nodes.

    It is the algorithm of PyG's ``HGTLoader``. When a node v is sampled, the budget of u grows by 1 / degree for every edge u -> v, where degree is
    the in-degree of v by that relation. A hop draws nodes of a type that were not sampled yet, one after the other without replacement; u has
    probability budget(u)**2 / the sum of these squares over the remaining nodes. If fewer nodes remain, it takes all of them. So nodes with edges
    to many sampled nodes are preferred, and the numbers of nodes of all types are balanced.

    All in-edges of a sampled node count; PyG uses at most 50 of them, drawn again each time. Budgets are float64 and are added in the order of
    relations, nodes and edges. Draw j of hop h for the type with index k has the address of hop 16 k + h and node j.

    Blocks are nested: each has all sampled nodes as sources and as destinations, except the last one, whose destinations are the seeds.
    """

    def __init__(
        self, num_samples: Sequence[int] | Mapping[str, Sequence[int]], seed_type: str | None = None, num_layers: int | None = None
    ) -> None:
        """Check and keep the options.

        Args:
            num_samples: nodes that a hop adds of each type, one number for each hop; or such a list for each type, with 0 for none.
            seed_type: node type of the seeds; None if they may be of several types.
            num_layers: blocks of a batch, by default the number of hops, at least 2. The last block has only the edges into the seeds.

        Raises:
            InputError: there is no hop or more than 16, lists differ in length, a number is negative, or there is no layer.
        """
        super().__init__(seed_type)
        given: Mapping[str, Sequence[int]] = num_samples if isinstance(num_samples, Mapping) else {"": num_samples}
        self.num_samples: dict[str, tuple[int, ...]] = {name: as_counts("num_samples", own) for name, own in given.items()}
        """Number of nodes to sample in each hop, by node type; the key "" stands for all types."""
        lengths = {len(own) for own in self.num_samples.values()}
        if len(lengths) != 1 or not 0 < max(lengths) <= MOST_HOPS:
            raise InputError(
                f"num_samples is {num_samples}: give 1 to {MOST_HOPS} numbers, one for each hop, the same number of hops for all types"
            )
        least = min(number for own in self.num_samples.values() for number in own)
        self._hops = max(lengths)
        self.num_layers: int = max(2, self._hops) if num_layers is None else num_layers
        if least < 0:
            raise InputError(f"num_samples has {least}: a hop adds 0 or more nodes of each type; give 0 or more")
        if self.num_layers < 1:
            raise InputError(f"num_layers is {num_layers}: a model has at least one layer; give 1 or more")

    def __repr__(self) -> str:
        given = {name: list(own) for name, own in self.num_samples.items()}
        return f"HGTSampler(num_samples={given.get('', given)}, seed_type={self.seed_type!r}, num_layers={self.num_layers})"

    @property
    def num_hops(self) -> int:
        """Number of blocks, ``num_layers``."""
        return self.num_layers

    def prepare(self, graph: HeteroGraph, seeds: Array) -> HGTSampler:
        """Return this sampler, after a check that ``num_samples`` fits the graph.

        Raises:
            InputError: ``num_samples`` does not name the graph's types.
        """
        self._numbers_of(graph)
        return self

    def sample_on_cpu(
        self, graph: HeteroGraph, seeds: Array | Mapping[str, Array], address: Address, workspace: Workspace
    ) -> HeteroMiniBatch:
        """Sample one mini-batch; see ``Sampler.sample_on_cpu``."""
        numbers, asked = self._numbers_of(graph), self.seeds_of(graph, seeds)
        types = {name: _Type(workspace, name, number) for name, number in graph.num_nodes.items()}
        for name, own in types.items():
            own.begin(asked, id_dtype(graph.num_nodes[name]))
        columns = {relation: _Columns(graph, types, relation, f".{number}") for number, relation in enumerate(graph.relations)}
        for hop in range(self._hops):
            for relation in columns.values():
                relation.add_budgets()
            for number, (name, own) in enumerate(types.items()):
                own.draw(numbers[name][hop], address.at_hop(number * MOST_HOPS + hop))
        outermost = {relation: own.block() for relation, own in columns.items()}
        counts = [{name: own.num_seeds for name, own in types.items()}, *[{n: t.num_sampled for n, t in types.items()}] * self.num_layers]
        return HeteroMiniBatch(
            node_ids={name: own.nodes() for name, own in types.items()},
            blocks=nested_hops(outermost, counts),
            seed_counts=counts[0],
            seed_type=asked.kind,
            num_seeds=asked.number,
            nested=True,
        )

    def _numbers_of(self, graph: HeteroGraph) -> dict[str, tuple[int, ...]]:
        """Return for each node type of the graph the number of nodes to add in each hop."""
        self.check_graph(graph)
        if "" in self.num_samples:
            return dict.fromkeys(graph.num_nodes, self.num_samples[""])
        if self.num_samples.keys() != graph.num_nodes.keys():
            raise InputError(
                f"num_samples names {', '.join(self.num_samples)}: the graph's types are {', '.join(graph.num_nodes)}; name each once"
            )
        return self.num_samples


@dataclass(eq=False, slots=True)
class _Type:
    """The candidates of one node type: nodes with an edge into a sampled node, and the sampled nodes themselves."""

    workspace: Workspace
    name: str
    num_graph_nodes: int
    met: Frontier = field(init=False)
    num_seeds: int = 0
    num_sampled: int = 0
    known: int = 0
    """Number of candidates that already have a local id and a budget."""

    def begin(self, seeds: SeedsByType, dtype: np.dtype[np.int32]) -> None:
        """Enter the seeds of this type as the first sampled nodes, in their order."""
        self.met = Frontier(self.workspace, self.workspace.table_of(self.name), self.num_graph_nodes, dtype, f"met.{self.name}")
        self.met.enter_seeds(seeds.by_type[self.name][0] if self.name in seeds.by_type else np.zeros(0, np.int64))
        self.num_seeds = self.num_sampled = self.met.num_nodes
        places, _ = self.places_and_budgets()
        places[:] = self._order(self.num_sampled)[:] = np.arange(self.num_sampled)

    def places_and_budgets(self) -> tuple[Array, Array]:
        """Return the local id of each candidate, -1 if it is not sampled, and its budget."""
        number, known = self.met.num_nodes, self.known
        places = self.workspace.array(f"places.{self.name}", number, np.int32, keep=known)
        budgets = self.workspace.array(f"budgets.{self.name}", number, np.float64, keep=known)
        places[known:], budgets[known:], self.known = -1, 0, number
        return places, budgets

    def _order(self, number: int) -> Array:
        """Return an array (``number``,) for the indices of the sampled nodes among the candidates. Enlarging it keeps its contents."""
        return self.workspace.array(f"order.{self.name}", number, np.int32, keep=self.num_sampled)

    def draw(self, number: int, address: HopAddress) -> None:
        """Sample up to ``number`` candidates, with probabilities that depend on their budgets."""
        (places, budgets), first = self.places_and_budgets(), self.num_sampled
        tree = self.workspace.array("tree", 2 << max(0, len(budgets) - 1).bit_length(), np.float64)
        chosen = self.workspace.array("chosen", len(budgets), np.int32)
        found = kernels.choose(budgets, places, number, address, tree, chosen)
        order = self._order(first + found)
        order[first:] = chosen[:found]
        places[order[first:]] = np.arange(first, first + found)
        self.num_sampled = first + found

    def nodes(self) -> Array:
        """Return the global ids (num_sampled,) of the sampled nodes."""
        nodes = self.workspace.array(f"nodes.{self.name}", self.num_sampled, self.met.dtype)
        np.take(self.met.nodes(), self._order(self.num_sampled), out=nodes)
        return nodes


@dataclass(eq=False, slots=True)
class _Columns:
    """A collection of the in-edges of sampled nodes in one relation."""

    graph: HeteroGraph
    types: dict[str, _Type]
    relation: Relation
    name: str
    num_read: int = 0
    """Number of sampled nodes whose columns were read."""

    def _read(self) -> tuple[Array, Array]:
        """Read the columns of newly sampled nodes. Return the ends of all columns read so far, and the indices of the sources among the candidates."""
        source, _, destination = self.relation
        columns, of, workspace = self.graph.relations[self.relation], self.types[destination], self.types[source].workspace
        first, last, nodes = self.num_read, of.num_sampled, of.nodes()
        ends = workspace.array(f"ends{self.name}", last + 1, np.int64, keep=first + 1 if first else 0)
        ends[: 0 if first else 1] = 0
        before = int(ends[first])
        after = before + int(total_degree(columns.indptr, nodes[first:], last - first))
        met = workspace.array(f"met{self.name}", after, columns.indices.dtype, keep=before)
        kernels.copy_columns_after(columns.indptr, columns.indices, nodes, first, last, ends, met)
        self.types[source].met.relabel(met[before:])
        self.num_read = last
        return ends, met

    def add_budgets(self) -> None:
        """Add 1 / degree to the budget of the source of each in-edge of the newly sampled nodes."""
        first = self.num_read
        ends, met = self._read()
        kernels.add_budgets(ends, met, first, self.num_read, *self.types[self.relation[0]].places_and_budgets())

    def block(self) -> Block:
        """Return the block of all edges between sampled nodes."""
        ends, met = self._read()
        source, of = self.types[self.relation[0]], self.types[self.relation[2]]
        columns, array = self.graph.relations[self.relation], of.workspace.array
        indptr = array(f"indptr{self.name}", of.num_sampled + 1, id_dtype(len(met) + 1))
        indices = array(f"indices{self.name}", len(met), columns.indices.dtype)
        edge_ids = array(f"edge_ids{self.name}", len(met), id_dtype(columns.num_edges))
        places, _ = source.places_and_budgets()
        kept = kernels.keep_sampled(columns.indptr, of.nodes(), of.num_sampled, ends, met, places, indptr, indices, edge_ids)
        return Block(indptr=indptr, indices=indices[:kept], edge_ids=edge_ids[:kept], num_src=source.num_sampled)
