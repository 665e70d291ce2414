"""Bases of tasks on the nodes of one graph: a model on sampled batches in training, on full neighbourhoods for everything else."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, get_args

import numpy as np
import torch
from lightning_utilities.core.rank_zero import rank_zero_info
from torch import Tensor, nn
from torchmetrics import Metric

from hoptrain.engine import Dataset, InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.errors import check_choice
from hoptrain.samplers import HeteroMiniBatch, MiniBatch
from hoptrain.trainers.feedback import Apply, Feedback, feedback_for
from hoptrain.trainers.models import GNN
from hoptrain.trainers.models.batches import ForwardInputs, apply_model
from hoptrain.trainers.models.features import to_input
from hoptrain.trainers.models.hetero.gnn import HeteroGNN
from hoptrain.trainers.models.hetero.inference import hetero_layerwise_inference
from hoptrain.trainers.models.hetero.layers import READ_EDGES
from hoptrain.trainers.models.inference import layerwise_inference, neighborhood_logits
from hoptrain.trainers.models.layered import LayerwiseModule
from hoptrain.trainers.models.layers import Arch
from hoptrain.trainers.models.lightgcn import LightGCN
from hoptrain.trainers.tasks.options import check_training
from hoptrain.trainers.tasks.scored import ScoredModule
from hoptrain.trainers.tasks.shared_data import NodeBatch, SampledDataModule


class ExactTask(ScoredModule):
    """A task that evaluates its ``model`` from full neighbourhoods."""

    model: Any

    @abstractmethod
    def infer(self, nodes: Array) -> Tensor:
        """Return what the model gives for ``nodes`` (N,) from full neighbourhoods: (N, C). Every rank calls it, with its own nodes."""

    def predict_step(self, batch: NodeBatch, batch_idx: int) -> Tensor:
        """Return what the model gives for this rank's share of the nodes, (N, C) float32 on the CPU."""
        return self.infer(batch.node_ids.cpu().numpy()).float().cpu()

    def _ranks(self) -> dict[str, Any]:
        """Return this rank and their number, as exact inference takes them."""
        return {"rank": self.trainer.global_rank, "world_size": self.trainer.world_size}


class GraphTask(ExactTask):
    """A task on a homogeneous graph.

    Attributes:
        model: a ``GNN``, or a custom module.
        forward_inputs: what the model takes of a batch.
        feedback: what the sampler asks for, by name.
    """

    def __init__(
        self,
        in_channels: int,
        num_outputs: int,
        num_layers: int,
        metric: Callable[[], Metric] | None,
        model: Any = None,
        forward_inputs: ForwardInputs = "blocks",
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
            in_channels: features of a node.
            num_outputs: width of what the model returns.
            num_layers: hops of the sampler.
            metric: makes the metric of a stage; None where ``make_scores`` follows in ``setup``.
            model: an ``nn.Module`` in place of a ``GNN``, which needs the three sizes; with it they may be 0, and are the data's.
            forward_inputs: what that module takes of a batch.
            arch: sage, gat, gcn, gin or lightgcn; gine, gatv2, transformer or nnconv, which read edges' features; or torch_geometric.nn.CLASS.
            hidden_channels: width between layers (with attention over all heads together).
            normalize_features: divide each node's features by their sum.
            lr: Adam's learning rate.
            weight_decay: Adam's L2 penalty.
            gnn: as ``GNN``.

        Raises:
            InputError: numbers that have no meaning, or neither sizes nor a module.
        """
        check_training(lr=lr, weight_decay=weight_decay, **gnn)
        check_choice("forward_inputs", forward_inputs, get_args(ForwardInputs))
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
            forward_inputs = "blocks+degrees"
            self.note_defaults(type(model))
        else:
            self.note_module(model)
        self.model: nn.Module = model
        self.forward_inputs: ForwardInputs = forward_inputs
        self.normalize_features = normalize_features
        self._degrees = torch.empty(0)
        self.feedback: nn.ModuleDict = nn.ModuleDict()

    def setup(self, stage: str) -> None:
        """Compare the model with the data, take the graph's degrees, and make what the sampler asks for.

        Raises:
            InputError: the model is for other data, or the trainer clips sparse gradients.
        """
        super().setup(stage)
        module: SampledDataModule = self._datamodule
        data, hops = module.data, module.num_hops
        layers = self.model.num_layers if isinstance(self.model, LayerwiseModule) else hops
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
        """Return what the model gives for the batch's seeds, (B, C)."""
        x, degrees = self.inputs(batch), self.degrees[batch.node_ids.long()]
        apply: Apply = partial(apply_model, self.model, self.forward_inputs)
        for feedback in reversed(
            self._feedback()
        ):  # a sampler's own comes before that of the sampler within it, which may replace the model
            apply = feedback.wrap(apply)
        return apply(x, batch, degrees)

    def inputs(self, batch: MiniBatch) -> Tensor:
        """Return what enters the model, (S, F): the features of the batch's input nodes."""
        return to_input(batch.x, self.normalize_features)

    def all_inputs(self) -> Tensor | None:
        """Return what enters the model for all nodes, (V, F), where these are no features; else None."""
        return None

    def infer(self, nodes: Array) -> Tensor:
        """Return what the model gives for ``nodes`` (N,) from full neighbourhoods: (N, C)."""
        data: Dataset = self._datamodule.data
        options: dict[str, Any] = {"normalize": self.normalize_features, "device": self.device, "forward_inputs": self.forward_inputs}
        if isinstance(self.model, LayerwiseModule) and self._is_exact:
            return layerwise_inference(self.model, data, nodes, x=self.all_inputs(), **self._ranks(), **options)
        return neighborhood_logits(self.model, data, nodes, num_hops=self._datamodule.num_hops, **options)

    @property
    def _is_exact(self) -> bool:
        """Whether the model says its layers, and these take blocks."""
        return self.forward_inputs != "edge_index" and isinstance(self.model, LayerwiseModule)

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


class HeteroTask(ExactTask):
    """A task on a heterogeneous graph. A subclass makes the ``model``: a ``HeteroGNN``, or a custom module."""

    def compare(self, names: Sequence[str]) -> None:
        """Compare the model's arguments ``names``, which come from the data, with those of the data module.

        Raises:
            InputError: the model is for other data.
        """
        module, ours = self._datamodule, {**self.hparams, "edge_channels": self.hparams.get("edge_channels") or {}}
        of_data = {"in_channels": module.num_features, "num_layers": module.num_hops} | {name: getattr(module, name) for name in names}
        if ours.get("arch") in READ_EDGES:
            of_data["edge_channels"] = module.edge_channels
        for name, theirs in of_data.items():
            if (ours[name] or isinstance(self.model, HeteroGNN)) and ours[name] != theirs:
                raise InputError(
                    f"the model has {name} {ours[name]}, {module.data.name} with this sampler {theirs}: use the data set and the sampler that it "
                    "was made for"
                )

    def inputs(self, batch: HeteroMiniBatch) -> dict[str, Tensor]:
        """Return the features of a batch's nodes, as the model takes them."""
        return {name: to_input(rows, self.hparams["normalize_features"]) for name, rows in batch.x.items()}

    def exact(self, nodes: Mapping[str, Array]) -> dict[str, Tensor]:
        """Return what a ``HeteroGNN`` gives for ``nodes`` of each type of seeds, from full neighbourhoods; see ``hetero_layerwise_inference``."""
        options: dict[str, Any] = {"normalize": self.hparams["normalize_features"], "device": self.device}
        return hetero_layerwise_inference(self.model, self._datamodule.data, nodes, **options, **self._ranks())


def check_embeddings(model: HeteroGNN, num_nodes: Mapping[str, int], embeddings: bool) -> None:
    """Raise if the model has embeddings of nodes that were not asked for.

    Raises:
        InputError: a type without features, and no ``embeddings``.
    """
    bare = next(iter(model.tables.keys()), None)
    if bare is not None and not embeddings:
        raise InputError(
            f"nodes of type {bare} have no features: give them some, or set embeddings: true, which learns a vector for each of the "
            f"{num_nodes[bare]:,}"
        )
