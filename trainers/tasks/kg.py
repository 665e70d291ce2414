"""Knowledge graph completion: data module and task that predict the head or the tail of a triple among all entities."""

from __future__ import annotations

from math import log
from typing import Any, NamedTuple, get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader

from hoptrain.engine import Dataset, InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.datasets.triples import Named, Triples, load_triples
from hoptrain.samplers import MiniBatch, Sampler
from hoptrain.samplers.wrappers.triples import TripleSampler
from hoptrain.trainers.metrics.links import RankScore, check_ranked, title_of
from hoptrain.trainers.metrics.own import AnyLoss, AnyMetric, row_losses
from hoptrain.trainers.models.hetero.relations import ScoreName, TripleScore, score_named
from hoptrain.trainers.models.hetero.triples import EntityEncoder, exact_vectors
from hoptrain.trainers.models.ranks import MOST_NUMBERS, KnownTails, ranks_but
from hoptrain.trainers.tasks import TASKS
from hoptrain.trainers.tasks.options import check_training
from hoptrain.trainers.tasks.scored import STAGES, LRSchedulerCallable, OptimizerCallable, ScoredModule, metric_of
from hoptrain.trainers.tasks.shared_data import NodeBatch, SampledDataModule, open_data

_LOGGED = ("mrr", "hits@1", "hits@3", "hits@10")
"""Names of the metrics that are always logged."""


class QueryBatch(NamedTuple):
    """A rank's share of the queries of an evaluation.

    Attributes:
        queries: (N, 3) int64: a head, a relation (or an inverse one), and the tail to predict.
    """

    queries: Tensor


class TripleDataModule(SampledDataModule):
    """A data module for knowledge graph completion, which trains on batches of triples from a ``TripleSampler``.

    Messages pass along the training triples and their inverses, in evaluation too.

    Attributes:
        triples: the data set.
        edge_relations: relation (2 T,) of each edge of the graph, by CSC position.
        known: tails of all triples and their inverses, including those of validation and test.

    Examples:
        >>> from hoptrain import TripleDataModule, Triples
        >>> triples = Triples(splits={"train": [(0, 0, 1), (1, 0, 2), (2, 1, 0)], "val": [(0, 0, 2)]})
        >>> data = TripleDataModule(triples, batch_size=2, num_workers=0, seed=1)
        >>> data.num_nodes, data.num_relations, len(data.train_dataloader())
        (3, 2, 2)
    """

    def __init__(
        self,
        triples: str | Triples,
        sampler: Sampler | None = None,
        root: str | None = None,
        num_negatives: int | None = None,
        allow_unseen: bool = False,
        **feed: Any,
    ) -> None:
        """Open the triples.

        Args:
            triples: name of a .npz file or of a folder with train.txt, valid.txt and test.txt, or in Python ``Triples``.
            sampler: a NeighborSampler with one hop per R-GCN layer; leave it out to train embeddings without message passing.
            root: folder with the file; by default $HOPTRAIN_DATA.
            num_negatives: number of entities drawn for each batch, as negatives of all of its triples; by default all entities are negatives.
            allow_unseen: accept entities and relations that occur only in validation or test, and evaluate their triples too.
            feed: further options of ``SampledDataModule``, such as num_workers; ``batch_size`` counts triples.

        Raises:
            InputError: the triples cannot be opened, the sampler is not suitable, or entities or relations occur only in validation or test.
        """
        data = open_data(triples, load_triples, root=root)
        self.triples: Triples = data
        for what in get_args(Named):
            if not allow_unseen and len(found := data.unseen(what)):
                raise InputError(
                    f"{data.name}: {len(found):,} {what}, {found[0]} for one, are in triples of validation or test but in none that is trained on: "
                    "nothing is learnt about them; leave these triples out, or set allow_unseen to evaluate them all the same"
                )
        graph, sampler_of_triples = data.graph(), TripleSampler(data, sampler, num_negatives)  # type: ignore[arg-type]
        ends = {split: np.unique(rows[:, [0, 2]]) for split, rows in data.splits.items()}
        dataset = Dataset(name=data.name, graph=graph, splits=ends | {"train": np.arange(data.num_nodes)})
        super().__init__(dataset, sampler_of_triples, **feed)
        self.edge_relations: Array = data.relations_of_edges(graph)
        self.known: KnownTails = KnownTails.of(np.concatenate([data.queries(split) for split in data.splits]), 2 * data.num_relations)

    @property
    def num_nodes(self) -> int:
        """Number of entities, V."""
        return self.triples.num_nodes

    @property
    def num_relations(self) -> int:
        """Number of relations, R, without inverse ones."""
        return self.triples.num_relations

    def val_dataloader(self) -> DataLoader[Any]:
        """Return a loader of this rank's share of the validation triples, in both directions; an empty loader if there are none."""
        return self._queries("val")

    def test_dataloader(self) -> DataLoader[Any]:
        """Return a loader of this rank's share of the test triples, in both directions."""
        if "test" not in self.triples.splits:
            raise InputError(f"{self.triples.name} has no test triples: its splits are {', '.join(self.triples.splits)}; add some")
        return self._queries("test")

    def _queries(self, split: str) -> DataLoader[Any]:
        batches = []
        if len(self.triples.splits.get(split, ())):
            mine = self.share(self.triples.queries(split))
            batches.append(QueryBatch(torch.from_numpy(np.ascontiguousarray(mine))))
        return DataLoader(batches, batch_size=None)  # type: ignore[arg-type]


class TriplePredictor(ScoredModule):
    """A LightningModule that predicts triples with entity vectors (embeddings, or outputs of R-GCN) and a decoder with relation embeddings.

    Each triple gives two queries: for its tail, and for its head as the tail of the inverse relation. The loss of a query is the cross-entropy of its
    answer among all entities. If only K of V entities are drawn for a batch, each is weighted by V / K, so that the sum over entities in the softmax is
    an unbiased estimate. Entities that are also true answers stay in the sum.

    A custom loss gets logits (N, V) of all entities and the ids (N,) of the answers. If only K entities are drawn, a custom loss gets in training
    logits (N, 1 + K), with the answer's in column 0, and zeros (N,) as targets; the logit of a drawn entity that is the answer is -inf. A custom metric
    gets logits (N, V) of validation or test, with -inf for other known answers, and the ids (N,) of the answers.

    The task logs ``train_loss``, and for validation and test the loss, ``mrr`` (the mean of 1 / rank), ``hits@1``, ``hits@3`` and ``hits@10``. Ranks
    are filtered: an answer is ranked among all entities except for other answers that are true in any split (Bordes et al. 2013, "Translating
    embeddings for modeling multi-relational data"). With ties, the rank is the mean of the best and the worst one.

    Examples:
        >>> from pytorch_lightning import Trainer
        >>> from hoptrain import TripleDataModule, TriplePredictor, Triples
        >>> data = TripleDataModule(Triples(splits={"train": [(0, 0, 1), (1, 0, 2), (2, 1, 0)], "val": [(0, 0, 2)]}), num_workers=0, seed=1)
        >>> model = TriplePredictor(data.num_nodes, data.num_relations, data.num_hops, decoder="complex", hidden_channels=16)
        >>> trainer = Trainer(fast_dev_run=2, enable_progress_bar=False, enable_model_summary=False)
        >>> trainer.fit(model, data)
        >>> sorted(trainer.callback_metrics)
        ['train_loss', 'train_loss_step', 'val_hits@1', 'val_hits@10', 'val_hits@3', 'val_loss', 'val_mrr']
    """

    data_class = TripleDataModule
    learns_from = "triples"
    score_name: str = TASKS["kg"].metric
    score_title = title_of(score_name)
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
        metric: AnyMetric = TASKS["kg"].metric,
        loss: AnyLoss | None = None,
        optimizer: OptimizerCallable | None = None,
        lr_scheduler: LRSchedulerCallable | None = None,
    ) -> None:
        """Build the model. On the command line, the first three arguments come from the data.

        Args:
            num_nodes: number of entities.
            num_relations: number of relations, without inverse ones.
            num_layers: number of R-GCN layers, which equals the sampler's hops; 0 uses embeddings alone.
            decoder: how a triple's logit is computed: distmult, complex, transe or rotate.
            hidden_channels: width of all vectors.
            num_blocks: number of diagonal blocks of a relation's matrix in R-GCN.
            dropout: dropout probability of the input of each layer and of the decoder.
            lr: Adam's learning rate.
            weight_decay: Adam's L2 penalty; it does not apply to entity embeddings.
            metric: metric that selects the best checkpoint: mrr or hits@K; or a metric or MetricCollection of torchmetrics.
            loss: your own loss instead of the cross-entropy: a loss of torch for classes, or a function of logits and answers.
            optimizer: your own optimiser: a function of the parameters, such as a class of torch.optim. Then lr and weight_decay are not used.
            lr_scheduler: learning rate schedule, stepped after each epoch: a function of the optimiser, such as a class of torch.optim.lr_scheduler.

        Raises:
            InputError: a number is out of range, or the decoder is unknown.
        """
        check_training(lr=lr, weight_decay=weight_decay, dropout=dropout)
        super().__init__(loss=loss, optimizer=optimizer, lr_scheduler=lr_scheduler)
        self.define_metric(metric)
        if isinstance(metric, str):
            self.score_title = check_ranked(metric)
        self.make_scores(lambda: RankScore(self.score_name))
        self.further.update({f"{stage}_{name}": RankScore(name) for stage in self.scored for name in _LOGGED if name != self.score_name})
        self.save_hyperparameters()
        self.triple_score: TripleScore = score_named(decoder, hidden_channels)
        self.encoder: EntityEncoder = EntityEncoder(num_nodes, 2 * num_relations, hidden_channels, num_layers, num_blocks, dropout)
        self.relations: nn.Embedding = nn.Embedding(2 * num_relations, self.triple_score.width(hidden_channels))
        self.triple_score.begin(self.relations.weight)
        # Relation of each edge, (2 T,) int64. It is not a buffer: callbacks copy a model's buffers before the data are known.
        self.edge_relations = torch.empty(0, dtype=torch.int64)

    def setup(self, stage: str) -> None:
        """Check that the model matches the data, and load the edges' relations.

        Raises:
            InputError: the model was built for other data, or the trainer clips sparse gradients.
        """
        super().setup(stage)
        module, ours = self._datamodule, self.hparams
        for mine, theirs in (("num_nodes", "num_nodes"), ("num_relations", "num_relations"), ("num_layers", "num_hops")):
            if ours[mine] != getattr(module, theirs):
                raise InputError(
                    f"the model has {mine} {ours[mine]}, {module.triples.name} with this sampler {getattr(module, theirs)}: use the data and the "
                    "sampler that the model was built for"
                )
        self.edge_relations = torch.from_numpy(module.edge_relations)

    def forward(self, batch: MiniBatch) -> Tensor:
        """Compute vectors (B, C) of the batch's seeds."""
        if self.edge_relations.device != self.device:
            self.edge_relations = self.edge_relations.to(self.device)
        relations = [self.edge_relations[block.edge_ids.long()] for block in batch.blocks]
        vectors: Tensor = self.encoder(batch.node_ids, batch.blocks, relations)
        return vectors

    def training_step(self, batch: MiniBatch, batch_idx: int) -> Tensor:
        """Return the mean loss over the queries of a mini-batch, two for each triple."""
        self.seed_dropout(batch)
        vectors = self(batch)
        heads, relations, tails = batch.extra["triples"].long()
        given, answers = torch.cat([heads, tails]), torch.cat([tails, heads])
        asked = self.relations(torch.cat([relations, self.hparams["num_relations"] + relations]))
        queries = self.triple_score.query(vectors[given], asked)
        negatives = batch.extra["negatives"].long()
        if self.loss is None:
            losses = self.cross_entropies(queries, vectors, answers, negatives)
        else:
            losses = row_losses(self.loss, *self._logits(queries, vectors, answers, negatives))
        self.count("fit", losses, losses, losses.sum())
        mean = losses.mean()
        self.log_step(mean, len(losses))
        return mean

    def cross_entropies(self, queries: Tensor, vectors: Tensor, answers: Tensor, negatives: Tensor) -> Tensor:
        """Return the cross-entropies (N,) of ``answers`` (N,), each over the answer and the entities ``negatives`` (K,), which are weighted by V / K."""
        others = self.triple_score.match(queries, vectors[negatives]).masked_fill(negatives == answers[:, None], -torch.inf)
        own = self.triple_score.match_own(queries, vectors[answers])
        return F.softplus(others.logsumexp(1) + log(self.hparams["num_nodes"] / len(negatives)) - own)

    def _logits(self, queries: Tensor, vectors: Tensor, answers: Tensor, negatives: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits and targets for a custom loss, as the class docstring describes them."""
        others = self.triple_score.match(queries, vectors[negatives])
        if self._datamodule.sampler.num_negatives is None:  # the negatives are all entities, in order
            return others, torch.argsort(negatives)[answers]
        own = self.triple_score.match_own(queries, vectors[answers])
        return torch.cat([own[:, None], others.masked_fill(negatives == answers[:, None], -torch.inf)], 1), torch.zeros_like(answers)

    def vectors(self) -> Tensor:
        """Compute the vectors (V, C) of all entities. Every rank must call it."""
        module, ranks = self._datamodule, {"rank": self.trainer.global_rank, "world_size": self.trainer.world_size}
        return exact_vectors(self.encoder, module.data.graph, self.edge_relations, device=self.device, **ranks)

    @torch.no_grad()
    def evaluate(self, stage: str, batch: QueryBatch) -> None:
        """Evaluate this process's share of a split's queries: rank each answer among all entities."""
        vectors = self.vectors()
        for queries in torch.split(batch.queries.to(self.device), max(1, MOST_NUMBERS // len(vectors))):
            if len(queries):
                heads, relations, tails = queries.T
                scores = self.triple_score.match(self.triple_score.query(vectors[heads], self.relations(relations)), vectors)
                total = F.cross_entropy(scores, tails, reduction="sum") if self.loss is None else row_losses(self.loss, scores, tails).sum()
                own = scores.gather(1, tails[:, None])
                ranks = ranks_but(scores, tails, *self._datamodule.known.places(heads.cpu().numpy(), relations.cpu().numpy()))
                outputs, y = (scores.scatter_(1, tails[:, None], own), tails) if self.has_own_metric else (ranks, torch.ones_like(ranks))
                self.count(stage, outputs, y, total)
                for key in self.further:
                    if key.startswith(f"{stage}_"):
                        metric_of(self.further, key).update(ranks, torch.ones_like(ranks))

    def predict_step(self, batch: NodeBatch, batch_idx: int) -> Tensor:
        """Return vectors (N, C) float32 on the CPU of this rank's share of the entities."""
        return self.vectors()[batch.node_ids.to(self.device)].float().cpu()
