"""Link prediction: training on sampled batches of links, exact evaluation on links that were held out."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor, nn

from hoptrain.engine import InputError
from hoptrain.engine.errors import check_choice
from hoptrain.samplers import MiniBatch
from hoptrain.trainers.models.decoders import DecoderName
from hoptrain.trainers.models.typed.sparse_adam import DenseAndSparseAdam
from hoptrain.trainers.tasks import TASKS
from hoptrain.trainers.tasks.graph_task import GraphTask, seed_dropout
from hoptrain.trainers.tasks.node_data import GraphDataModule
from hoptrain.trainers.tasks.pairs.link_data import LinkDataModule
from hoptrain.trainers.tasks.pairs.linked import Linked, Loss

Embeddings = Literal["none", "sparse", "dense"]


class LinkPredictor(GraphTask, Linked):
    """A GNN and a decoder, which scores a pair of vertices by their vectors: high where a link is.

    Logs ``train_loss``, and for validation and test the loss and the score, as ``val_auc`` for instance. The loss is that of ``Linked``.

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

    data_class: ClassVar[type[GraphDataModule]] = LinkDataModule
    predicted = "the vectors of all vertices"

    def __init__(
        self,
        in_channels: int,
        num_layers: int,
        num_vertices: int = 0,
        hidden_channels: int = 128,
        out_channels: int = 64,
        dropout: float = 0.0,
        decoder: DecoderName = "dot",
        score: str | None = None,
        default_score: str = TASKS["links"].score,
        hard_negatives: int | None = None,
        embeddings: Embeddings = "none",
        loss: Loss = "bce",
        l2: float = 0.0,
        **options: Any,
    ) -> None:
        """Build the model. The first three arguments, and ``default_score``, come from the data when the command line is used.

        Args:
            in_channels: features of a vertex; 0 without any.
            num_layers: hops of the sampler.
            num_vertices: V where they have no features, else 0.
            hidden_channels: width between layers (for gat over all heads together).
            out_channels: width of the vertices' vectors.
            dropout: share of hidden inputs dropped (and of gat's attention).
            decoder: scores a pair: dot, the inner product; distmult, weighted by channel; complex, of complex numbers; mlp, of both vectors;
                hadamard, an mlp of their product.
            score: what validation and test are judged by: auc, ap, mrr or hits@K, as hits@20 (``hoptrain.trainers.scores.links``); or recall@K,
                precision@K or ndcg@K (``hoptrain.trainers.scores.top``).
            default_score: the score where none is named.
            hard_negatives: of each link's negatives in a batch only this many count in the loss, those that score highest (Zhang et al. 2013,
                "Optimizing top-n collaborative filtering via dynamic negative item sampling"); by default all.
            embeddings: learn a vector of ``hidden_channels`` for each vertex, where they have no features: sparse, by ``SparseAdam``, which moves those of
                a batch alone and has no weight decay; or dense, by Adam, which moves all of them at every step.
            loss: bce, binary cross-entropy; bpr, Bayesian personalised ranking (Rendle et al. 2009).
            l2: with embeddings, of a batch l2 times the sum of the squares of its ends' vectors, divided by its links, is added to the loss.
            options: as ``GraphTask``.

        Raises:
            InputError: as ``GraphTask``; an unknown decoder, score or loss; no hard negatives; vertices without features and without ``embeddings``.
        """
        check_choice("embeddings", embeddings, get_args(Embeddings))
        _check_embeddings(embeddings, num_vertices, in_channels, l2)
        super().__init__(
            in_channels if embeddings == "none" else hidden_channels,
            out_channels,
            num_layers,
            metric=None,
            hidden_channels=hidden_channels,
            dropout=dropout,
            **options,
        )
        self.decode(decoder, out_channels, score or default_score, hard_negatives, loss)
        self.table: Any = _make_table(embeddings, num_vertices, hidden_channels)

    def setup(self, stage: str) -> None:
        """See ``GraphTask``; the score is of ranks where each link is told from pairs of its own.

        Raises:
            InputError: besides, a score that such ranks do not give, a model of other vertices, sparse gradients that are to be clipped, or fewer
                negatives than are asked for.
        """
        super().setup(stage)
        data: Any = self._datamodule
        self.take_links()
        if self.table is not None and len(self.table.weight) != data.num_vertices:
            raise InputError(
                f"the model has vectors of {len(self.table.weight):,} vertices, {data.data.name} has {data.num_vertices:,} without features: "
                "use the data set that it was made for"
            )
        if self.table is not None and self.table.sparse and self.trainer.gradient_clip_val:
            raise InputError(
                "gradient_clip_val with embeddings sparse: torch does not clip sparse gradients; leave it out, or set embeddings: dense"
            )

    @property
    def links(self) -> Any:
        """See ``Linked``."""
        return self._datamodule

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam; for learnt vectors with sparse gradients torch's ``SparseAdam``."""
        if self.table is None or not self.table.sparse:
            return super().configure_optimizers()
        tables = list(self.table.parameters())
        others = [parameter for parameter in self.parameters() if parameter is not tables[0]]
        return DenseAndSparseAdam(others, tables, lr=self.hparams["lr"], weight_decay=self.hparams["weight_decay"])

    def inputs(self, batch: MiniBatch) -> Tensor:
        """The features, or the vectors that are learnt."""
        if self.table is None:
            return super().inputs(batch)
        vectors: Tensor = self.table(batch.node_ids.long())
        return vectors

    def all_inputs(self) -> Tensor | None:
        """See ``GraphTask``."""
        return None if self.table is None else self.table.weight

    def training_step(self, batch: MiniBatch, batch_idx: int) -> Tensor:
        """Mean loss over the pairs of a mini-batch, links and others."""
        seed_dropout(batch, self.device)
        vectors = self.checked(self(batch), batch.num_seeds, self.hparams["out_channels"])
        return self.loss_of(self.decoder(*vectors[batch.extra["pairs"].long()]), batch.extra["labels"]) + self._penalty(batch)

    def _penalty(self, batch: MiniBatch) -> Tensor | float:
        if self.table is None or not self.hparams["l2"]:
            return 0.0
        ends = self.table(batch.node_ids[: batch.num_seeds].long())
        penalty: Tensor = self.hparams["l2"] * ends.square().sum() / batch.extra["labels"].sum()
        return penalty


def _check_embeddings(embeddings: Embeddings, num_vertices: int, in_channels: int, l2: float) -> None:
    """Refuse learnt vectors beside features, their penalty without them, and vertices without either."""
    is_learnt = embeddings != "none"
    if num_vertices and not is_learnt:
        raise InputError(
            "the vertices have no features: make some from the graph by data.features: walks (or degrees), or set embeddings: sparse (or dense), "
            f"which learns a vector for each of the {num_vertices:,}"
        )
    if is_learnt and not num_vertices:
        raise InputError(
            f"embeddings is {embeddings} and a vertex has {in_channels} features: vectors are learnt for those without; leave it out"
        )
    if not l2 >= 0 or (l2 and not is_learnt):
        raise InputError(f"l2 is {l2} with embeddings {embeddings}: it is at least 0, and of learnt vectors; leave it out")


def _make_table(embeddings: Embeddings, num_vertices: int, width: int) -> nn.Embedding | None:
    """The vectors that are learnt, drawn as in PyG's ``LightGCN``."""
    if embeddings == "none":
        return None
    table = nn.Embedding(num_vertices, width, sparse=embeddings == "sparse")
    nn.init.xavier_uniform_(table.weight)
    return table
