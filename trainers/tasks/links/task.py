"""Link prediction: training on sampled batches of links, evaluation from full neighbourhoods on links that were held out."""

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
from hoptrain.trainers.models.decoders import DecoderName
from hoptrain.trainers.models.hetero.gnn import HeteroGNN
from hoptrain.trainers.models.hetero.layers import HeteroArch
from hoptrain.trainers.tasks import TASKS
from hoptrain.trainers.tasks.graph_task import GraphTask, HeteroTask, check_embeddings
from hoptrain.trainers.tasks.linked import LinkTaskMixin, Loss
from hoptrain.trainers.tasks.links.data import HeteroLinkDataModule, LinkDataModule, types_of
from hoptrain.trainers.tasks.options import check_training
from hoptrain.trainers.tasks.shared_data import NodeBatch

Embeddings = Literal["none", "sparse", "dense"]


class LinkPredictor(LinkTaskMixin, GraphTask):
    """A GNN and a decoder, which scores a pair of nodes by their vectors: high where a link is.

    Logs ``train_loss``, and for validation and test the loss and the score, as ``val_auc`` for instance. The loss is that of ``LinkTaskMixin``.

    Examples:
        >>> from pytorch_lightning import Trainer
        >>> from hoptrain import LinkDataModule, LinkPredictor, LinkSampler, NeighborSampler
        >>> data = LinkDataModule("digits-knn", LinkSampler(NeighborSampler([5, 5])), num_workers=0, seed=1)
        >>> model = LinkPredictor(data.num_features, data.num_hops, decoder="distmult")
        >>> trainer = Trainer(fast_dev_run=2, enable_progress_bar=False, enable_model_summary=False)
        >>> trainer.fit(model, data)
        >>> sorted(trainer.callback_metrics)
        ['train_loss', 'val_auc', 'val_loss']
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
        metric: str | None = None,
        default_metric: str = TASKS["links"].metric,
        hard_negatives: int | None = None,
        embeddings: Embeddings = "none",
        loss: Loss = "bce",
        l2: float = 0.0,
        **options: Any,
    ) -> None:
        """Build the model. The first three arguments, and ``default_metric``, come from the data when the command line is used.

        Args:
            in_channels: features of a node; 0 without any.
            num_layers: hops of the sampler.
            num_nodes: V where they have no features, else 0.
            hidden_channels: width between layers (for gat over all heads together).
            out_channels: width of the nodes' vectors.
            dropout: share of hidden inputs dropped (and of gat's attention).
            decoder: scores a pair: dot, the inner product; distmult, weighted by channel; complex, of complex numbers; mlp, of both vectors;
                hadamard, an mlp of their product.
            metric: what validation and test are judged by: auc, ap, mrr or hits@K, as hits@20 (``hoptrain.trainers.metrics.links``); or recall@K,
                precision@K or ndcg@K (``hoptrain.trainers.metrics.top``).
            default_metric: the score where none is named.
            hard_negatives: of each link's negatives in a batch only this many count in the loss, those that score highest (Zhang et al. 2013,
                "Optimizing top-n collaborative filtering via dynamic negative item sampling"); by default all.
            embeddings: learn a vector of ``hidden_channels`` for each node, where they have no features: sparse, by ``SparseAdam``, which moves those of
                a batch alone and has no weight decay; or dense, by Adam, which moves all of them at every step.
            loss: bce, binary cross-entropy; bpr, Bayesian personalised ranking (Rendle et al. 2009).
            l2: with embeddings, of a batch l2 times the sum of the squares of its ends' vectors, divided by its links, is added to the loss.
            options: as ``GraphTask``.

        Raises:
            InputError: as ``GraphTask``; an unknown decoder, score or loss; no hard negatives; nodes without features and without ``embeddings``.
        """
        check_choice("embeddings", embeddings, get_args(Embeddings))
        _check_embeddings(embeddings, num_nodes, in_channels, l2)
        super().__init__(
            in_channels if embeddings == "none" else hidden_channels,
            out_channels,
            num_layers,
            metric=None,
            hidden_channels=hidden_channels,
            dropout=dropout,
            **options,
        )
        self.decode(decoder, out_channels, metric or default_metric, hard_negatives, loss)
        self.table: Any = _make_table(embeddings, num_nodes, hidden_channels)

    def setup(self, stage: str) -> None:
        """Compare the model with the data, and make the scores.

        Raises:
            InputError: as ``GraphTask`` and ``LinkTaskMixin``; a model of other nodes.
        """
        super().setup(stage)
        data: LinkDataModule = self._datamodule
        if self.table is not None and len(self.table.weight) != data.num_nodes:
            raise InputError(
                f"the model has vectors of {len(self.table.weight):,} nodes, {data.data.name} has {data.num_nodes:,} without features: "
                "use the data set that it was made for"
            )

    def inputs(self, batch: MiniBatch) -> Tensor:
        """Return the features of the batch's nodes, or their embeddings."""
        if self.table is None:
            return super().inputs(batch)
        vectors: Tensor = self.table(batch.node_ids.long())
        return vectors

    def all_inputs(self) -> Tensor | None:
        """Return the embeddings of all nodes; None where these have features."""
        return None if self.table is None else self.table.weight

    def pair_scores(self, batch: MiniBatch) -> Tensor:
        """Return the scores of a mini-batch's pairs (P,)."""
        vectors = self.checked(self(batch), batch.num_seeds, self.hparams["out_channels"])
        scores: Tensor = self.decoder(*vectors[batch.extra["pairs"].long()])
        return scores

    def training_step(self, batch: MiniBatch, batch_idx: int) -> Tensor:  # type: ignore[override]
        """Return the mean loss over the pairs of a mini-batch, and the penalty of embeddings."""
        loss = super().training_step(batch, batch_idx)
        if self.table is None or not self.hparams["l2"]:
            return loss
        ends = self.table(batch.node_ids[: batch.num_seeds].long())
        penalty: Tensor = self.hparams["l2"] * ends.square().sum() / batch.extra["labels"].sum()
        return loss + penalty


def _check_embeddings(embeddings: Embeddings, num_nodes: int, in_channels: int, l2: float) -> None:
    """Raise on embeddings beside features, their penalty without them, and nodes without either."""
    is_learnt = embeddings != "none"
    if num_nodes and not is_learnt:
        raise InputError(
            "the nodes have no features: make some from the graph by data.features: walks (or degrees), or set embeddings: sparse (or dense), "
            f"which learns a vector for each of the {num_nodes:,}"
        )
    if is_learnt and not num_nodes:
        raise InputError(
            f"embeddings is {embeddings} and a node has {in_channels} features: vectors are learnt for those without; leave it out"
        )
    if not l2 >= 0 or (l2 and not is_learnt):
        raise InputError(f"l2 is {l2} with embeddings {embeddings}: it is at least 0, and of learnt vectors; leave it out")


def _make_table(embeddings: Embeddings, num_nodes: int, width: int) -> nn.Embedding | None:
    """Return the embeddings, drawn as in PyG's ``LightGCN``; None without any."""
    if embeddings == "none":
        return None
    table = nn.Embedding(num_nodes, width, sparse=embeddings == "sparse")
    nn.init.xavier_uniform_(table.weight)
    return table


class HeteroLinkPredictor(LinkTaskMixin, HeteroTask):
    """A ``HeteroGNN`` that gives vectors of the types that links join, and a decoder for each relation, which scores a source and a destination by theirs.

    Logs ``train_loss``, and for validation and test the loss and the score, as ``val_auc`` for instance. The loss is that of ``LinkTaskMixin``. Of several
    relations the score is that of all links together, and each relation's own score is logged too, as ``val_auc/author:writes:paper``.

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
        ['train_loss', 'val_auc', 'val_loss']
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
        metric: str = TASKS["hetero_links"].metric,
        hard_negatives: int | None = None,
        loss: Loss = "bce",
        arch: HeteroArch = "rgcn",
        embeddings: bool = False,
        normalize_features: bool = False,
        lr: float = 0.003,
        weight_decay: float = 0.0,
        **gnn: Any,
    ) -> None:
        """Build the model. The first five arguments come from the data when the command line is used.

        Args:
            in_channels: features of a node, by type, of the types that have some.
            num_nodes: nodes of the types without features.
            relations: ``source:name:destination`` of each.
            link_relation: that of the links, or those.
            num_layers: hops of the sampler.
            hidden_channels: width of all layers (with attention over all heads together).
            out_channels: width of the vectors that are scored.
            decoder: as of ``LinkPredictor``.
            metric: as of ``LinkPredictor``.
            hard_negatives: as of ``LinkPredictor``.
            loss: as of ``LinkPredictor``.
            arch: rgcn, gat, gin, graphconv, hgt, han; gatv2 or transformer, which read edges' features.
            embeddings: learn a vector for each node of the types without features.
            normalize_features: divide each node's features by their sum.
            lr: Adam's learning rate.
            weight_decay: Adam's L2 penalty; vectors of nodes have none.
            gnn: as ``HeteroGNN``.

        Raises:
            InputError: numbers without meaning, a bare type without ``embeddings``; as ``LinkTaskMixin.decode``.
        """
        check_training(lr=lr, weight_decay=weight_decay, **gnn)
        super().__init__(None)
        self.save_hyperparameters()
        self.note_defaults(HeteroGNN)
        names = [link_relation] if isinstance(link_relation, str) else link_relation
        self._relations: Any = [tuple(name.split(":")) for name in names]
        self.decode(decoder, out_channels, metric, hard_negatives, loss, len(names))
        known: Any = [tuple(relation.split(":")) for relation in relations]
        self.model = HeteroGNN(
            arch, in_channels, num_nodes, known, types_of(self._relations), hidden_channels, out_channels, num_layers, **gnn
        )
        check_embeddings(self.model, num_nodes, embeddings)

    def setup(self, stage: str) -> None:
        """Compare the model with the data, and make the scores.

        Raises:
            InputError: as ``HeteroTask.compare`` and ``LinkTaskMixin``.
        """
        self.compare(["num_nodes", "relations", "link_relation"])
        super().setup(stage)

    def forward(self, batch: HeteroMiniBatch) -> dict[str, Tensor]:
        """Return the vectors of the batch's seeds by type, these first."""
        vectors: dict[str, Tensor] = self.model(self.inputs(batch), batch.node_ids, batch.blocks)
        return vectors

    def pair_scores(self, batch: HeteroMiniBatch) -> Tensor:
        """Return the scores of a mini-batch's pairs (P,)."""
        vectors, pairs = self(batch), batch.extra["pairs"].long()
        own = batch.extra.get("relations", torch.zeros_like(pairs[0]))
        parts, order = [], []
        for number, ((kind, _, other), decoder) in enumerate(zip(self._relations, self.decoders, strict=True)):
            order.append(torch.nonzero(own == number)[:, 0])
            source, destination = pairs[:, order[-1]]
            parts.append(decoder(vectors[kind][source], vectors[other][destination]))
        return torch.cat(parts)[torch.argsort(torch.cat(order))]

    def infer(self, nodes: Array) -> Tensor:
        """Return vectors (N, C) of ``nodes`` (N,), ascending numbers as in ``HeldOutLinks.held_out``, from full neighbourhoods."""
        asked = []
        for (kind, _, other), (sources, destinations) in zip(self._relations, self._datamodule.ends, strict=True):
            for each, (begin, end) in ((kind, sources), (other, destinations)):
                low, high = np.searchsorted(nodes, (begin, end))
                asked.append((each, nodes[low:high] - begin))
        return self._vectors(asked)

    def _vectors(self, asked: Sequence[tuple[str, Array]]) -> Tensor:
        """Return vectors (N, C) of nodes of some types, which are asked for in parts."""
        wanted = {kind: np.unique(np.concatenate([ids for other, ids in asked if other == kind])) for kind, _ in asked}
        made = self.exact(wanted)
        return torch.cat([made[kind][torch.from_numpy(np.searchsorted(wanted[kind], ids)).to(self.device)] for kind, ids in asked])

    @property
    def predicted(self) -> str:  # type: ignore[override]
        """Output of ``hoptrain predict``, for people."""
        return f"the vectors of all nodes of type {', and behind them of type '.join(types_of(self._relations))}"

    def predict_step(self, batch: NodeBatch, batch_idx: int) -> Tensor:
        """Return vectors of this rank's share of the nodes of all types that links join, type by type, (N, C) float32 on the CPU."""
        numbers, asked, begin = batch.node_ids.cpu().numpy(), [], 0
        for kind in types_of(self._relations):
            end = begin + self._datamodule.data.graph.num_nodes[kind]
            low, high = np.searchsorted(numbers, (begin, end))
            asked.append((kind, numbers[low:high] - begin))
            begin = end
        return self._vectors(asked).float().cpu()
