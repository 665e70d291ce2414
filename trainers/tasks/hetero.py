"""Classification of vertices of one type of a typed graph: training on sampled batches, evaluation on full neighbourhoods."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal, get_args

from torch import Tensor, nn

from hoptrain.engine import HeteroDataset, InputError, load_hetero_dataset
from hoptrain.engine.arrays import Array
from hoptrain.engine.dataset import SPLITS
from hoptrain.engine.derived.metapaths import with_metapaths
from hoptrain.engine.errors import check_choice
from hoptrain.samplers import HeteroMiniBatch, HeteroPinSAGESampler, Sampler
from hoptrain.trainers.models.typed.batches import TypedTakes, apply_typed_model
from hoptrain.trainers.models.typed.gnn import TypedGNN
from hoptrain.trainers.models.typed.inference import neighborhood_typed_logits
from hoptrain.trainers.models.typed.layers import TypedArch
from hoptrain.trainers.tasks import TASKS
from hoptrain.trainers.tasks.graph_task import seed_dropout
from hoptrain.trainers.tasks.labelled import Labelled
from hoptrain.trainers.tasks.node_data import NodeBatch
from hoptrain.trainers.tasks.options import check_training
from hoptrain.trainers.tasks.shared_data import opened
from hoptrain.trainers.tasks.typed_task import TypedDataModule, TypedTask, check_embeddings, check_within_reach


class HeteroDataModule(TypedDataModule):
    """Loads a data set on a typed graph and feeds training through a sampler of typed graphs.

    Examples:
        >>> import numpy as np
        >>> from hoptrain import HeteroDataModule, HeteroDataset, HeteroGraph, HeteroSampler
        >>> graph = HeteroGraph.from_edges({"user": 2, "item": 3}, {("user", "buys", "item"): ([0, 0, 1], [0, 1, 2])}).with_reverse()
        >>> data = HeteroDataset(graph=graph, seed_type="item", x={"user": np.eye(2)}, y=np.array([0, 1, 1]), splits={"train": np.arange(3)})
        >>> module = HeteroDataModule(data, HeteroSampler([2, 2], "item"), batch_size=2, num_workers=0, seed=1)
        >>> module.num_features, module.num_vertices  # features by type, and vertices of the types that have none
        ({'user': 2}, {'item': 3})
        >>> next(iter(module.train_dataloader())).node_ids
        {'user': array([0, 1], dtype=int32), 'item': array([0, 2, 1], dtype=int32)}
    """

    def __init__(
        self,
        dataset: str | HeteroDataset,
        sampler: Sampler,
        root: str | None = None,
        scale: float = 1.0,
        add_reverse: bool = False,
        splits: str | None = None,
        metapaths: list[list[str]] | None = None,
        seed_type: str | None = None,
        **feed: Any,
    ) -> None:
        """Open the data set (and convert or download it the first time).

        Args:
            dataset: name ('hoptrain data list' shows them), a folder written by 'hoptrain data convert', or in Python a ``HeteroDataset``.
            sampler: a ``HeteroSampler`` with its fanouts and the type of its seeds.
            root: folder with the data's files; by default $HOPTRAIN_DATA.
            scale: size of a synthetic data set as a share of the real one.
            add_reverse: turn each relation round as well, as one more, rev_NAME.
            splits: which splits, where the data set has several by name: 60 takes train_60, val_60 and test_60.
            metapaths: relations along these in place of the data's, such as [[paper, author, paper]]; see ``with_metapaths``.
            seed_type: the type that is trained on, where several tables of a folder have labels.
            feed: as ``SampledDataModule``.

        Raises:
            InputError: what cannot be trained on; see ``check_typed`` and ``with_metapaths``.
        """
        data = opened(dataset, load_hetero_dataset, root=root, scale=scale, add_reverse=add_reverse, seed_type=seed_type)
        if splits is not None:
            data = replace(data, splits={split: data.split(f"{split}_{splits}") for split in SPLITS}, validate=False)
        if isinstance(sampler, HeteroPinSAGESampler):
            raise InputError(
                "HeteroPinSAGESampler has no relations in its batches, which are plain ones: task hetero takes a HeteroSampler"
            )
        if metapaths is not None:
            data = with_metapaths(data, metapaths)
        sampler.check_data(data)
        if (own := getattr(sampler, "seed_type", None)) != data.seed_type:
            raise InputError(f"the sampler's seed_type is {own!r}, that of {data.name} {data.seed_type!r}: give the sampler the data's")
        check_typed(data, sampler.num_hops)
        super().__init__(data, sampler, **feed)

    @property
    def is_multilabel(self) -> bool:
        """Whether a vertex may have several labels."""
        return bool(self.data.y.ndim == 2 and self.data.y.dtype.kind != "f")

    @property
    def seed_type(self) -> str:
        """The type of the vertices that are classified."""
        seed_type: str = self.data.seed_type
        return seed_type


def check_typed(data: HeteroDataset, num_hops: int) -> None:
    """Refuse data that a classifier of ``num_hops`` layers cannot learn from.

    Raises:
        InputError: no labels; as ``check_within_reach``.
    """
    if data.y is None:
        raise InputError(f"{data.name} has no labels: task hetero learns labels of the vertices of type {data.seed_type}; give a y")
    check_within_reach(data, [data.seed_type], num_hops)


class HeteroClassifier(Labelled, TypedTask):
    """A model that classifies the vertices of one type: a ``TypedGNN``, or a module of your own.

    Logs ``train_loss``, ``train_acc``, ``val_loss``, ``val_acc``, ``test_loss`` and ``test_acc``, each over all ranks with every vertex counted
    once; or another score by its name.

    Examples:
        >>> import numpy as np
        >>> from pytorch_lightning import Trainer
        >>> from hoptrain import HeteroClassifier, HeteroDataModule, HeteroDataset, HeteroGraph, HeteroSampler
        >>> graph = HeteroGraph.from_edges({"user": 2, "item": 3}, {("user", "buys", "item"): ([0, 0, 1], [0, 1, 2])}).with_reverse()
        >>> x, splits = {"user": np.eye(2), "item": np.eye(3)}, {"train": np.array([0, 2]), "val": np.array([1])}
        >>> shop = HeteroDataset(graph=graph, seed_type="item", x=x, y=np.array([0, 1, 1]), splits=splits)
        >>> data = HeteroDataModule(shop, HeteroSampler([2, 2], "item"), num_workers=0, seed=1)
        >>> model = HeteroClassifier(data.num_features, {}, data.relations, data.seed_type, data.num_classes, data.num_hops)
        >>> trainer = Trainer(fast_dev_run=2, enable_progress_bar=False, enable_model_summary=False)
        >>> trainer.fit(model, data)
        >>> sorted(trainer.callback_metrics)
        ['train_acc', 'train_loss', 'train_loss_step', 'val_acc', 'val_loss']
    """

    data_class: ClassVar[type[TypedDataModule]] = HeteroDataModule
    model: Any

    def __init__(
        self,
        in_channels: dict[str, int] | None = None,
        num_vertices: dict[str, int] | None = None,
        relations: list[str] | None = None,
        seed_type: str = "",
        num_classes: int = 0,
        num_layers: int = 0,
        multilabel: bool = False,
        model: Any = None,
        takes: TypedTakes = "blocks",
        score: str = TASKS["hetero"].score,
        class_weight: Literal["balanced"] | None = None,
        arch: TypedArch = "rgcn",
        hidden_channels: int = 64,
        embeddings: bool = False,
        normalize_features: bool = False,
        lr: float = 0.003,
        weight_decay: float = 0.0,
        **gnn: Any,
    ) -> None:
        """Build the model. The first seven arguments come from the data: on the command line, and with ``model`` where they are left out.

        Args:
            in_channels: features of a vertex, by type, of the types that have some.
            num_vertices: vertices of the types without features.
            relations: ``source:name:destination`` of each.
            seed_type: the type of the vertices that are classified.
            num_classes: number of classes (or labels, or targets).
            num_layers: hops of the sampler.
            multilabel: whether a vertex may have several labels.
            model: an ``nn.Module`` to train in place of a ``TypedGNN``, in Python only; of the arguments below it has those of the training alone.
            takes: what its ``forward`` takes: blocks or edge_index (``hoptrain.trainers.models.typed.batches``).
            score: acc or macro_f1; of several labels also micro_f1 or ap; rmse, mae or r2, with which the model learns targets.
            class_weight: balanced multiplies a vertex's loss so that each class of the training split counts alike.
            arch: rgcn, gat, gin, graphconv, hgt, han; gatv2 or transformer, which read edges' features.
            hidden_channels: width of all layers (with attention over all heads together).
            embeddings: learn a vector for each vertex of the types without features.
            normalize_features: divide each vertex's features by their sum.
            lr: Adam's learning rate.
            weight_decay: Adam's L2 penalty; vectors of vertices have none.
            gnn: as ``TypedGNN``.

        Raises:
            InputError: numbers without meaning, a bare type without ``embeddings``, neither sizes nor a model, options of a ``TypedGNN`` with one.
        """
        check_training(lr=lr, weight_decay=weight_decay, **gnn)
        _check_model(model, takes, bool(relations and num_layers and num_classes), gnn)
        super().__init__(None)
        self.save_hyperparameters(ignore=["model", *([] if model is None else ["arch", "embeddings", "hidden_channels"])])
        self.takes, self.model = takes, model
        self.learn(num_classes, multilabel, score, class_weight)
        if model is not None:
            self.note_module(model)
            return
        self.note_defaults(TypedGNN)
        self.hparams["num_vertices"] = bare = num_vertices or {}
        ends: Any = [tuple(relation.split(":")) for relation in relations or []]
        self.model = TypedGNN(arch, in_channels or {}, bare, ends, [seed_type], hidden_channels, num_classes, num_layers, **gnn)
        check_embeddings(self.model, bare, embeddings)

    def setup(self, stage: str) -> None:
        """Compare the model with the data; the classes are the data's, where they were not stated.

        Raises:
            InputError: the model is for other data, or gradients are to be clipped that are sparse.
        """
        module = self._datamodule
        self.compare(["num_vertices", "relations", "seed_type"])
        if self.takes == "edge_index" and module.num_vertices:
            raise InputError(
                f"takes is edge_index and vertices of type {next(iter(module.num_vertices))} have no features: PyG's models take some of each "
                "type; give them some, or a model that takes blocks"
            )
        self.take_labels(module.data.name, module.data.y, module.data.num_classes, module.data.splits.get("train"))

    def forward(self, batch: HeteroMiniBatch) -> Tensor:
        """Scores of the batch's seeds, (B, C)."""
        return apply_typed_model(self.model, self.takes, self.inputs(batch), batch)

    def training_step(self, batch: HeteroMiniBatch, batch_idx: int) -> Tensor:
        """Loss of one mini-batch, scaled so that the ranks' average is the mean over all seeds of the step."""
        seed_dropout(batch, self.device)
        total = self.judge("fit", self(batch), batch.y, batch.extra.get("seed_weights"))
        self.log("train_loss_step", total.detach() / batch.num_seeds, batch_size=batch.num_seeds)
        return total * (self.trainer.world_size / batch.num_step_seeds)

    def infer(self, nodes: Array) -> Tensor:
        """Scores of ``nodes`` (N,), from full neighbourhoods: (N, C). Every rank calls it, with its own."""
        module = self._datamodule
        if isinstance(self.model, TypedGNN):
            return self.exact({module.seed_type: nodes})[module.seed_type]
        options = {"normalize": self.hparams["normalize_features"], "device": self.device}
        apply = partial(apply_typed_model, self.model, self.takes)
        return neighborhood_typed_logits(apply, module.data, nodes, num_hops=module.num_hops, **options)

    def predict_step(self, batch: NodeBatch, batch_idx: int) -> Tensor:
        """Scores of this rank's share of the vertices, (N, C) float32 on the CPU."""
        return self.infer(batch.node_ids.cpu().numpy()).float().cpu()

    def evaluate(self, stage: str, batch: NodeBatch) -> None:
        """This rank's share of a split."""
        logits = self.infer(batch.node_ids.cpu().numpy())
        if batch.y is not None and len(batch.y):
            self.judge(stage, logits, batch.y.to(self.device))


def _check_model(model: Any, takes: TypedTakes, has_sizes: bool, gnn: dict[str, Any]) -> None:
    """Refuse options of a ``TypedGNN`` with another module, and the other way round."""
    check_choice("takes", takes, get_args(TypedTakes))
    if isinstance(model, nn.Module) and gnn:
        raise InputError(f"{next(iter(gnn))} with a model of your own: it builds a TypedGNN, which that takes the place of; leave it out")
    if model is None and takes != "blocks":
        raise InputError(f"takes is {takes} without a model of your own: it tells what that takes; give model, or leave takes out")
    if model is None and not has_sizes:
        raise InputError("HeteroClassifier without a model and without its sizes: give in_channels, relations, seed_type and so on")
