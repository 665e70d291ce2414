"""Edge classification and regression: training on sampled batches of edges, evaluation from full neighbourhoods."""

from __future__ import annotations

from copy import copy
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from hoptrain.engine import Dataset, InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.errors import explain_keywords
from hoptrain.engine.features.checks import num_classes_of
from hoptrain.engine.transforms.link_split import check_apart, share_out_edges
from hoptrain.samplers import LinkSampler, MiniBatch, Sampler
from hoptrain.samplers.batch.transfer import as_tensor
from hoptrain.trainers.metrics.own import AnyMetric
from hoptrain.trainers.models.decoders import PairMLP
from hoptrain.trainers.models.ranks import MOST_NUMBERS
from hoptrain.trainers.models.sums import lookup
from hoptrain.trainers.tasks import TASKS
from hoptrain.trainers.tasks.graph_task import GraphTask
from hoptrain.trainers.tasks.labelled import LabelMixin
from hoptrain.trainers.tasks.nodes.data import NodeDataModule


class EdgeBatch(NamedTuple):
    """A rank's share of the edges to evaluate.

    Attributes:
        edge_ids: edge ids (N,) int64.
        pairs: global node ids (2, N) int64, sources above destinations.
    """

    edge_ids: Tensor
    pairs: Tensor


@explain_keywords
class EdgeDataModule(NodeDataModule):
    """A data module for edge-level tasks: it splits a data set's labelled edges and trains on batches of them.

    Messages pass along all edges, also those without labels or of other splits. In training, the ``LinkSampler`` may exclude the batch's own edges.

    Attributes:
        edges: ids of the labelled edges, by split.
        edge_y: labels of all edges, by edge id.

    Examples:
        >>> import numpy as np
        >>> from hoptrain import Dataset, EdgeDataModule, LinkSampler, NeighborSampler
        >>> ring = np.stack([np.arange(40), (np.arange(40) + 1) % 40])
        >>> data = Dataset(edge_index=ring, x=np.eye(40), edge_y=np.arange(40) % 2)
        >>> module = EdgeDataModule(data, LinkSampler(NeighborSampler([2]), num_negatives=0), num_workers=0, seed=1)
        >>> {name: len(ids) for name, ids in module.edges.items()}
        {'train': 34, 'val': 2, 'test': 4}
    """

    of_vertices = False

    def __init__(
        self,
        dataset: str | Dataset,
        sampler: Sampler,
        val_ratio: float | None = None,
        test_ratio: float | None = None,
        split_seed: int = 0,
        **options: Any,
    ) -> None:
        """Open the data set and split its labelled edges.

        Args:
            dataset: name of a data set ('hoptrain data list' shows them), a folder, or in Python a ``Dataset`` with ``edge_y``. Its ``edge_splits``
                are used if it has any.
            sampler: a ``LinkSampler`` without edges and with ``num_negatives`` 0.
            val_ratio: fraction of the labelled edges for validation, if the data set has no splits; by default 0.05.
            test_ratio: fraction of the labelled edges for the test, if the data set has no splits; by default 0.1.
            split_seed: seed of the random split.
            options: further options of ``NodeDataModule``; ``batch_size`` counts edges.

        Raises:
            InputError: the sampler is not suitable, edges have no labels, or ratios are given for a data set with splits; see also ``share_out_edges``.
        """
        self._shares, self._split_seed = {"val": val_ratio, "test": test_ratio}, split_seed  # ``prepare`` reads these attributes
        super().__init__(dataset, sampler, **options)

    def prepare(self, data: Dataset) -> Dataset:
        """Return the data set with the ends of the split edges as node splits."""
        sampler = self.sampler
        if not isinstance(sampler, LinkSampler) or sampler.edges is not None or sampler.num_negatives:
            raise InputError(f"the sampler is {sampler!r}: it must be a LinkSampler with num_negatives 0 and without edges; use one")
        if data.edge_y is None:
            raise InputError(f"{data.name} has no edge labels: give Dataset edge_y, or use task: links, which needs none")
        self.edge_y: Array = data.edge_y
        self.edges: dict[str, Array] = self._edges(data, data.edge_y)
        link_sampler = copy(sampler)
        self.sampler: LinkSampler = link_sampler
        link_sampler.edges, link_sampler.with_edge_ids = self.edges["train"], True
        self._pairs = {name: self._ends(data, ids) for name, ids in self.edges.items() if name != "train"}
        ends = {name: np.unique(pairs) for name, pairs in self._pairs.items() if pairs.size}
        splits = {"train": np.arange(data.graph.num_nodes)} | ends
        return Dataset(name=data.name, graph=data.graph, x=data.x, edge_attr=data.edge_attr, splits=splits, meta=data.meta)

    def _edges(self, data: Dataset, y: Any) -> dict[str, Array]:
        given = {name: share for name, share in self._shares.items() if share is not None}
        if data.edge_splits:
            if given or "train" not in data.edge_splits:
                what = f"{data.name} has edge_splits {', '.join(data.edge_splits)}"
                raise InputError(
                    f"{what}: splits of the data set must include train, and exclude val_ratio and test_ratio; add the split or leave these out"
                )
            check_apart(data.name, data.graph, data.edge_splits)
            return dict(data.edge_splits)
        is_none = np.isnan(y).reshape(len(y), -1).any(1) if y.dtype.kind == "f" else (y < 0).reshape(len(y), -1).all(1)
        return share_out_edges(data.graph, ~is_none, {"val": 0.05, "test": 0.1} | given, self._split_seed)

    @staticmethod
    def _ends(data: Dataset, ids: Array) -> Array:
        places = data.graph.csc_positions(ids)
        return np.stack([data.graph.indices[places].astype(np.int64), np.searchsorted(data.graph.indptr, places, side="right") - 1])

    @property
    def num_classes(self) -> int:
        """Number of classes, labels or targets of an edge."""
        return num_classes_of(self.edge_y)

    @property
    def is_multilabel(self) -> bool:
        """True if an edge may have several labels."""
        return self.edge_y.ndim == 2 and self.edge_y.dtype.kind != "f"

    def val_dataloader(self) -> DataLoader[Any]:
        """Return a loader of this rank's share of the validation edges."""
        return self._edge_batches("val")

    def test_dataloader(self) -> DataLoader[Any]:
        """Return a loader of this rank's share of the test edges."""
        return self._edge_batches("test")

    def _edge_batches(self, name: str) -> DataLoader[Any]:
        batches = []
        if len(ids := self.edges.get(name, ())):
            mine = self.share(np.arange(len(ids)))
            batches.append(EdgeBatch(torch.from_numpy(self.edges[name][mine]), torch.from_numpy(self._pairs[name][:, mine])))
        return DataLoader(batches, batch_size=None)  # type: ignore[arg-type]


class EdgePredictor(LabelMixin, GraphTask):
    """A LightningModule that predicts edge labels with a GNN, and an MLP on the vectors of an edge's ends and the edge's features.

    It logs the loss and the metric of training, validation and test, for instance as ``val_acc``.

    Examples:
        >>> import numpy as np
        >>> from pytorch_lightning import Trainer
        >>> from hoptrain import Dataset, EdgeDataModule, EdgePredictor, LinkSampler, NeighborSampler
        >>> ring = np.stack([np.arange(40), (np.arange(40) + 1) % 40])
        >>> data = Dataset(edge_index=ring, x=np.eye(40), edge_y=np.arange(40) % 2)
        >>> module = EdgeDataModule(data, LinkSampler(NeighborSampler([2]), num_negatives=0), num_workers=0, seed=1)
        >>> model = EdgePredictor(module.num_features, module.num_classes, module.num_hops)
        >>> trainer = Trainer(fast_dev_run=2, enable_progress_bar=False, enable_model_summary=False)
        >>> trainer.fit(model, module)
        >>> sorted(trainer.callback_metrics)
        ['train_acc', 'train_loss', 'train_loss_step', 'val_acc', 'val_loss']
    """

    data_class = EdgeDataModule
    predicted = "the vectors of all nodes"
    example = "edge"
    reads_classes = False  # the names in ``meta`` are those of the classes of nodes

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        num_layers: int,
        multilabel: bool = False,
        edge_channels: int = 0,
        hidden_channels: int = 128,
        out_channels: int = 64,
        metric: AnyMetric = TASKS["edges"].metric,
        class_weight: Literal["balanced"] | None = None,
        **options: Any,
    ) -> None:
        """Build the model. On the command line, the first five arguments come from the data.

        Args:
            in_channels: number of features of a node.
            num_classes: number of classes, labels or targets of an edge.
            num_layers: number of layers, which equals the sampler's hops.
            multilabel: True if an edge may have several labels.
            edge_channels: number of features of an edge.
            hidden_channels: width of the hidden layers (the sum over all attention heads).
            out_channels: width of the nodes' output vectors.
            metric: metric to log. For classes: acc, macro_f1 or auc. For several labels: acc or micro_f1, macro_f1, auc or ap. For regression: rmse, mae or
                r2. Or a metric or MetricCollection of torchmetrics.
            class_weight: balanced weights the loss of each class inversely to its frequency in the training split. By default all classes count equally.
            options: further options of ``GraphTask``, such as arch, lr, loss and optimizer.

        Raises:
            InputError: an option is out of range or unknown, or class weights are given without classes.
        """
        super().__init__(in_channels, out_channels, num_layers, hidden_channels=hidden_channels, edge_channels=edge_channels, **options)
        self.define_labels(num_classes, multilabel, metric, class_weight)
        self.decoder: PairMLP = PairMLP(out_channels, num_classes, edge_channels)

    @property
    def reads_edges(self) -> bool:
        """True, since the MLP reads the features of an edge."""
        return True

    def setup(self, stage: str) -> None:
        """Check that the model and its labels match the data."""
        super().setup(stage)
        data: EdgeDataModule = self._datamodule
        self.match_labels(data.data.name, data.edge_y, data.num_classes, data.edges["train"])

    def training_step(self, batch: MiniBatch, batch_idx: int) -> Tensor:
        """Return the mean loss over the edges of a mini-batch."""
        self.seed_dropout(batch)
        vectors = self.check_outputs(self(batch), batch.num_seeds, self.hparams["out_channels"])
        ids = batch.extra["edge_ids"].cpu().numpy()
        total = self.compute_loss("fit", self._decoded(vectors, batch.extra["pairs"].long(), ids), self._labels_of(ids))
        self.log_step(total / len(ids), len(ids))
        return total / len(ids)

    def evaluate(self, stage: str, batch: EdgeBatch) -> None:
        """Evaluate this rank's share of a split's edges from full neighbourhoods."""
        nodes, places = np.unique(batch.pairs.cpu().numpy(), return_inverse=True)
        vectors, ids = self.infer(nodes), batch.edge_ids.cpu().numpy()
        if len(ids):
            most = max(1, MOST_NUMBERS // (2 * vectors.shape[1]))
            local = torch.from_numpy(places.reshape(2, -1)).to(self.device)
            parts = [slice(begin, begin + most) for begin in range(0, len(ids), most)]
            outputs = torch.cat([self._decoded(vectors, local[:, part], ids[part]) for part in parts])
            self.compute_loss(stage, outputs, self._labels_of(ids))

    def _decoded(self, vectors: Tensor, pairs: Tensor, ids: Array) -> Tensor:
        """Return outputs (N, C) for the edges ``ids`` (N,), whose ends have the embeddings in the rows ``pairs`` (2, N) of ``vectors``."""
        attr = self._datamodule.data.edge_attr
        features = [] if attr is None else [as_tensor(np.take(attr, ids, axis=0)).to(self.device).float()]
        outputs: Tensor = self.decoder(*lookup(vectors, pairs), *features)
        return outputs

    def _labels_of(self, ids: Array) -> Tensor:
        data: EdgeDataModule = self._datamodule
        return torch.from_numpy(np.take(data.edge_y, ids, axis=0)).to(self.device)
