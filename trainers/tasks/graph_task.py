"""What tasks on the vertices of one graph share: a model on sampled batches in training, on full neighbourhoods for everything else."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, get_args

import numpy as np
import torch
from lightning_utilities.core.rank_zero import rank_zero_info
from torch import Tensor, nn
from torchmetrics import Metric

from hoptrain.engine import InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.errors import check_choice
from hoptrain.samplers import MiniBatch
from hoptrain.samplers.batch.minibatch import SampledBatch
from hoptrain.trainers.feedback import feedback_for
from hoptrain.trainers.feedback.feedback import Apply, Feedback
from hoptrain.trainers.models import GNN
from hoptrain.trainers.models.batches import Takes, apply_model
from hoptrain.trainers.models.features import to_input
from hoptrain.trainers.models.inference import exact_logits, neighborhood_logits
from hoptrain.trainers.models.layered import LayerWise, address_seed, seed_generators
from hoptrain.trainers.models.layers import Arch
from hoptrain.trainers.models.lightgcn import LightGCN
from hoptrain.trainers.tasks.node_data import GraphDataModule, NodeBatch
from hoptrain.trainers.tasks.options import check_training
from hoptrain.trainers.tasks.scored import ScoredModule


class GraphTask(ScoredModule):
    """A subclass says its ``data_class``.

    Attributes:
        model: a ``GNN``, or a module of the user's.
        takes: what the model takes of a batch.
        feedback: what the sampler asks for, by name.
    """

    data_class: ClassVar[type[GraphDataModule]]

    def __init__(
        self,
        in_channels: int,
        num_outputs: int,
        num_layers: int,
        metric: Callable[[], Metric] | None,
        model: Any = None,
        takes: Takes = "blocks",
        *,
        arch: Arch | str = "sage",
        hidden_channels: int = 256,
        normalize_features: bool = False,
        lr: float = 0.003,
        weight_decay: float = 0.0,
        **gnn: Any,
    ) -> None:
        """Build the model.

        Args:
            in_channels: features of a vertex.
            num_outputs: width of what the model returns.
            num_layers: hops of the sampler.
            metric: makes the metric of a stage; None where ``make_scores`` follows in ``setup``.
            model: an ``nn.Module`` in place of a ``GNN``, which needs the three sizes; with it they may be 0, and are the data's.
            takes: what that module takes of a batch.
            arch: sage, gat, gcn, gin or lightgcn; gine, gatv2, transformer or nnconv, which read edges' features; or torch_geometric.nn.CLASS.
            hidden_channels: width between layers (with attention over all heads together).
            normalize_features: divide each vertex's features by their sum.
            lr: Adam's learning rate.
            weight_decay: Adam's L2 penalty.
            gnn: as ``GNN``.

        Raises:
            InputError: numbers that have no meaning, or neither sizes nor a module.
        """
        check_training(lr=lr, weight_decay=weight_decay, **gnn)
        check_choice("takes", takes, get_args(Takes))
        super().__init__(metric)
        of_a_gnn = [] if model is None else ["arch", "hidden_channels"]
        self.save_hyperparameters(ignore=["num_outputs", "metric", "model", *of_a_gnn])
        if model is None:
            if not (in_channels and num_outputs and num_layers):
                raise InputError(
                    f"{type(self).__name__} without a model and without its sizes: give in_channels, num_classes and num_layers"
                )
            if arch == "lightgcn":
                model = LightGCN(in_channels, hidden_channels, num_outputs, num_layers, **dict(gnn))
            else:
                model = GNN(arch, in_channels, hidden_channels, num_outputs, num_layers, **gnn)
            takes = "blocks+degrees"
            self.note_defaults(type(model))
        else:
            self.note_module(model)
        self.model: nn.Module = model
        self.takes: Takes = takes
        self.normalize_features = normalize_features
        self._degrees = torch.empty(0)
        self.feedback: nn.ModuleDict = nn.ModuleDict()

    def setup(self, stage: str) -> None:
        """Compare the model with the data, take the graph's degrees, and make what the sampler asks for.

        Raises:
            InputError: the model is for other data.
        """
        module = self._datamodule
        data, hops = module.data, module.num_hops
        layers = self.model.num_layers if isinstance(self.model, LayerWise) else hops
        features = self.hparams["in_channels"] or data.num_features
        if layers != hops or features != data.num_features:
            raise InputError(
                f"the model takes {features} features and {layers} blocks, {data.name} with this sampler gives "
                f"{data.num_features} and {hops}: use the data set and the number of hops that it was made for"
            )
        self.degrees = torch.from_numpy(data.graph.in_degrees(np.float32))
        if not isinstance(self.model, GNN | LightGCN):
            how = "exactly, layer by layer" if self._is_exact else f"on batches of all neighbours over {hops} hops, since it says no layers"
            rank_zero_info(f"{type(self.model).__name__} is evaluated {how}")
        if stage == "fit":
            asked = feedback_for(module.sampler, self.model, data, normalize=self.normalize_features)
            self.feedback = nn.ModuleDict(asked).to(self.device)

    @property
    def degrees(self) -> Tensor:
        """(V,) in-degrees of the graph, on the model's device.

        They are no buffer: they belong to the data, and callbacks copy a model's buffers before the data are known.
        """
        if self._degrees.device != self.device:
            self._degrees = self._degrees.to(self.device)
        return self._degrees

    @degrees.setter
    def degrees(self, degrees: Tensor) -> None:
        self._degrees = degrees

    def forward(self, batch: MiniBatch) -> Tensor:
        """What the model gives for the batch's seeds, (B, C)."""
        x, degrees = self.inputs(batch), self.degrees[batch.node_ids.long()]
        apply: Apply = partial(apply_model, self.model, self.takes)
        for feedback in self._feedback():
            apply = feedback.wrap(apply)
        return apply(x, batch, degrees)

    def inputs(self, batch: MiniBatch) -> Tensor:
        """What enters the model, (S, F): the features of the batch's input nodes."""
        return to_input(batch.x, self.normalize_features)

    def all_inputs(self) -> Tensor | None:
        """Where these are no features, what enters the model for all vertices, (V, F)."""
        return None

    def infer(self, nodes: Array) -> Tensor:
        """What the model gives for ``nodes`` (N,), from full neighbourhoods: (N, C). Every rank calls it, with its own."""
        data = self._datamodule.data
        options: dict[str, Any] = {"normalize": self.normalize_features, "device": self.device, "takes": self.takes}
        if isinstance(self.model, LayerWise) and self._is_exact:
            ranks: dict[str, Any] = {"rank": self.trainer.global_rank, "world_size": self.trainer.world_size}
            return exact_logits(self.model, data, nodes, x=self.all_inputs(), **ranks, **options)
        return neighborhood_logits(self.model, data, nodes, num_hops=self._datamodule.num_hops, **options)

    @property
    def _is_exact(self) -> bool:
        """Whether the model says its layers, and these take blocks."""
        return self.takes != "edge_index" and isinstance(self.model, LayerWise)

    def predict_step(self, batch: NodeBatch, batch_idx: int) -> Tensor:
        """What the model gives for this rank's share of the vertices, (N, C) float32 on the CPU."""
        return self.infer(batch.node_ids.cpu().numpy()).float().cpu()

    def on_train_epoch_start(self) -> None:
        """Begin the epoch's figures, and tell the sampler what it draws by."""
        super().on_train_epoch_start()
        for feedback in self._feedback():
            feedback.begin_epoch(self.trainer)

    def commit(self) -> None:
        """Count what the batch that is done gave, and keep what the sampler asks for."""
        super().commit()
        for feedback in self._feedback():
            feedback.commit()

    def rank_state(self) -> dict[str, Tensor]:
        """This rank's figures of the epoch so far, and what it keeps for the sampler."""
        return super().rank_state() | self._tables()

    def load_rank_state(self, state: dict[str, Tensor]) -> None:
        """Take them back."""
        super().load_rank_state(state)
        for name, table in self._tables().items():
            table.copy_(state[name])

    def _tables(self) -> dict[str, Tensor]:
        return {name: table for feedback in self._feedback() for name, table in feedback.tables().items()}

    def _feedback(self) -> list[Feedback]:
        """Those of ``feedback``, which knows them as modules only."""
        return [each for each in self.feedback.values() if isinstance(each, Feedback)]

    @property
    def _datamodule(self) -> GraphDataModule:
        datamodule, wanted = getattr(self.trainer, "datamodule", None), self.data_class.__name__
        if not isinstance(datamodule, self.data_class):
            raise InputError(
                f"{type(self).__name__} needs the graph that it learns from: run it with trainer.fit(model, datamodule={wanted}(...))"
            )
        return datamodule


def seed_dropout(batch: SampledBatch, device: torch.device) -> None:
    """Seed torch by the address of a batch, so that a resumed run drops the units that an uninterrupted one drops."""
    seed_generators(address_seed(batch.seed, batch.epoch, batch.batch), device)
