"""Knowledge graph completion: which head or tail makes a triple true, among all entities."""

from __future__ import annotations

from functools import partial
from math import log
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hoptrain.engine import InputError
from hoptrain.samplers import MiniBatch
from hoptrain.trainers.models.ranks import MOST_NUMBERS, ranks_but
from hoptrain.trainers.models.typed.relations import ScoreName, TripleScore, score_named
from hoptrain.trainers.models.typed.sparse_adam import DenseAndSparseAdam
from hoptrain.trainers.models.typed.triples import EntityEncoder, exact_vectors
from hoptrain.trainers.scores.links import RankScore, title_of
from hoptrain.trainers.tasks import TASKS
from hoptrain.trainers.tasks.graph_task import seed_dropout
from hoptrain.trainers.tasks.node_data import NodeBatch
from hoptrain.trainers.tasks.options import check_training
from hoptrain.trainers.tasks.pairs.triple_data import QueryBatch, TripleDataModule
from hoptrain.trainers.tasks.scored import STAGES, ScoredModule, metric_of

_FURTHER = ("hits@1", "hits@3", "hits@10")
"""The scores that are logged beside the mean reciprocal rank."""


class TriplePredictor(ScoredModule):
    """Vectors of entities, learnt or by R-GCN, and a decoder, which scores triples by them and by vectors of relations.

    Each triple is asked for twice: for its tail, and as the tail of the inverse relation for its head. The loss of a query is the cross-entropy of
    its answer among all other entities; where K of V are drawn for a batch, each of them stands for V / K, so that the sum over entities is
    estimated without bias. Other true answers are not left out of it.

    Logs ``train_loss``, and for validation and test the loss, ``mrr``, the mean of 1 / rank, and ``hits@1``, ``hits@3``, ``hits@10``: ranks among
    all entities but those that are known, from any split, to be true too (filtered; Bordes et al. 2013, "Translating embeddings for modeling
    multi-relational data"), the mean of the best and the worst where some score the same.

    Examples:
        >>> from pytorch_lightning import Trainer
        >>> from hoptrain import TripleDataModule, TriplePredictor, Triples
        >>> data = TripleDataModule(Triples(splits={"train": [(0, 0, 1), (1, 0, 2), (2, 1, 0)], "val": [(0, 0, 2)]}), num_workers=0, seed=1)
        >>> model = TriplePredictor(data.num_nodes, data.num_relations, data.num_hops, decoder="complex", hidden_channels=16)
        >>> trainer = Trainer(fast_dev_run=2, enable_progress_bar=False, enable_model_summary=False)
        >>> trainer.fit(model, data)
        >>> sorted(trainer.callback_metrics)
        ['train_loss', 'val_hits@1', 'val_hits@10', 'val_hits@3', 'val_loss', 'val_mrr']
    """

    score_name: str = TASKS["triples"].score
    score_title: str = title_of(score_name)
    scored: tuple[str, ...] = STAGES[1:]
    predicted = "the vectors of all entities"

    def __init__(
        self,
        num_nodes: int,
        num_relations: int,
        num_layers: int,
        decoder: ScoreName = "distmult",
        hidden_channels: int = 128,
        num_blocks: int = 32,
        dropout: float = 0.0,
        lr: float = 0.01,
        weight_decay: float = 0.0,
    ) -> None:
        """Build the model. The first three arguments come from the data when the command line is used.

        Args:
            num_nodes: entities.
            num_relations: relations, without the inverse ones.
            num_layers: hops of the sampler, layers of R-GCN; 0 for vectors that are learnt alone.
            decoder: distmult, complex, transe or rotate.
            hidden_channels: width of all vectors.
            num_blocks: blocks on the diagonal of a relation's matrix in R-GCN.
            dropout: share of each layer's input dropped, and of the vectors that the decoder takes.
            lr: Adam's learning rate.
            weight_decay: Adam's L2 penalty; vectors of entities have none.

        Raises:
            InputError: numbers that have no meaning, an unknown decoder.
        """
        check_training(lr=lr, weight_decay=weight_decay, dropout=dropout)
        super().__init__(partial(RankScore, self.score_name))
        self.further.update({f"{stage}_{name}": RankScore(name) for stage in self.scored for name in _FURTHER})
        self.save_hyperparameters()
        self.triple_score: TripleScore = score_named(decoder, hidden_channels)
        self.encoder: EntityEncoder = EntityEncoder(num_nodes, 2 * num_relations, hidden_channels, num_layers, num_blocks, dropout)
        self.relations: nn.Embedding = nn.Embedding(2 * num_relations, self.triple_score.width(hidden_channels))
        self.triple_score.begin(self.relations.weight)
        # (2 T,) int64, the relation of each edge of the graph. No buffer: callbacks copy a model's buffers before the data are known.
        self.edge_relations = torch.empty(0, dtype=torch.int64)

    def setup(self, stage: str) -> None:
        """Compare the model with the data, and take the edges' relations.

        Raises:
            InputError: the model is for other data, or gradients are to be clipped that are sparse.
        """
        module, ours = self._datamodule, self.hparams
        for mine, theirs in (("num_nodes", "num_nodes"), ("num_relations", "num_relations"), ("num_layers", "num_hops")):
            if ours[mine] != getattr(module, theirs):
                raise InputError(
                    f"the model has {mine} {ours[mine]}, {module.triples.name} with this sampler {getattr(module, theirs)}: use the data and the "
                    "sampler that it was made for"
                )
        if self.trainer.gradient_clip_val:
            raise InputError(
                "gradient_clip_val with triples: gradients of the entities' vectors are sparse, and torch does not clip such; leave it out"
            )
        self.edge_relations = torch.from_numpy(module.edge_relations)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam; for the vectors of entities torch's ``SparseAdam``, which moves those of a batch alone."""
        (table,) = self.encoder.table.parameters()
        others = [parameter for parameter in self.parameters() if parameter is not table]
        return DenseAndSparseAdam(others, [table], lr=self.hparams["lr"], weight_decay=self.hparams["weight_decay"])

    def forward(self, batch: MiniBatch) -> Tensor:
        """Vectors of the batch's seeds, (B, C)."""
        if self.edge_relations.device != self.device:
            self.edge_relations = self.edge_relations.to(self.device)
        relations = [self.edge_relations[block.edge_ids.long()] for block in batch.blocks]
        vectors: Tensor = self.encoder(batch.node_ids, batch.blocks, relations)
        return vectors

    def training_step(self, batch: MiniBatch, batch_idx: int) -> Tensor:
        """Mean loss over the queries of a mini-batch, two for each triple."""
        seed_dropout(batch, self.device)
        vectors = self(batch)
        heads, relations, tails = batch.extra["triples"].long()
        given, answers = torch.cat([heads, tails]), torch.cat([tails, heads])
        asked = self.relations(torch.cat([relations, self.hparams["num_relations"] + relations]))
        queries = self.triple_score.query(vectors[given], asked)
        losses = self.cross_entropies(queries, vectors, answers, batch.extra["negatives"].long())
        self.count("fit", losses, losses, losses.sum())
        return losses.mean()

    def cross_entropies(self, queries: Tensor, vectors: Tensor, answers: Tensor, negatives: Tensor) -> Tensor:
        """(N,) cross-entropies of ``answers`` (N,) among themselves and ``negatives`` (K,), each of which stands for V / K entities."""
        others = self.triple_score.match(queries, vectors[negatives]).masked_fill(negatives == answers[:, None], -torch.inf)
        own = self.triple_score.match_own(queries, vectors[answers])
        return F.softplus(others.logsumexp(1) + log(self.hparams["num_nodes"] / len(negatives)) - own)

    def vectors(self) -> Tensor:
        """The vectors (V, C) of all entities. Every rank calls it."""
        module, ranks = self._datamodule, {"rank": self.trainer.global_rank, "world_size": self.trainer.world_size}
        return exact_vectors(self.encoder, module.data.graph, self.edge_relations, device=self.device, **ranks)

    @torch.no_grad()
    def evaluate(self, stage: str, batch: QueryBatch) -> None:
        """This rank's share of a split's queries, against all entities."""
        vectors = self.vectors()
        for queries in torch.split(batch.queries.to(self.device), max(1, MOST_NUMBERS // len(vectors))):
            if len(queries):
                heads, relations, tails = queries.T
                scores = self.triple_score.match(self.triple_score.query(vectors[heads], self.relations(relations)), vectors)
                loss = F.cross_entropy(scores, tails, reduction="sum")
                ranks = ranks_but(scores, tails, *self._datamodule.known.places(heads.cpu().numpy(), relations.cpu().numpy()))
                self.count(stage, ranks, torch.ones_like(ranks), loss)
                for name in _FURTHER:
                    metric_of(self.further, f"{stage}_{name}").update(ranks, torch.ones_like(ranks))

    def predict_step(self, batch: NodeBatch, batch_idx: int) -> Tensor:
        """Vectors of this rank's share of the entities, (N, C) float32 on the CPU."""
        return self.vectors()[batch.node_ids.to(self.device)].float().cpu()

    @property
    def _datamodule(self) -> Any:
        datamodule = getattr(self.trainer, "datamodule", None)
        if not isinstance(datamodule, TripleDataModule):
            raise InputError(
                "TriplePredictor needs the triples that it learns from: run it with trainer.fit(model, datamodule=TripleDataModule(...))"
            )
        return datamodule
