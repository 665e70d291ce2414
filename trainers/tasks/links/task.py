"""Link prediction: training on sampled batches of links, evaluation of held-out links from full neighbourhoods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from hoptrain.engine import InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.errors import check_choice
from hoptrain.samplers import HeteroMiniBatch, MiniBatch
from hoptrain.trainers.metrics.own import AnyMetric
from hoptrain.trainers.models.decoders import DecoderName
from hoptrain.trainers.models.hetero.layers import HeteroArch
from hoptrain.trainers.models.sums import lookup
from hoptrain.trainers.tasks import TASKS
from hoptrain.trainers.tasks.graph_task import GraphTask, HeteroTask
from hoptrain.trainers.tasks.linked import LinkTaskMixin, Loss
from hoptrain.trainers.tasks.links.data import HeteroLinkDataModule, LinkDataModule, types_of
from hoptrain.trainers.tasks.shared_data import NodeBatch

Embeddings = Literal["none", "sparse", "dense"]


class LinkPredictor(LinkTaskMixin, GraphTask):
    """A LightningModule that predicts links with a GNN and a decoder, which computes a pair's logit from the vectors of its two nodes.

    It logs ``train_loss``, and the loss and the metric of validation and test, for instance as ``val_auc``. ``LinkTaskMixin`` describes the loss.

    Examples:
        >>> from pytorch_lightning import Trainer
        >>> from hoptrain import LinkDataModule, LinkPredictor, LinkSampler, NeighborSampler
        >>> data = LinkDataModule("digits-knn", LinkSampler(NeighborSampler([5, 5])), num_workers=0, seed=1)
        >>> model = LinkPredictor(data.num_features, data.num_hops, decoder="distmult")
        >>> trainer = Trainer(fast_dev_run=2, enable_progress_bar=False, enable_model_summary=False)
        >>> trainer.fit(model, data)
        >>> sorted(trainer.callback_metrics)
        ['train_loss', 'train_loss_step', 'val_auc', 'val_loss']
    """

    data_class = LinkDataModule
    predicted = "the vectors of all nodes"

    def __init__(
        self,
        in_channels: int,
        num_layers: int,
        num_nodes: int = 0,
        hidden_channels: int = 128,
        out_channels: int = 64,
        dropout: float = 0.0,
        decoder: DecoderName = "dot",
        metric: AnyMetric | None = None,
        default_metric: str = TASKS["links"].metric,
        hard_negatives: int | None = None,
        embeddings: Embeddings = "none",
        loss: Loss = "bce",
        l2: float = 0.0,
        **options: Any,
    ) -> None:
        """Build the model. On the command line, the first three arguments and ``default_metric`` come from the data.

        Args:
            in_channels: number of features of a node; 0 without features.
            num_layers: number of layers, which equals the sampler's hops.
            num_nodes: number of nodes, V, if they have no features; else 0.
            hidden_channels: width of the hidden layers (the sum over all attention heads).
            out_channels: width of the nodes' output vectors.
            dropout: dropout probability of the inputs of hidden layers (and of gat's attention weights).
            decoder: how the logit of a pair is computed from two vectors: dot (inner product), distmult (inner product with learned channel weights),
                complex (distmult with complex numbers), mlp (an MLP on the concatenated vectors), or hadamard (an MLP on their product).
            metric: metric of validation and test: auc, ap, mrr or hits@K, such as hits@20 (``hoptrain.trainers.metrics.links``); or recall@K,
                precision@K or ndcg@K (``hoptrain.trainers.metrics.top``). Or a metric of torchmetrics or torch_geometric.metrics, or a collection.
            default_metric: metric if ``metric`` is not given.
            hard_negatives: use only this number of each link's negatives in the loss, those with the highest logits (Zhang et al. 2013, "Optimizing
                top-n collaborative filtering via dynamic negative item sampling"); by default all.
            embeddings: for nodes without features, learn an embedding of ``hidden_channels`` per node: sparse uses ``SparseAdam``, which updates only
                the batch's rows and has no weight decay; dense uses Adam, which updates all rows at every step.
            loss: bce (binary cross-entropy), bpr (Bayesian personalised ranking, Rendle et al. 2009), or your own, of the pairs' logits and labels.
            l2: weight of an L2 penalty of embeddings: the sum of squares of the embeddings at the ends of the batch's pairs, divided by the number of
                links, is added to the loss with this weight.
            options: further options of ``GraphTask``, such as arch, lr and optimizer.

        Raises:
            InputError: an option is unknown or out of range, or nodes have no features and ``embeddings`` is none.
        """
        check_choice("embeddings", embeddings, get_args(Embeddings))
        _check_embeddings(embeddings, num_nodes, in_channels, l2)
        super().__init__(
            in_channels if embeddings == "none" else hidden_channels,
            out_channels,
            num_layers,
            hidden_channels=hidden_channels,
            dropout=dropout,
            **options,
        )
        self.decode(decoder, out_channels, default_metric if metric is None else metric, hard_negatives, loss)
        self.table: Any = _make_table(embeddings, num_nodes, hidden_channels)

    def setup(self, stage: str) -> None:
        """Check that the model matches the data, and make the metrics.

        Raises:
            InputError: the model was built for other data, or the metric or the loss needs other negatives.
        """
        super().setup(stage)
        data: LinkDataModule = self._datamodule
        if self.table is not None and len(self.table.weight) != data.num_nodes:
            raise InputError(
                f"the model has embeddings of {len(self.table.weight):,} nodes, {data.data.name} has {data.num_nodes:,} without features: "
                "use the data set that the model was built for"
            )

    def inputs(self, batch: MiniBatch) -> Tensor:
        """Return the model's input rows (S, F): the features of the batch's input nodes, or their embeddings if the nodes have no features."""
        if self.table is None:
            return super().inputs(batch)
        vectors: Tensor = self.table(batch.node_ids.long())
        return vectors

    @property
    def _inputs_are_features(self) -> bool:
        return self.table is None and type(self).inputs is LinkPredictor.inputs and not self.normalize_features

    def all_inputs(self) -> Tensor | None:
        """Return the embeddings (V, C) of all nodes; None if these have features."""
        return None if self.table is None else self.table.weight

    def pair_scores(self, batch: MiniBatch) -> Tensor:
        """Return the logits (P,) of a mini-batch's pairs."""
        vectors = self.check_outputs(self(batch), batch.num_seeds, self.hparams["out_channels"])
        scores: Tensor = self.decoder(*lookup(vectors, batch.extra["pairs"]))
        return scores

    def training_step(self, batch: MiniBatch, batch_idx: int) -> Tensor:  # type: ignore[override]
        """Return the mean loss over the pairs of a mini-batch, plus the penalty of embeddings."""
        loss = super().training_step(batch, batch_idx)
        if self.table is None or not self.hparams["l2"]:
            return loss
        ends = self.table(batch.node_ids[: batch.num_seeds].long())
        penalty: Tensor = self.hparams["l2"] * ends.square().sum() / batch.extra["labels"].sum()
        return loss + penalty


def _check_embeddings(embeddings: Embeddings, num_nodes: int, in_channels: int, l2: float) -> None:
    """Raise InputError if nodes have both features and embeddings or neither, or if ``l2`` is given without embeddings."""
    is_learnt = embeddings != "none"
    if num_nodes and not is_learnt:
        raise InputError(
            "the nodes have no features: compute them from the graph with data.features: walks (or degrees), or set embeddings: sparse (or dense), "
            f"which learns a vector for each of the {num_nodes:,} nodes"
        )
    if is_learnt and not num_nodes:
        raise InputError(
            f"embeddings is {embeddings} and a node has {in_channels} features: embeddings are for nodes without features; leave it out"
        )
    if not l2 >= 0 or (l2 and not is_learnt):
        raise InputError(f"l2 is {l2} with embeddings {embeddings}: it must be at least 0, and 0 without embeddings; leave it out")


def _make_table(embeddings: Embeddings, num_nodes: int, width: int) -> nn.Embedding | None:
    """Return the embeddings, initialised as in PyG's ``LightGCN``; None if ``embeddings`` requests none."""
    if embeddings == "none":
        return None
    table = nn.Embedding(num_nodes, width, sparse=embeddings == "sparse")
    nn.init.xavier_uniform_(table.weight)
    return table


class HeteroLinkPredictor(LinkTaskMixin, HeteroTask):
    """A LightningModule that predicts links of a heterogeneous graph with a ``HeteroGNN`` and a decoder for each relation.

    It logs ``train_loss``, and the loss and the metric of validation and test, for instance as ``val_auc``. ``LinkTaskMixin`` describes the loss.
    With several relations, the metric is computed over all links together, and also for each relation, logged as ``val_auc/author:writes:paper``.

    Examples:
        >>> from pytorch_lightning import Trainer
        >>> from hoptrain import HeteroLinkDataModule, HeteroLinkPredictor, HeteroLinkSampler, HeteroSampler
        >>> sampler = HeteroLinkSampler(HeteroSampler([5, 5]), ("author", "writes", "paper"))
        >>> data = HeteroLinkDataModule("synthetic:mag", sampler, scale=0.001, num_workers=0, seed=1)
        >>> sizes = {"in_channels": data.num_features, "num_nodes": data.num_nodes, "relations": data.relations}
        >>> model = HeteroLinkPredictor(**sizes, link_relation=data.link_relation, num_layers=data.num_hops, embeddings=True)
        >>> trainer = Trainer(fast_dev_run=2, enable_progress_bar=False, enable_model_summary=False)
        >>> trainer.fit(model, data)
        >>> sorted(trainer.callback_metrics)
        ['train_loss', 'train_loss_step', 'val_auc', 'val_loss']
    """

    data_class = HeteroLinkDataModule

    def __init__(
        self,
        in_channels: dict[str, int],
        num_nodes: dict[str, int],
        relations: list[str],
        link_relation: str | list[str],
        num_layers: int,
        hidden_channels: int = 64,
        out_channels: int = 64,
        decoder: DecoderName = "dot",
        metric: AnyMetric = TASKS["hetero_links"].metric,
        hard_negatives: int | None = None,
        loss: Loss = "bce",
        arch: HeteroArch = "rgcn",
        embeddings: bool = False,
        **options: Any,
    ) -> None:
        """Build the model. On the command line, the first five arguments come from the data.

        Args:
            in_channels: number of features of a node, by type, for the types with features.
            num_nodes: number of nodes, by type, for the types without features.
            relations: names ``source:name:destination`` of the relations.
            link_relation: relation ``source:name:destination`` of the links, or a list of relations.
            num_layers: number of layers, which equals the sampler's hops.
            hidden_channels: width of all layers (the sum over all attention heads).
            out_channels: width of the vectors that the decoder takes.
            decoder: how the logit of a pair is computed from two vectors: dot (inner product), distmult (inner product with learned channel weights),
                complex (distmult with complex numbers), mlp (an MLP on the concatenated vectors), or hadamard (an MLP on their product).
            metric: metric to log: auc, ap, mrr or hits@K, such as hits@20; or recall@K, precision@K or ndcg@K; or a metric of torchmetrics or PyG.
            hard_negatives: use only this number of each link's negatives in the loss, those with the highest logits; by default all.
            loss: bce (binary cross-entropy), bpr (Bayesian personalised ranking, Rendle et al. 2009), or your own, of the pairs' logits and labels.
            arch: layer type: rgcn, gat, gin, graphconv, hgt or han; or gatv2 or transformer, which read edge features.
            embeddings: learn an embedding for each node of the types without features.
            options: further options of ``HeteroTask`` and ``HeteroGNN``, such as lr, optimizer and dropout.

        Raises:
            InputError: a number is out of range, an option is unknown, or a type without features needs ``embeddings``.
        """
        super().__init__(None, **options)
        names = [link_relation] if isinstance(link_relation, str) else link_relation
        self._relations: Any = [tuple(name.split(":")) for name in names]
        self.decode(decoder, out_channels, metric, hard_negatives, loss, len(names))
        sizes = hidden_channels, out_channels, num_layers
        self.model = self.make_gnn(arch, in_channels, num_nodes, relations, types_of(self._relations), *sizes, embeddings)

    def setup(self, stage: str) -> None:
        """Check that the model matches the data, and make the metrics.

        Raises:
            InputError: the model was built for other data, or the metric or the loss needs other negatives.
        """
        self.compare(["num_nodes", "relations", "link_relation"])
        super().setup(stage)

    def forward(self, batch: HeteroMiniBatch) -> dict[str, Tensor]:
        """Return the vectors of the batch's seeds, which are the first rows of each type."""
        vectors: dict[str, Tensor] = self.model(self.inputs(batch), batch.node_ids, batch.blocks)
        return vectors

    def pair_scores(self, batch: HeteroMiniBatch) -> Tensor:
        """Return the logits (P,) of a mini-batch's pairs."""
        vectors, pairs = self(batch), batch.extra["pairs"].long()
        own = batch.extra.get("relations", torch.zeros_like(pairs[0]))
        parts, order = [], []
        for number, ((kind, _, other), decoder) in enumerate(zip(self._relations, self.decoders, strict=True)):
            order.append(torch.nonzero(own == number)[:, 0])
            source, destination = pairs[:, order[-1]]
            parts.append(decoder(lookup(vectors[kind], source), lookup(vectors[other], destination)))
        return torch.cat(parts)[torch.argsort(torch.cat(order))]

    def infer(self, nodes: Array) -> Tensor:
        """Compute vectors (N, C) of ``nodes`` (N,) from full neighbourhoods; ``nodes`` are ascending and numbered as in ``HeldOutLinks``."""
        asked = []
        for (kind, _, other), (sources, destinations) in zip(self._relations, self._datamodule.ends, strict=True):
            for each, (begin, end) in ((kind, sources), (other, destinations)):
                low, high = np.searchsorted(nodes, (begin, end))
                asked.append((each, nodes[low:high] - begin))
        return self._vectors(asked)

    def _vectors(self, asked: Sequence[tuple[str, Array]]) -> Tensor:
        """Compute vectors (N, C) of nodes, which are given as groups (type, ids)."""
        wanted = {kind: np.unique(np.concatenate([ids for other, ids in asked if other == kind])) for kind, _ in asked}
        made = self.exact(wanted)
        return torch.cat([made[kind][torch.from_numpy(np.searchsorted(wanted[kind], ids)).to(self.device)] for kind, ids in asked])

    @property
    def predicted(self) -> str:  # type: ignore[override]
        """Readable description of the output of ``hoptrain predict``."""
        return f"the vectors of all nodes of type {', then of type '.join(types_of(self._relations))}"

    def predict_step(self, batch: NodeBatch, batch_idx: int) -> Tensor:
        """Return vectors (N, C) float32 on the CPU of this rank's part of the nodes at the ends of links, type by type."""
        numbers, asked, begin = batch.node_ids.cpu().numpy(), [], 0
        for kind in types_of(self._relations):
            end = begin + self._datamodule.data.graph.num_nodes[kind]
            low, high = np.searchsorted(numbers, (begin, end))
            asked.append((kind, numbers[low:high] - begin))
            begin = end
        return self._vectors(asked).float().cpu()
