"""Models of links and triples in plain PyG, trained for hoptrain's CPU time: the baselines of ``hoptrain bench accuracy --configs ogbl_ddi`` and others.

Most of these models cannot be compared after equal numbers of epochs or batches: a step on links computes on the whole graph, since PyG's ``NeighborLoader``
needs pyg-lib, and PyG's example for triples has another loss than 1-vs-K. Two models are trained batch by batch as in the configuration instead: R-GCN,
whose edges are sampled with a few lines of torch, with the distribution of ``NeighborSampler``; and LightGCN, which computes on the whole graph in the paper
and in PyG's example too. Splits and metrics are hoptrain's for all.

Each model is a pair: an iterator that trains, and yields when a validation is due; and a function that takes a split's name and returns its metric.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf, log
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hoptrain.benchmarks.baselines.plain import adjacency, edge_index, opened, whole
from hoptrain.trainers.metrics.links import PooledScore, RankScore
from hoptrain.trainers.metrics.top import make_top_score, top_of
from hoptrain.trainers.models.decoders import make_decoder
from hoptrain.trainers.models.ranks import MOST_NUMBERS, best_of_sources, ranks_but, scores_in_parts
from hoptrain.trainers.tasks.kg import TripleDataModule
from hoptrain.trainers.tasks.links.data import LinkDataModule

BATCH = 65_536
"""Number of links in a step that computes on the whole graph, as in OGB's ``examples/linkproppred/ddi/gnn.py``."""
_EXAMPLE = {"hidden_channels": 50, "batch_size": 1000, "lr": 0.001, "weight_decay": 1e-6, "epochs_a_validation": 5}
"""Settings of DistMult in PyG's ``examples/kge_fb15k_237.py``."""

Judge = Callable[[str], float]


def plain_pairs_score(config: Mapping[str, Any], seed: int, seconds: float) -> float:
    """Return the test metric of the state with the best validation metric, for a configuration of task links or triples.

    Args:
        config: content of the configuration file.
        seed: seed of all random generators that PyG uses.
        seconds: CPU seconds to train for, including validation. R-GCN and LightGCN ignore it and train for the configuration's epochs.
    """
    from torch_geometric import seed_everything

    seed_everything(seed)
    begin = time.process_time()
    if config["model"].get("arch") == "lightgcn":
        (rounds, judge), seconds = _lightgcn(config), inf
    elif config["task"] == "links":
        rounds, judge = _links(config)
    elif config["data"].get("sampler") is None:
        rounds, judge = _distmult(config)
    else:
        (rounds, judge), seconds = _rgcn(config), inf
    best, found = -inf, 0.0
    for _ in rounds:  # the iterator trains, and yields when a validation is due
        value = judge("val")
        if value > best:
            best, found = value, judge("test")
        if time.process_time() - begin > seconds:
            break
    return found


def _links(config: Mapping[str, Any]) -> tuple[Iterator[None], Judge]:
    """Train and evaluate the configuration's link model, with messages along all edges in each step.

    Each link has one negative. With embeddings the batches are those of OGB's example; with features each step takes all links, as in PyG's
    ``examples/link_pred.py``.
    """
    from torch_geometric.nn import GCN, GraphSAGE
    from torch_geometric.utils import negative_sampling

    module, options = opened(LinkDataModule, config), config["model"]
    data, width, outs = module.data, options["hidden_channels"], options["out_channels"]
    links = edge_index(data)
    if data.x is None:
        x, graph, size, method = nn.Embedding(data.graph.num_nodes, width).weight, adjacency(data), BATCH, "dense"
        nn.init.xavier_uniform_(x)
    else:
        (x, graph), size, method = whole(data, options), links.shape[1], "sparse"
    kind = {"sage": GraphSAGE, "gcn": GCN}[options["arch"]]
    gnn = kind(x.shape[1], width, module.num_hops, outs, dropout=options.get("dropout", 0.0))
    decoder = make_decoder(options.get("decoder", "dot"), outs)
    parts = nn.ModuleList([gnn, decoder])
    optimizer = torch.optim.Adam([each for each in (x, *parts.parameters()) if each.requires_grad], lr=options["lr"])

    def rounds() -> Iterator[None]:
        while True:
            for part in torch.split(torch.randperm(links.shape[1]), size):
                parts.train()
                vectors = gnn(x, graph)
                others = negative_sampling(links, data.graph.num_nodes, len(part), method=method)
                loss = F.softplus(-decoder(*vectors[links[:, part]])).mean() + F.softplus(decoder(*vectors[others])).mean()
                _step([optimizer], loss)
            yield

    @torch.no_grad()
    def judge(split: str) -> float:
        parts.eval()
        held, metric = module.held_out[split], PooledScore(options.get("metric", module.default_metric))
        pairs = torch.from_numpy(np.concatenate([held.links, held.others], axis=1))
        found = scores_in_parts(decoder, gnn(x, graph), pairs)
        metric.update(found, torch.arange(len(found)) < held.links.shape[1])
        return float(metric.compute())

    return rounds(), judge


def _lightgcn(config: Mapping[str, Any]) -> tuple[Iterator[None], Judge]:
    """Train and evaluate PyG's ``LightGCN``, with the loss and negatives of ``examples/lightgcn.py`` and the configuration's batches and epochs."""
    from torch_geometric.nn import LightGCN
    from torch_geometric.nn.conv.gcn_conv import gcn_norm

    module, options = opened(LinkDataModule, config), config["model"]
    data, (begin, end), score = module.data, module.bounds, options["metric"]
    # No normalisation, since the graph already has normalised edge weights.
    model = LightGCN(data.graph.num_nodes, options["hidden_channels"], module.num_hops, normalize=False)
    optimizer, (graph, _) = torch.optim.Adam(model.parameters(), lr=options["lr"]), gcn_norm(adjacency(data), add_self_loops=False)
    links = edge_index(data)
    links = links[:, links[1] >= begin]  # keeps the edges from users to items

    def rounds() -> Iterator[None]:
        for _ in range(config["trainer"]["max_epochs"]):
            for part in torch.split(torch.randperm(links.shape[1]), module.batch_size):
                negatives = torch.stack([links[0, part], torch.randint(begin, end, (len(part),))])
                pairs = torch.cat([links[:, part], negatives], 1)
                of_links, of_others = model(graph, pairs).chunk(2)
                _step([optimizer], model.recommendation_loss(of_links, of_others, torch.unique(pairs), lambda_reg=options["l2"]))
        yield

    @torch.no_grad()
    def judge(split: str) -> float:
        if split == "val":
            return 0.0  # Gowalla has no validation split, so the final state is tested
        metric, vectors, own = make_top_score(score), model.get_embedding(graph), torch.from_numpy(module.held_out[split].links)
        for found in best_of_sources(make_decoder("dot", vectors.shape[1]), vectors, own, module.bounds, module.passed, top_of(score)):
            metric.update(*found)
        return float(metric.compute())

    return rounds(), judge


def _distmult(config: Mapping[str, Any]) -> tuple[Iterator[None], Judge]:
    """Train and evaluate PyG's ``DistMult``, with the loss and loader of PyG's example."""
    from torch_geometric.nn import DistMult

    module = TripleDataModule(**config["data"])
    model = DistMult(module.num_nodes, module.num_relations, _EXAMPLE["hidden_channels"])
    optimizer = torch.optim.Adam(model.parameters(), lr=_EXAMPLE["lr"], weight_decay=_EXAMPLE["weight_decay"])
    loader = model.loader(*torch.from_numpy(module.triples.splits["train"]).T, batch_size=_EXAMPLE["batch_size"], shuffle=True)

    def rounds() -> Iterator[None]:
        while True:
            for _ in range(int(_EXAMPLE["epochs_a_validation"])):
                for triples in loader:
                    _step([optimizer], model.loss(*triples))
            yield

    @torch.no_grad()
    def judge(split: str) -> float:
        return mrr(module, split, model.node_emb.weight, model.rel_emb.weight.repeat(2, 1))

    return rounds(), judge


def _rgcn(config: Mapping[str, Any]) -> tuple[Iterator[None], Judge]:
    """Train and evaluate ``RGCN``, with the loss of task kg and the configuration's epochs."""
    module, options, trainer = opened(TripleDataModule, config), config["model"], config["trainer"]
    triples, num_nodes, num_negatives = torch.from_numpy(module.triples.splits["train"]), module.num_nodes, config["data"]["num_negatives"]
    model, (fanout,) = RGCN(triples, num_nodes, module.num_relations, options), config["data"]["sampler"]["init_args"]["fanouts"]
    table, *others = model.parameters()
    optimizers = torch.optim.SparseAdam([table], lr=options["lr"]), torch.optim.Adam(others, lr=options["lr"])

    def rounds() -> Iterator[None]:
        for epoch in range(1, 1 + trainer["max_epochs"]):
            for numbers in torch.split(torch.randperm(len(triples)), module.batch_size):
                heads, kinds, tails = triples[numbers].T
                negatives = torch.randint(num_nodes, (num_negatives,))
                vectors = model(model.drawn(torch.cat([heads, tails, negatives]), numbers, fanout))
                queries = vectors[torch.cat([heads, tails])] * model.relations(torch.cat([kinds, module.num_relations + kinds]))
                answers = torch.cat([tails, heads])
                scores = (queries @ vectors[negatives].T).masked_fill(negatives == answers[:, None], -inf)
                weighed = scores.logsumexp(1) + log(num_nodes / num_negatives)  # scales the sum over sampled negatives to all entities
                _step(optimizers, F.softplus(weighed - (queries * vectors[answers]).sum(1)).mean())
            if epoch % trainer.get("check_val_every_n_epoch", 1) == 0:
                yield

    @torch.no_grad()
    def judge(split: str) -> float:
        return mrr(module, split, model(torch.arange(2 * len(triples))), model.relations.weight)

    return rounds(), judge


class RGCN(nn.Module):
    """One layer of PyG's ``FastRGCNConv`` on entity embeddings, averaged over all edges of an entity, with relation embeddings for the decoder."""

    def __init__(self, triples: Tensor, num_nodes: int, num_relations: int, options: Mapping[str, Any]) -> None:
        """Store the edges: first the ``triples`` (T, 3), then the same triples reversed."""
        super().__init__()
        from torch_geometric.nn import FastRGCNConv

        width = options["hidden_channels"]
        self.table, self.relations = nn.Embedding(num_nodes, width, sparse=True), nn.Embedding(2 * num_relations, width)
        nn.init.normal_(self.table.weight, std=width**-0.5)
        nn.init.normal_(self.relations.weight, mean=1, std=0.1)
        self.conv = FastRGCNConv(
            width, width, 2 * num_relations, num_blocks=options["num_blocks"], aggr="add", root_weight=False, bias=False
        )
        self.own = nn.Linear(width, width)
        heads, kinds, tails = triples.T
        self.edges = torch.stack([torch.cat([heads, tails]), torch.cat([tails, heads])])
        self.kinds = torch.cat([kinds, num_relations + kinds])

    def forward(self, chosen: Tensor) -> Tensor:
        """Compute the entities' vectors (V, C) from the ``chosen`` edges, in pieces: PyG creates a matrix for each edge of a piece at once."""
        inputs = self.table(torch.arange(self.table.num_embeddings))
        sums = sum(self.conv(inputs, self.edges[:, part], self.kinds[part]) for part in torch.split(chosen, 1 << 16))
        degrees = torch.bincount(self.edges[1, chosen], minlength=len(inputs)).clamp(min=1)
        vectors: Tensor = sums / degrees[:, None] + self.own(inputs)
        return vectors

    def drawn(self, entities: Tensor, numbers: Tensor, fanout: int) -> Tensor:
        """Draw up to ``fanout`` in-edges of each entity, uniformly without replacement. Triples with indices ``numbers`` are left out in both directions."""
        is_asked, is_left = torch.zeros(self.table.num_embeddings, dtype=torch.bool), torch.ones(len(self.kinds), dtype=torch.bool)
        is_asked[entities] = True
        is_left.view(2, -1)[:, numbers] = False
        chosen = (is_asked[self.edges[1]] & is_left).nonzero()[:, 0]
        chosen = chosen[torch.randperm(len(chosen))]
        ends, order = self.edges[1, chosen].sort(stable=True)
        place = torch.arange(len(ends)) - torch.searchsorted(ends, ends)
        return chosen[order[place < fanout]]


def mrr(module: TripleDataModule, split: str, vectors: Tensor, relations: Tensor) -> float:
    """Return the filtered MRR of heads and tails with DistMult; ``relations`` is (2 R, C), with the inverse relations last."""
    metric = RankScore("mrr")
    for queries in torch.split(torch.from_numpy(module.triples.queries(split)), MOST_NUMBERS // len(vectors)):
        heads, kinds, tails = queries.T
        scores = (vectors[heads] * relations[kinds]) @ vectors.T
        ranks = ranks_but(scores, tails, *module.known.places(heads.numpy(), kinds.numpy()))
        metric.update(ranks, torch.ones_like(ranks))
    return float(metric.compute())


def _step(optimizers: Sequence[torch.optim.Optimizer], loss: Tensor) -> None:
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    for optimizer in optimizers:
        optimizer.step()
