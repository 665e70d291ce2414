"""A slow reference implementation of pyg-lib's sampler, for PyG's own loaders."""

from unittest.mock import patch

import numpy as np
import torch
import torch_geometric.loader
from torch_geometric.data import Data
from torch_geometric.sampler import HeteroSamplerOutput, NeighborSampler, SamplerOutput


def sample_as_pyg_lib(colptr, row, seeds, fanouts, generator, *, replace=False, times=None, seed_times=None, disjoint=False, last=False):
    """Sample hop by hop around the nodes that the previous hop found, each seed in its own tree if ``disjoint``.

    With ``times`` (E,), only edges up to the time of the seed in ``seed_times`` are sampled.
    """
    colptr, row = colptr.tolist(), row.tolist()
    times, seed_times = (None if each is None else each.numpy() for each in (times, seed_times))
    nodes = [(tree if disjoint else 0, v) for tree, v in enumerate(seeds.tolist())]
    local = {node: i for i, node in reversed(list(enumerate(nodes)))}
    rows, cols, edges, num_nodes, num_edges = [], [], [], [len(nodes)], []
    begin = 0
    for fanout in fanouts:
        end, before = len(nodes), len(rows)
        for i in range(begin, end):
            tree, v = nodes[i]
            admitted = np.arange(colptr[v], colptr[v + 1])
            if times is not None:
                admitted = admitted[times[admitted] <= seed_times[tree]]
                admitted = admitted[times[admitted].argsort(kind="stable")]
            if last and fanout >= 0:
                admitted = admitted[max(0, len(admitted) - fanout) :]
            if replace and fanout >= 0:
                draws = torch.randint(max(1, len(admitted)), (fanout if len(admitted) else 0,), generator=generator)
            else:
                draws = torch.randperm(len(admitted), generator=generator)[: fanout if fanout >= 0 else None]
            for edge in admitted[draws.numpy()].tolist():
                node = (tree, row[edge])
                if node not in local:
                    local[node] = len(nodes)
                    nodes.append(node)
                rows.append(local[node])
                cols.append(i)
                edges.append(edge)
        begin = end
        num_nodes.append(len(nodes) - end)
        num_edges.append(len(rows) - before)
    trees = torch.tensor([tree for tree, _ in nodes]) if disjoint else None
    tensors = [torch.tensor(each, dtype=torch.long) for each in ([v for _, v in nodes], rows, cols, edges)]
    return SamplerOutput(*tensors, batch=trees, num_sampled_nodes=num_nodes, num_sampled_edges=num_edges)


def sample_types_as_pyg_lib(columns, seeds, fanouts, generator, *, replace=False, times=None, seed_times=None, disjoint=False, last=False):
    """Sample as ``sample_as_pyg_lib`` in a heterogeneous graph: each relation draws for the destinations that the previous hop found.

    ``columns`` has (colptr, row) by relation; ``times`` has the times of each relation with times.
    """
    columns = {relation: (colptr.tolist(), row.tolist()) for relation, (colptr, row) in columns.items()}
    times = None if times is None else {relation: own.numpy() for relation, own in times.items()}
    trees = [(kind, v) for kind, ids in seeds.items() for v in ids.tolist()]
    bounds = None if seed_times is None else [t for kind in seeds for t in seed_times[kind].tolist()]
    kinds = {kind for source, _, destination in columns for kind in (source, destination)} | set(seeds)
    nodes = {kind: [(tree if disjoint else 0, v) for tree, (own, v) in enumerate(trees) if own == kind] for kind in sorted(kinds)}
    local = {kind: {node: i for i, node in reversed(list(enumerate(own)))} for kind, own in nodes.items()}
    edges = {relation: [] for relation in columns}
    num_nodes, num_edges = {kind: [len(own)] for kind, own in nodes.items()}, {relation: [] for relation in columns}
    begins = dict.fromkeys(nodes, 0)
    for hop in range(len(next(iter(fanouts.values())))):
        ends = {kind: len(own) for kind, own in nodes.items()}
        for relation, (colptr, row) in columns.items():
            (source, _, destination), fanout, before = relation, fanouts[relation][hop], len(edges[relation])
            for i in range(begins[destination], ends[destination]):
                tree, v = nodes[destination][i]
                admitted = np.arange(colptr[v], colptr[v + 1])
                if times is not None and relation in times:
                    admitted = admitted[times[relation][admitted] <= bounds[tree]]
                    if last and fanout >= 0:
                        admitted = admitted[times[relation][admitted].argsort(kind="stable")][max(0, len(admitted) - fanout) :]
                if replace and fanout >= 0:
                    draws = torch.randint(max(1, len(admitted)), (fanout if len(admitted) else 0,), generator=generator)
                else:
                    draws = torch.randperm(len(admitted), generator=generator)[: fanout if fanout >= 0 else None]
                for edge in admitted[draws.numpy()].tolist():
                    node = (tree, row[edge])
                    if node not in local[source]:
                        local[source][node] = len(nodes[source])
                        nodes[source].append(node)
                    edges[relation].append((local[source][node], i, edge))
            num_edges[relation].append(len(edges[relation]) - before)
        begins = ends
        for kind, own in nodes.items():
            num_nodes[kind].append(len(own) - ends[kind])

    def column(place):
        return {relation: torch.tensor([edge[place] for edge in own], dtype=torch.long) for relation, own in edges.items()}

    def of_nodes(place):
        return {kind: torch.tensor([node[place] for node in own], dtype=torch.long) for kind, own in nodes.items()}

    trees = of_nodes(0) if disjoint else None
    return HeteroSamplerOutput(
        of_nodes(1), column(0), column(1), column(2), trees, num_sampled_nodes=num_nodes, num_sampled_edges=num_edges
    )


class ReferenceSampler(NeighborSampler):
    """PyG's ``NeighborSampler`` with the slow sampler instead of pyg-lib, which has to be compiled."""

    generator = torch.Generator().manual_seed(0)

    def __init__(self, *args, **options):
        names = ("WITH_PYG_LIB", "WITH_EDGE_TIME_NEIGHBOR_SAMPLE", "WITH_WEIGHTED_NEIGHBOR_SAMPLE")
        with patch.multiple("torch_geometric.typing", **dict.fromkeys(names, True)):
            super().__init__(*args, **options)

    def _sample(self, seed, seed_time=None, **_):
        if self.is_hetero:
            return self._sample_types(seed, seed_time)
        times = self.edge_time if self.node_time is None else self.node_time[self.row]
        if times is not None and seed_time is None:
            seed_time = self.node_time[seed]
        out = sample_as_pyg_lib(
            self.colptr,
            self.row,
            seed,
            self.num_neighbors.get_mapped_values(),
            self.generator,
            replace=self.replace,
            times=times,
            seed_times=seed_time,
            disjoint=self.disjoint,
            last=self.temporal_strategy == "last",
        )
        if self.sample_direction == "backward":
            out.row, out.col = out.col, out.row
        return out

    def _sample_types(self, seed, seed_time):
        def by_type(values):
            return {self.to_edge_type[name]: own for name, own in values.items()}

        rows = by_type(self.row_dict)
        times = None if self.edge_time is None else by_type(self.edge_time)
        if self.node_time is not None:
            times = {relation: self.node_time[relation[0]][row] for relation, row in rows.items() if relation[0] in self.node_time}
            seed_time = seed_time or {kind: self.node_time[kind][ids] for kind, ids in seed.items()}
        columns = {relation: (colptr, rows[relation]) for relation, colptr in by_type(self.colptr_dict).items()}
        fanouts, last = self.num_neighbors.get_values(self.edge_types), self.temporal_strategy == "last"
        options = {"replace": self.replace, "times": times, "seed_times": seed_time, "disjoint": self.disjoint, "last": last}
        return sample_types_as_pyg_lib(columns, seed, fanouts, self.generator, **options)


def _sampler(data, num_neighbors, **options):
    names = ("replace", "subgraph_type", "disjoint", "temporal_strategy", "time_attr", "is_sorted")
    return ReferenceSampler(data, num_neighbors, **{name: options[name] for name in names if name in options})


class NeighborLoader(torch_geometric.loader.NeighborLoader):
    def __init__(self, data, num_neighbors, **options):
        super().__init__(data, num_neighbors, neighbor_sampler=_sampler(data, num_neighbors, **options), **options)


class LinkNeighborLoader(torch_geometric.loader.LinkNeighborLoader):
    def __init__(self, data, num_neighbors, **options):
        super().__init__(data, num_neighbors, neighbor_sampler=_sampler(data, num_neighbors, **options), **options)


class GraphSAINTRandomWalkSampler(torch.utils.data.DataLoader):
    """A replacement for PyG's class, which needs torch-sparse. Batches are ``data.subgraph`` of the walks; norms follow PyG's definition."""

    def __init__(self, data, batch_size, walk_length, num_steps=1, sample_coverage=0, log=True):
        self.data, self.roots, self.length = data, batch_size, walk_length
        self.starts = torch.searchsorted(data.edge_index[0].sort().values, torch.arange(data.num_nodes + 1))
        self.to = data.edge_index[1][data.edge_index[0].sort().indices]
        super().__init__(range(num_steps), batch_size=1, collate_fn=self._drawn)
        nodes, edges, drawn, number = torch.zeros(data.num_nodes), torch.zeros(data.num_edges), 0, 0
        marked = Data(edge_index=data.edge_index, node=torch.arange(data.num_nodes), edge=torch.arange(data.num_edges))
        while drawn < data.num_nodes * sample_coverage:
            one = marked.subgraph(self._walked())
            nodes[one.node] += 1
            edges[one.edge] += 1
            drawn, number = drawn + len(one.node), number + 1
        data.edge_norm = (nodes[data.edge_index[0]] / edges).clamp_(0, 1e4).nan_to_num(0.1)
        data.node_norm = number / nodes.clamp(min=0.1) / data.num_nodes

    def _walked(self):
        at = torch.randint(self.data.num_nodes, (self.roots,))
        met = [at]
        for _ in range(self.length):
            begins, degrees = self.starts[at], self.starts[at + 1] - self.starts[at]
            taken = begins + (torch.rand(len(at)) * degrees).long()
            at = torch.where(degrees > 0, self.to[taken.clamp(max=len(self.to) - 1)], at)
            met.append(at)
        return torch.cat(met).unique()

    def _drawn(self, _):
        return self.data.subgraph(self._walked())
