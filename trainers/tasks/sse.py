"""Stochastic steady-state embedding (SSE): a node classifier on node states that are the fixed point of a local operator.

Dai, Kozareva, Dai, Smola, Song, "Learning steady-states of iterative algorithms over graphs", ICML 2018.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from hoptrain.engine import InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.features.take import finish_rows
from hoptrain.samplers import Block, MiniBatch, Workspace
from hoptrain.trainers.metrics.own import AnyLoss, AnyMetric
from hoptrain.trainers.models.features import Standardize, model_input
from hoptrain.trainers.models.inference import neighborhoods
from hoptrain.trainers.models.layered import address_seed
from hoptrain.trainers.models.layers import Dropout
from hoptrain.trainers.models.sums import aggregate
from hoptrain.trainers.tasks.nodes.data import NodeDataModule
from hoptrain.trainers.tasks.nodes.task import NodeClassifier
from hoptrain.trainers.tasks.options import check_training
from hoptrain.trainers.tasks.scored import LRSchedulerCallable, OptimizerCallable


class SteadyDataModule(NodeDataModule):
    """A data module for SSE: a ``NodeDataModule`` that also provides the number of nodes. Its sampler must have one hop."""

    @property
    def num_nodes(self) -> int:
        """Number of nodes, V."""
        return self.data.graph.num_nodes


class SteadyState(nn.Module):
    """A module with the update operator T and the readout g of SSE, which take rows [x, h] of features and states."""

    num_layers = 1

    def __init__(
        self,
        in_channels: int,
        state_channels: int,
        hidden_channels: int,
        out_channels: int,
        dropout: float,
        standardize_features: bool = False,
    ) -> None:
        """Build T and g.

        T is an MLP on a node's features concatenated with the mean of its in-neighbours' rows. g is an MLP. Both have one hidden layer with ReLU.
        """
        super().__init__()
        self.standardize: nn.Module = Standardize(in_channels) if standardize_features else nn.Identity()
        self._in_channels = in_channels
        self.operator: nn.Module = nn.Sequential(
            Dropout(dropout),
            nn.Linear(2 * in_channels + state_channels, hidden_channels),
            nn.ReLU(),
            nn.Linear(hidden_channels, state_channels),
        )
        self.readout: nn.Module = nn.Sequential(
            Dropout(dropout), nn.Linear(state_channels, hidden_channels), nn.ReLU(), nn.Linear(hidden_channels, out_channels)
        )

    def states(self, x: Tensor, block: Block) -> Tensor:
        """Apply T: compute states (num_dst, C) from rows ``x`` (num_src, F + C) of features and states."""
        if isinstance(self.standardize, Standardize):
            x = torch.cat([self.standardize(x[:, : self._in_channels]), x[:, self._in_channels :]], 1)
        own = x[: block.num_dst, : self._in_channels]
        out: Tensor = self.operator(torch.cat([own, aggregate(block, x, reduce="mean").to(own.dtype)], 1))
        return out

    def layer(self, i: int, x: Tensor, block: Block) -> Tensor:
        """Apply T and g: compute logits (num_dst, num_classes) from rows ``x`` (num_src, F + C) of features and states."""
        out: Tensor = self.readout(self.states(x, block))
        return out

    def forward(self, x: Tensor, blocks: tuple[Block, ...]) -> Tensor:
        """Compute the logits of the seeds."""
        return self.layer(0, x, blocks[0])


class SteadyStateClassifier(NodeClassifier):
    """A node classifier on states h that are the fixed point of a local operator T: h_v = T(x_v, {x_u, h_u: u -> v}). So states depend on the whole graph.

    A table holds the states of all nodes. Each step has two parts:

    * A gradient step on T and the readout g, with the loss of g(T) on a batch of labelled nodes. States of neighbours come from the table as constants.
    * With the new weights, the states of ``num_updates`` random nodes become h_v <- (1 - r) h_v + r T, with r = ``update_rate``.

    Both parts read one hop of neighbours, however far the influence of states reaches. T takes the mean over in-neighbours, where the paper takes the
    sum, so that its expectation is the same for sampled and full neighbourhoods.

    A checkpoint stores the table, and a resumed run restores it bit-identically. All ranks draw the same nodes and compute the same updates. So their
    tables stay equal without communication, but the updates are not divided among ranks.

    Validation, test and prediction apply g(T) to the table and full neighbourhoods. Nodes of another graph have no states.
    """

    data_class = SteadyDataModule

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        num_layers: int,
        num_nodes: int,
        multilabel: bool = False,
        *,
        state_channels: int = 64,
        hidden_channels: int = 64,
        num_updates: int = 1024,
        update_rate: float = 0.5,
        dropout: float = 0.0,
        normalize_features: bool = False,
        standardize_features: bool = False,
        lr: float = 0.003,
        weight_decay: float = 0.0,
        metric: AnyMetric = "acc",
        class_weight: Literal["balanced"] | None = None,
        loss: AnyLoss | None = None,
        optimizer: OptimizerCallable | None = None,
        lr_scheduler: LRSchedulerCallable | None = None,
    ) -> None:
        """Build the model. On the command line, the first five arguments come from the data.

        Args:
            in_channels: number of features of a node, F.
            num_classes: number of classes, labels or targets.
            num_layers: number of hops of the sampler; must be 1.
            num_nodes: number of nodes, V, which is the number of rows of the table.
            multilabel: whether a node may have several labels.
            state_channels: width of a state, C.
            hidden_channels: width of the hidden layers of T and g.
            num_updates: number of nodes drawn in each step for an update of their states.
            update_rate: weight of the new state in an update, in (0, 1].
            dropout: dropout probability of the inputs of T and g in gradient steps.
            normalize_features: divide each node's features by their sum.
            standardize_features: subtract from each feature its mean over the training nodes, and divide by its standard deviation over them.
            lr: Adam's learning rate.
            weight_decay: Adam's L2 penalty.
            metric: metric to log: acc, macro_f1 or auc; for several labels also micro_f1 or ap; for regression rmse, mae or r2. Or a metric of torchmetrics.
            class_weight: balanced weights the loss of each class inversely to its frequency in the training split. By default all classes count equally.
            loss: your own loss instead of the task's: a loss of torch.nn, or a function of outputs and targets.
            optimizer: your own optimiser: a function of the parameters, such as a class of torch.optim. Then lr and weight_decay are not used.
            lr_scheduler: learning rate schedule, stepped after each epoch: a function of the optimiser, such as a class of torch.optim.lr_scheduler.

        Raises:
            InputError: a number is out of range, or the sampler has several hops.
        """
        _check(num_layers, dropout, update_rate, state_channels=state_channels, hidden_channels=hidden_channels, num_updates=num_updates)
        model = SteadyState(in_channels, state_channels, hidden_channels, num_classes, dropout, standardize_features)
        options: dict[str, Any] = {"normalize_features": normalize_features, "lr": lr, "weight_decay": weight_decay, "metric": metric}
        options |= {"class_weight": class_weight, "loss": loss, "optimizer": optimizer, "lr_scheduler": lr_scheduler}
        super().__init__(in_channels, num_classes, num_layers, multilabel, model, **options)
        self.steady, self.num_updates, self.update_rate = model, num_updates, update_rate
        self.register_buffer("states", torch.zeros(num_nodes, state_channels))
        self.states: Tensor
        self._due: tuple[int, int, int] | None = None  # address of the update that follows the current batch
        self._workspace = Workspace()
        self.tables_of_rank = ["states"]

    def inputs(self, batch: MiniBatch) -> Tensor:
        """Return the model's input rows (S, F + C): features of the batch's nodes and, as constants, their states."""
        return torch.cat([super().inputs(batch), self.states[batch.node_ids.long()]], 1)

    @torch.no_grad()
    def infer(self, nodes: Array) -> Tensor:
        """Compute logits (N, num_classes) for ``nodes`` (N,) from the table and their full one-hop neighbourhoods."""
        asked, data = nodes if len(nodes) else np.zeros(1, np.int64), self._datamodule.data
        scores = [self.steady.layer(0, *self._rows_and_block(batch)) for batch in neighborhoods(data, asked, 1)]
        return torch.cat(scores)[: len(nodes)]

    def _rows_and_block(self, batch: MiniBatch) -> tuple[Tensor, Block]:
        """Return the inputs of the update operator T for a batch of NumPy arrays: the rows [features, states] and the block."""
        data = self._datamodule.data
        x = model_input(data, batch.node_ids, self.normalize_features, self.states.device)
        finish_rows(data.x)
        nodes = torch.from_numpy(np.asarray(batch.node_ids)).long().to(self.states.device)
        return torch.cat([x, self.states[nodes]], 1), batch.to(self.states.device).blocks[0]

    def training_step(self, batch: MiniBatch, batch_idx: int) -> Tensor:
        """Return the classifier's loss with the current states."""
        self._due = batch.seed, batch.epoch, batch.batch // self.trainer.world_size
        return super().training_step(batch, batch_idx)

    def commit(self) -> None:
        """Update states with the new weights after a finished batch; an interrupted batch changes nothing."""
        super().commit()
        if self._due is not None:
            self.update_states(*self._due)
        self._due = None

    @torch.no_grad()
    def update_states(self, seed: int, epoch: int, batch: int) -> Tensor:
        """Draw nodes, update their states, and return their ids in ascending order. The three arguments together select the random numbers."""
        module = self._datamodule
        generator = torch.Generator().manual_seed(address_seed(seed, epoch, batch))
        drawn: Tensor = torch.unique(torch.randint(len(self.states), (self.num_updates,), generator=generator))
        sampled = module.sampler.sample(module.data.graph, drawn.numpy(), seed=seed, epoch=epoch, batch=batch, workspace=self._workspace)
        was_training = self.steady.training
        new = self.steady.eval().states(*self._rows_and_block(sampled))
        self.steady.train(was_training)
        at = drawn.to(new.device)
        self.states[at] = torch.lerp(self.states[at], new.to(self.states.dtype), self.update_rate)
        return drawn


def _check(num_hops: int, dropout: float, update_rate: float, **counts: int) -> None:
    """Raise InputError if a number is out of range."""
    if num_hops != 1:
        raise InputError(
            f"the sampler has {num_hops} hops with task sse: it must have one, since states represent farther nodes; give one fanout, such as [-1]"
        )
    for name, value in counts.items():
        if value < 1:
            raise InputError(f"{name} is {value}: it must be at least 1; give for instance 64")
    if not 0 < update_rate <= 1:
        raise InputError(f"update_rate is {update_rate}: the weight of the new state must be in (0, 1]; give for instance 0.5")
    check_training(dropout=dropout)
