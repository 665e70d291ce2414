"""Link prediction on typed graphs: which vertices a relation joins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from hoptrain.engine import Graph, HeteroDataset, InputError, load_hetero_dataset
from hoptrain.engine.arrays import Array
from hoptrain.engine.derived.link_split import HeldOut, SharedLinks, pairs_without_link
from hoptrain.engine.derived.typed_link_split import TypedLinkSplit, given_typed_links, hold_out_typed_links
from hoptrain.engine.errors import check_choice
from hoptrain.engine.hetero_graph import Relation, relation_name
from hoptrain.samplers import HeteroLinkSampler, HeteroMiniBatch, Sampler
from hoptrain.trainers.models.decoders import DecoderName
from hoptrain.trainers.models.ranks import Bounds
from hoptrain.trainers.models.typed.gnn import TypedGNN
from hoptrain.trainers.models.typed.layers import TypedArch
from hoptrain.trainers.tasks import TASKS
from hoptrain.trainers.tasks.graph_task import seed_dropout
from hoptrain.trainers.tasks.node_data import NodeBatch
from hoptrain.trainers.tasks.options import check_training
from hoptrain.trainers.tasks.pairs.link_data import SHARES, Split, check_split, check_top, link_batches
from hoptrain.trainers.tasks.pairs.linked import Linked, Loss, OfRelation
from hoptrain.trainers.tasks.shared_data import opened
from hoptrain.trainers.tasks.typed_task import TypedDataModule, TypedTask, check_embeddings, check_within_reach


class HeteroLinkDataModule(TypedDataModule):
    """Holds links of one relation or of several out of a typed graph, and feeds training with the others through a ``HeteroLinkSampler``.

    Messages pass along all edges that are left, in validation and test too. Labels are not needed.

    Attributes:
        held_out: the links of validation and test, and what they are told from. Ends are numbered by one count: of each relation source u is begin + u,
            destination v is begin + V_s + v, behind the V_s vertices of the sources' type, also where both are of one type.
        known: the graph of all links of the relations, also those held out, in both directions, numbered so.
        passed: likewise that of the links that are left.
        ends: of each relation the numbers [begin, end) of sources, and of destinations.

    Examples:
        >>> from hoptrain import HeteroLinkDataModule, HeteroLinkSampler, HeteroSampler
        >>> paths = {"sampler": HeteroSampler([5, 5]), "relation": ("paper", "has_topic", "field_of_study")}
        >>> sampler = HeteroLinkSampler(**paths, exclude="reverse", reverse_relation=("field_of_study", "rev_has_topic", "paper"))
        >>> data = HeteroLinkDataModule("synthetic:mag", sampler, scale=0.001, add_reverse=True, batch_size=64, num_workers=0, seed=1)
        >>> batch = next(iter(data.train_dataloader()))
        >>> batch.extra["pairs"].shape, batch.seed_relation
        ((2, 128), ('paper', 'has_topic', 'field_of_study'))
    """

    def __init__(
        self,
        dataset: str | HeteroDataset,
        sampler: Sampler,
        root: str | None = None,
        scale: float = 1.0,
        add_reverse: bool = False,
        seed_type: str | None = None,
        val_share: float = SHARES[0],
        test_share: float = SHARES[1],
        split_seed: int = 0,
        split: Split | None = None,
        eval_negatives: Literal["uniform", "all"] = "uniform",
        shared_links: SharedLinks | None = None,
        **feed: Any,
    ) -> None:
        """Open the data set and hold out links.

        Args:
            dataset: as ``HeteroDataModule``; labels are not needed.
            sampler: a ``HeteroLinkSampler`` without edges; it says the relations, and their reverse ones.
            root: folder with the data's files; by default $HOPTRAIN_DATA.
            scale: size of a synthetic data set as a share of the real one.
            add_reverse: turn each relation round as well, as one more, rev_NAME.
            seed_type: any type, where no table of a folder has labels.
            val_share: part of each relation's links for validation.
            test_share: part of them for the test.
            split_seed: of the choice of these links: another seed of the training has the same.
            split: which links are held out: a share of them at random, those of the latest time, or those given by ``HeteroDataset.edge_splits``. By
                default given ones where one of the relations has some, else share.
            eval_negatives: what links are told from in validation and test: as many uniform pairs of the relation's types that are no links, or ``all``:
                each with all destinations for its source and with all sources for its destination, but for other links.
            shared_links: as of ``LinkDataModule``.
            feed: as ``SampledDataModule``; ``batch_size`` counts edges.

        Raises:
            InputError: a sampler that is no ``HeteroLinkSampler``, or names its edges; shares that have no effect; as ``hold_out_typed_links``,
                ``given_typed_links`` and ``check_within_reach``.
        """
        dealing = _checked(sampler, split, eval_negatives, shared_links)
        data = opened(dataset, load_hetero_dataset, root=root, scale=scale, add_reverse=add_reverse, seed_type=seed_type)
        made = _split_of(data, dealing, split, {"val": val_share, "test": test_share}, split_seed, shared_links)
        self.known: Graph = made.known
        self.passed: Graph = made.passed
        self.ends: list[tuple[Bounds, Bounds]] = list(ends_of(dealing.relations, data.graph.num_nodes))
        others = self._others(made.links, split_seed) if eval_negatives != "all" else dict.fromkeys(made.links)
        self.held_out: dict[str, HeldOut] = {name: HeldOut(own, others[name]) for name, own in made.links.items()}
        kind = dealing.relations[0][2]
        splits = {"train": np.arange(data.graph.num_nodes[kind])}
        splits |= {name: self._judged(own) for name, own in made.links.items() if own.shape[1]}
        changed: dict[str, Any] = {"edge_splits": {}, "seed_type": kind, "y": None, "num_classes": 0, "path": None, "validate": False}
        left = replace(data, graph=made.graph, splits=splits, **changed)
        check_within_reach(left, types_of(dealing.relations), dealing.num_hops)
        super().__init__(left, dealing, **feed)

    def _others(self, links: Mapping[str, Array], seed: int) -> dict[str, Array | None]:
        """For each split as many pairs (2, N) that are no links, relation by relation; no pair of a relation is in two splits."""
        draws = [pairs_without_link(self.known, own) for own in self.ends]
        before, others = [np.zeros((2, 0), np.int64)] * len(draws), dict[str, Array | None]()
        for stream, (name, own) in enumerate(links.items()):
            numbers = np.bincount(relations_of(own, self.ends), minlength=len(draws)).tolist()
            parts = [draw(number, seed, stream, taken) for draw, number, taken in zip(draws, numbers, before, strict=True)]
            before = [np.concatenate(pair, axis=1) for pair in zip(before, parts, strict=True)]
            others[name] = np.concatenate(parts, axis=1)
        return others

    def _judged(self, links: Array) -> Array:
        """The first relation's destinations among ``links`` (2, N), which stand for what is judged where a split of vertices is asked for."""
        begin, end = self.ends[0][1]
        return np.unique(links[1][(links[1] >= begin) & (links[1] < end)] - begin)

    @property
    def link_relation(self) -> str | list[str]:
        """``source:name:destination`` of the links; a list of several relations'."""
        names = list(map(relation_name, self.sampler.relations))  # type: ignore[attr-defined]
        return names[0] if len(names) == 1 else names

    @property
    def num_ends(self) -> int:
        """Sources and destinations of all relations, by one count."""
        return self.known.num_nodes

    def check_score(self, score: str, number: int) -> None:
        """Whether evaluation gives a score; of those of each source's best ``number`` destinations it is that, else 0.

        Raises:
            InputError: the best are not found among all destinations, or these are fewer.
        """
        is_among_all = all(held.others is None for held in self.held_out.values())
        for _, destinations in self.ends:
            check_top(score, number, is_among_all, destinations)

    def val_dataloader(self) -> DataLoader[Any]:
        """This rank's share of the validation links."""
        return link_batches(self, "val")

    def test_dataloader(self) -> DataLoader[Any]:
        """This rank's share of the test links."""
        return link_batches(self, "test")

    def predict_dataloader(self) -> DataLoader[NodeBatch]:
        """This rank's share of the vertices of all types that links join, type by type."""
        relations = self.sampler.relations  # type: ignore[attr-defined]
        return self._node_batches(np.arange(sum(self.data.graph.num_nodes[kind] for kind in types_of(relations))))


def _checked(sampler: Sampler, split: str | None, eval_negatives: str, shared_links: str | None) -> HeteroLinkSampler:
    """The sampler as it deals out all edges of a graph, once all options are among those that there are."""
    for name, value, choices in (("split", split, Split), ("shared_links", shared_links, SharedLinks)):
        if value is not None:
            check_choice(name, value, get_args(choices))
    check_choice("eval_negatives", eval_negatives, ["uniform", "all"])
    if not isinstance(sampler, HeteroLinkSampler) or sampler.edges is not None:
        raise InputError(
            f"the sampler is {sampler!r}: links of a typed graph are dealt out by a HeteroLinkSampler without edges, which are held out here; use one"
        )
    dealing = copy(sampler)
    dealing.edges = "all"
    return dealing


def _split_of(
    data: HeteroDataset,
    sampler: HeteroLinkSampler,
    split: Split | None,
    shares: Mapping[str, float],
    seed: int,
    shared_links: SharedLinks | None,
) -> TypedLinkSplit:
    """The links that are held out; see ``HeteroLinkDataModule``."""
    relations = dict(zip(sampler.relations, sampler.reverses, strict=True))
    taken: Split = split or ("given" if data.edge_splits.keys() & relations.keys() else "share")
    check_split(taken, data.name, shares, shared_links)
    if taken == "given":
        return given_typed_links(data, relations, shared_links)
    return hold_out_typed_links(data.graph, relations, shares, seed=seed, by_time=taken == "time")


def types_of(relations: Sequence[Relation]) -> list[str]:
    """The types that relations join, each once, the sources' before the destinations'."""
    return list(dict.fromkeys(kind for source, _, destination in relations for kind in (source, destination)))


def ends_of(relations: Sequence[Relation], num_nodes: Mapping[str, int]) -> Iterator[tuple[Bounds, Bounds]]:
    """Of each relation the numbers [begin, end) of sources and of destinations, as of ``hold_out_typed_links``."""
    begin = 0
    for source, _, destination in relations:
        middle = begin + num_nodes[source]
        end = middle + num_nodes[destination]
        yield (begin, middle), (middle, end)
        begin = end


def relations_of(pairs: Array, ends: Sequence[tuple[Bounds, Bounds]]) -> Array:
    """(N,) the places of the relations that ``pairs`` (2, N) are of."""
    places: Array = np.searchsorted([begin for (begin, _), _ in ends], pairs[0], side="right") - 1
    return places


class HeteroLinkPredictor(TypedTask, Linked):
    """A ``TypedGNN`` that gives vectors of the types that links join, and a decoder for each relation, which scores a source and a destination by theirs.

    Logs ``train_loss``, and for validation and test the loss and the score, as ``val_auc`` for instance. The loss is that of ``LinkPredictor``. Of several
    relations the score is that of all links together, and the score of each one's own is logged too, as ``val_auc/author:writes:paper``.

    Examples:
        >>> from pytorch_lightning import Trainer
        >>> from hoptrain import HeteroLinkDataModule, HeteroLinkPredictor, HeteroLinkSampler, HeteroSampler
        >>> sampler = HeteroLinkSampler(HeteroSampler([5, 5]), ("author", "writes", "paper"))
        >>> data = HeteroLinkDataModule("synthetic:mag", sampler, scale=0.001, num_workers=0, seed=1)
        >>> sizes = {"in_channels": data.num_features, "num_vertices": data.num_vertices, "relations": data.relations}
        >>> model = HeteroLinkPredictor(**sizes, link_relation=data.link_relation, num_layers=data.num_hops, embeddings=True)
        >>> trainer = Trainer(fast_dev_run=2, enable_progress_bar=False, enable_model_summary=False)
        >>> trainer.fit(model, data)
        >>> sorted(trainer.callback_metrics)
        ['train_loss', 'val_auc', 'val_loss']
    """

    data_class: ClassVar[type[TypedDataModule]] = HeteroLinkDataModule
    model: Any

    def __init__(
        self,
        in_channels: dict[str, int],
        num_vertices: dict[str, int],
        relations: list[str],
        link_relation: str | list[str],
        num_layers: int,
        hidden_channels: int = 64,
        out_channels: int = 64,
        decoder: DecoderName = "dot",
        score: str = TASKS["hetero_links"].score,
        hard_negatives: int | None = None,
        loss: Loss = "bce",
        arch: TypedArch = "rgcn",
        embeddings: bool = False,
        normalize_features: bool = False,
        lr: float = 0.003,
        weight_decay: float = 0.0,
        **gnn: Any,
    ) -> None:
        """Build the model. The first five arguments come from the data when the command line is used.

        Args:
            in_channels: features of a vertex, by type, of the types that have some.
            num_vertices: vertices of the types without features.
            relations: ``source:name:destination`` of each.
            link_relation: that of the links, or those.
            num_layers: hops of the sampler.
            hidden_channels: width of all layers (with attention over all heads together).
            out_channels: width of the vectors that are scored.
            decoder: as of ``LinkPredictor``.
            score: as of ``LinkPredictor``.
            hard_negatives: as of ``LinkPredictor``.
            loss: as of ``LinkPredictor``.
            arch: rgcn, gat, gin, graphconv, hgt, han; gatv2 or transformer, which read edges' features.
            embeddings: learn a vector for each vertex of the types without features.
            normalize_features: divide each vertex's features by their sum.
            lr: Adam's learning rate.
            weight_decay: Adam's L2 penalty; vectors of vertices have none.
            gnn: as ``TypedGNN``.

        Raises:
            InputError: numbers without meaning, a bare type without ``embeddings``; as ``Linked.decode``.
        """
        check_training(lr=lr, weight_decay=weight_decay, **gnn)
        super().__init__(None)
        self.save_hyperparameters()
        self.note_defaults(TypedGNN)
        names = [link_relation] if isinstance(link_relation, str) else link_relation
        self._relations: Any = [tuple(name.split(":")) for name in names]
        self.decode(decoder, out_channels, score, hard_negatives, loss, len(names))
        known: Any = [tuple(relation.split(":")) for relation in relations]
        self.model = TypedGNN(
            arch, in_channels, num_vertices, known, types_of(self._relations), hidden_channels, out_channels, num_layers, **gnn
        )
        check_embeddings(self.model, num_vertices, embeddings)

    @property
    def links(self) -> HeteroLinkDataModule:
        """See ``Linked``."""
        module: HeteroLinkDataModule = self._datamodule
        return module

    def setup(self, stage: str) -> None:
        """Compare the model with the data, and make the scores.

        Raises:
            InputError: as ``TypedTask.compare`` and ``Linked.take_links``.
        """
        self.compare(["num_vertices", "relations", "link_relation"])
        self.take_links()

    def forward(self, batch: HeteroMiniBatch) -> dict[str, Tensor]:
        """Vectors of the batch's seeds by type, these first."""
        vectors: dict[str, Tensor] = self.model(self.inputs(batch), batch.node_ids, batch.blocks)
        return vectors

    def training_step(self, batch: HeteroMiniBatch, batch_idx: int) -> Tensor:
        """Mean loss over the pairs of a mini-batch, links and others."""
        seed_dropout(batch, self.device)
        vectors, pairs = self(batch), batch.extra["pairs"].long()
        own = batch.extra.get("relations", torch.zeros_like(pairs[0]))
        parts, order = [], []
        for number, ((kind, _, other), decoder) in enumerate(zip(self._relations, self._decoders, strict=True)):
            order.append(torch.nonzero(own == number)[:, 0])
            source, destination = pairs[:, order[-1]]
            parts.append(decoder(vectors[kind][source], vectors[other][destination]))
        return self.loss_of(torch.cat(parts)[torch.argsort(torch.cat(order))], batch.extra["labels"])

    @property
    def _decoders(self) -> list[Any]:
        return list(self.decoder) if isinstance(self.decoder, nn.ModuleList) else [self.decoder]

    def by_relation(self, pairs: Tensor) -> list[OfRelation]:
        """See ``Linked``."""
        ends, several = self.links.ends, len(self._relations) > 1
        own = torch.from_numpy(relations_of(pairs.cpu().numpy(), ends)).to(self.device)
        names = [relation_name(relation) if several else "" for relation in self._relations]
        whiches = [torch.nonzero(own == number)[:, 0] for number in range(len(names))]
        return [
            OfRelation(name, decoder, end, end[1], which)
            for name, decoder, end, which in zip(names, self._decoders, ends, whiches, strict=True)
        ]

    def infer(self, nodes: Array) -> Tensor:
        """Vectors (N, C) of ``nodes`` (N,), ascending numbers as of ``HeteroLinkDataModule.held_out``, from full neighbourhoods."""
        asked = []
        for (kind, _, other), (sources, destinations) in zip(self._relations, self.links.ends, strict=True):
            for each, (begin, end) in ((kind, sources), (other, destinations)):
                low, high = np.searchsorted(nodes, (begin, end))
                asked.append((each, nodes[low:high] - begin))
        return self._vectors(asked)

    def _vectors(self, asked: Sequence[tuple[str, Array]]) -> Tensor:
        """Vectors (N, C) of vertices of some types, which are asked for in parts."""
        wanted = {kind: np.unique(np.concatenate([ids for other, ids in asked if other == kind])) for kind, _ in asked}
        made = self.exact(wanted)
        return torch.cat([made[kind][torch.from_numpy(np.searchsorted(wanted[kind], ids)).to(self.device)] for kind, ids in asked])

    @property
    def predicted(self) -> str:  # type: ignore[override]
        """See ``ScoredModule``."""
        return f"the vectors of all vertices of type {', and behind them of type '.join(types_of(self._relations))}"

    def predict_step(self, batch: NodeBatch, batch_idx: int) -> Tensor:
        """Vectors of this rank's share of the vertices of all types that links join, type by type, (N, C) float32 on the CPU."""
        numbers, asked, begin = batch.node_ids.cpu().numpy(), [], 0
        for kind in types_of(self._relations):
            end = begin + self.links.data.graph.num_nodes[kind]
            low, high = np.searchsorted(numbers, (begin, end))
            asked.append((kind, numbers[low:high] - begin))
            begin = end
        return self._vectors(asked).float().cpu()
