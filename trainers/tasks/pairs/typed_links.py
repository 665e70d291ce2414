"""Link prediction on typed graphs: which vertices a relation joins."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from hoptrain.engine import Graph, HeteroDataset, InputError, load_hetero_dataset
from hoptrain.engine.arrays import Array
from hoptrain.engine.derived.link_split import HeldOut, pairs_without_link
from hoptrain.engine.derived.typed_link_split import hold_out_typed_links
from hoptrain.engine.errors import check_choice
from hoptrain.engine.hetero_graph import relation_name
from hoptrain.samplers import HeteroLinkSampler, HeteroMiniBatch, Sampler
from hoptrain.trainers.models.decoders import DecoderName
from hoptrain.trainers.models.ranks import Bounds
from hoptrain.trainers.models.typed.gnn import TypedGNN
from hoptrain.trainers.models.typed.layers import TypedArch
from hoptrain.trainers.tasks import TASKS
from hoptrain.trainers.tasks.graph_task import dropout_seed
from hoptrain.trainers.tasks.node_data import NodeBatch
from hoptrain.trainers.tasks.options import check_training
from hoptrain.trainers.tasks.pairs.link_data import check_top, link_batches
from hoptrain.trainers.tasks.pairs.linked import Linked, Loss
from hoptrain.trainers.tasks.shared_data import opened
from hoptrain.trainers.tasks.typed_task import TypedDataModule, TypedTask, check_embeddings, check_within_reach


class HeteroLinkDataModule(TypedDataModule):
    """Holds links of one relation out of a typed graph, and feeds training with the others through a ``HeteroLinkSampler``.

    Messages pass along all edges that are left, in validation and test too. Labels are not needed.

    Attributes:
        held_out: the links of validation and test, and what they are told from. Ends are numbered by one count: source u is u, destination v is
            V_s + v, behind the V_s vertices of the sources' type, also where both are of one type.
        known: the graph of all links of the relation, also those held out, in both directions, numbered so.
        passed: likewise that of the links that are left.
        ends: the numbers [begin, end) of sources, and of destinations.

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
        val_share: float = 0.05,
        test_share: float = 0.1,
        split_seed: int = 0,
        split: Literal["share", "time"] = "share",
        eval_negatives: Literal["uniform", "all"] = "uniform",
        **feed: Any,
    ) -> None:
        """Open the data set and hold out links.

        Args:
            dataset: as ``HeteroDataModule``; labels are not needed.
            sampler: a ``HeteroLinkSampler`` without edges; it says the relation, and its reverse one.
            root: folder with the data's files; by default $HOPTRAIN_DATA.
            scale: size of a synthetic data set as a share of the real one.
            add_reverse: turn each relation round as well, as one more, rev_NAME.
            seed_type: any type, where no table of a folder has labels.
            val_share: part of the relation's links for validation.
            test_share: part of the links for the test.
            split_seed: of the choice of these links: another seed of the training has the same.
            split: which links are held out: a share of them at random, or those of the latest time.
            eval_negatives: what links are told from in validation and test: as many uniform pairs of the relation's types that are no links, or ``all``:
                each with all destinations for its source and with all sources for its destination, but for other links.
            feed: as ``SampledDataModule``; ``batch_size`` counts edges.

        Raises:
            InputError: a sampler that is no ``HeteroLinkSampler``, or names its edges; as ``hold_out_typed_links`` and ``check_within_reach``.
        """
        check_choice("split", split, ["share", "time"])
        check_choice("eval_negatives", eval_negatives, ["uniform", "all"])
        if not isinstance(sampler, HeteroLinkSampler) or sampler.edges is not None:
            raise InputError(
                f"the sampler is {sampler!r}: links of a typed graph are dealt out by a HeteroLinkSampler without edges, which are held out here; use one"
            )
        data = opened(dataset, load_hetero_dataset, root=root, scale=scale, add_reverse=add_reverse, seed_type=seed_type)
        kind, _, other = sampler.relation
        options: dict[str, Any] = {"reverse": sampler.reverse_relation, "seed": split_seed, "by_time": split == "time"}
        made = hold_out_typed_links(data.graph, sampler.relation, {"val": val_share, "test": test_share}, **options)
        first = data.graph.num_nodes[kind]
        self.known: Graph = made.known
        self.passed: Graph = made.passed
        self.ends: tuple[Bounds, Bounds] = ((0, first), (first, made.known.num_nodes))
        draw = pairs_without_link(made.known, self.ends)
        others = [
            None if eval_negatives == "all" else draw(own.shape[1], split_seed, place) for place, own in enumerate(made.links.values())
        ]
        self.held_out: dict[str, HeldOut] = {name: HeldOut(own, none) for (name, own), none in zip(made.links.items(), others, strict=True)}
        splits = {"train": np.arange(data.graph.num_nodes[other])}
        splits |= {name: np.unique(own[1] - first) for name, own in made.links.items() if own.shape[1]}
        left = replace(data, graph=made.graph, seed_type=other, y=None, num_classes=0, splits=splits, path=None, validate=False)
        check_within_reach(left, [kind, other], sampler.num_hops)
        super().__init__(left, sampler, **feed)

    @property
    def link_relation(self) -> str:
        """``source:name:destination`` of the links."""
        return relation_name(self.sampler.relation)  # type: ignore[attr-defined]

    @property
    def bounds(self) -> tuple[int, int]:
        """The numbers [begin, end) of destinations."""
        return self.ends[1]

    @property
    def num_ends(self) -> int:
        """Sources and destinations, by one count."""
        return self.known.num_nodes

    def check_score(self, score: str, number: int) -> None:
        """Whether evaluation gives a score; of those of each source's best ``number`` destinations it is that, else 0.

        Raises:
            InputError: the best are not found among all destinations, or these are fewer.
        """
        is_among_all = all(held.others is None for held in self.held_out.values())
        check_top(score, number, is_among_all, self.bounds)

    def val_dataloader(self) -> DataLoader[Any]:
        """This rank's share of the validation links."""
        return link_batches(self, "val")

    def test_dataloader(self) -> DataLoader[Any]:
        """This rank's share of the test links."""
        return link_batches(self, "test")

    def predict_dataloader(self) -> DataLoader[NodeBatch]:
        """This rank's share of all sources and, behind them, all destinations; where both are of one type, of these once."""
        source, _, destination = self.sampler.relation  # type: ignore[attr-defined]
        return self._node_batches(np.arange(self.num_ends if source != destination else self.ends[0][1]))


class HeteroLinkPredictor(TypedTask, Linked):
    """A ``TypedGNN`` that gives vectors of both of a relation's types, and a decoder, which scores a source and a destination by theirs.

    Logs ``train_loss``, and for validation and test the loss and the score, as ``val_auc`` for instance. The loss is that of ``LinkPredictor``.

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
        link_relation: str,
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
            link_relation: that of the links.
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
        self.decode(decoder, out_channels, score, hard_negatives, loss)
        self._relation: Any = tuple(link_relation.split(":"))
        known: Any = [tuple(relation.split(":")) for relation in relations]
        self.model = TypedGNN(arch, in_channels, num_vertices, known, self._relation[::2], hidden_channels, out_channels, num_layers, **gnn)
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
        torch.manual_seed(dropout_seed(batch))
        vectors, (source, destination) = self(batch), batch.extra["pairs"].long()
        scores = self.decoder(vectors[self._relation[0]][source], vectors[self._relation[2]][destination])
        return self.loss_of(scores, batch.extra["labels"])

    def infer(self, nodes: Array) -> Tensor:
        """Vectors (N, C) of ``nodes`` (N,), ascending numbers as of ``HeteroLinkDataModule.held_out``, from full neighbourhoods."""
        first, (kind, _, other) = self.links.ends[0][1], self._relation
        sources, destinations = nodes[nodes < first], nodes[nodes >= first] - first
        if kind != other:
            made = self.exact({kind: sources, other: destinations})
            return torch.cat([made[kind], made[other]])
        both, places = np.unique(np.concatenate([sources, destinations]), return_inverse=True)
        return self.exact({kind: both})[kind][torch.from_numpy(places).to(self.device)]

    def predict_step(self, batch: NodeBatch, batch_idx: int) -> Tensor:
        """Vectors of this rank's share of the sources and, behind them, of the destinations, (N, C) float32 on the CPU."""
        return self.infer(batch.node_ids.cpu().numpy()).float().cpu()
