"""Base classes of tasks on one graph. They train on sampled batches and evaluate from full neighbourhoods."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from lightning_utilities.core.rank_zero import rank_zero_info
from torch import Tensor, nn

from hoptrain.engine import Dataset, InputError
from hoptrain.engine.arrays import Array
from hoptrain.samplers import HeteroMiniBatch, MiniBatch
from hoptrain.samplers.batch.minibatch import SampledBatch
from hoptrain.samplers.batch.table_batch import TableBatch
from hoptrain.trainers.feedback import Apply, Feedback, feedback_for
from hoptrain.trainers.metrics.own import AnyLoss
from hoptrain.trainers.models import GNN
from hoptrain.trainers.models.batches import ForwardInputs, apply_model, choose_inputs
from hoptrain.trainers.models.features import Standardize, to_input
from hoptrain.trainers.models.hetero.gnn import HeteroGNN
from hoptrain.trainers.models.hetero.inference import hetero_layerwise_inference
from hoptrain.trainers.models.hetero.layers import READ_EDGES, HeteroArch
from hoptrain.trainers.models.inference import layerwise_inference, offers_layers
from hoptrain.trainers.models.layered import LayerwiseModule
from hoptrain.trainers.models.layers import Arch
from hoptrain.trainers.models.lightgcn import LightGCN
from hoptrain.trainers.tasks.options import check_training, warn_of_unread
from hoptrain.trainers.tasks.scored import LRSchedulerCallable, OptimizerCallable, ScoredModule
from hoptrain.trainers.tasks.shared_data import NodeBatch, SampledDataModule

_log = logging.getLogger(__name__)


class ExactTask(ScoredModule):
    """A task that evaluates its ``model`` from full neighbourhoods instead of sampled ones."""

    model: Any

    @abstractmethod
    def infer(self, nodes: Array) -> Tensor:
        """Compute outputs (N, C) for ``nodes`` (N,) from full neighbourhoods. Every rank must call this, each with the nodes that it evaluates."""

    def outputs_of(self, batch: NodeBatch | SampledBatch) -> Tensor:
        """Compute outputs (N, C) in evaluation: for a batch of node ids from their full neighbourhoods, or for a mini-batch of an ``eval_sampler``."""
        if isinstance(batch, NodeBatch):
            return self.infer(batch.node_ids.cpu().numpy())
        outputs: Tensor = self(batch)
        return outputs

    def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return the outputs (N, C) for this rank's share of the nodes, as float32 on the CPU."""
        return self.outputs_of(batch).float().cpu()

    def _warn_of_unread(self, edge_reader: str) -> None:
        """Warn of features, times and weights of edges that the training does not use. ``edge_reader`` is what reads edge features."""
        module: SampledDataModule = self._datamodule
        name = str(self.hparams.get("arch") or type(self.model).__name__)
        warn_of_unread(module.data, module.sampler, name, None if self.reads_edges else edge_reader, of_nodes=module.of_vertices)

    def _ranks(self) -> dict[str, Any]:
        """Return this rank and the number of ranks, as keyword arguments of layer-wise inference."""
        return {"rank": self.trainer.global_rank, "world_size": self.trainer.world_size}


class GraphTask(ExactTask):
    """A task that trains a ``GNN``, or a custom module, on a homogeneous graph.

    Attributes:
        model: the ``GNN``, or the custom module.
        forward_inputs: inputs of the model's ``forward`` in addition to the features.
        feedback: per-step computations that the sampler needs, such as gradient norms, by name.
    """

    _has_warned = False

    def __init__(
        self,
        in_channels: int,
        num_outputs: int,
        num_layers: int,
        model: Any = None,
        forward_inputs: ForwardInputs | None = None,
        *,
        arch: Arch | str = "sage",
        hidden_channels: int = 256,
        normalize_features: bool = False,
        lr: float = 0.003,
        weight_decay: float = 0.0,
        loss: AnyLoss | None = None,
        optimizer: OptimizerCallable | None = None,
        lr_scheduler: LRSchedulerCallable | None = None,
        **gnn: Any,
    ) -> None:
        """Build the model.

        Args:
            in_channels: number of features of a node.
            num_outputs: width of the model's output.
            num_layers: number of layers, which equals the sampler's hops.
            model: a custom ``nn.Module`` to train instead of a ``GNN``. The three sizes above may then be 0, which takes them from the data.
            forward_inputs: inputs of the custom module's ``forward`` in addition to the features; by default derived from the names of its parameters.
            arch: layer type of the GNN: sage, gat, gcn, gin or lightgcn; gine, gatv2, transformer or nnconv, which read edge features; or
                torch_geometric.nn.CLASS.
            hidden_channels: width of the hidden layers (the sum over all attention heads).
            normalize_features: divide each node's features by their sum.
            lr: Adam's learning rate.
            weight_decay: Adam's L2 penalty.
            loss: your own loss instead of the task's: a loss of torch.nn, or a function of outputs and targets.
            optimizer: your own optimiser: a function of the parameters, such as a class of torch.optim. Then lr and weight_decay are not used.
            lr_scheduler: learning rate schedule, stepped after each epoch: a function of the optimiser, such as a class of torch.optim.lr_scheduler.
            gnn: further options of ``GNN``.

        Raises:
            InputError: a number is out of range, or neither sizes nor a module are given.
        """
        check_training(lr=lr, weight_decay=weight_decay, **gnn)
        inputs: ForwardInputs = choose_inputs(model, forward_inputs, ForwardInputs)
        super().__init__(loss=loss, optimizer=optimizer, lr_scheduler=lr_scheduler)
        of_a_gnn = [] if model is None else ["arch", "hidden_channels"]
        self.save_hyperparameters(ignore=["num_outputs", "model", *of_a_gnn])
        self.hparams["forward_inputs"] = inputs
        if model is None:
            if not (in_channels and num_outputs and num_layers):
                raise InputError(no_sizes(type(self).__name__, "in_channels, num_classes and num_layers"))
            model = make_gnn(arch, in_channels, hidden_channels, num_outputs, num_layers, **gnn)
            inputs = "blocks+degrees"
            self.note_defaults(type(model))
        else:
            self.note_module(model)
        self.model: nn.Module = model
        self.forward_inputs: ForwardInputs = inputs
        self.normalize_features = normalize_features
        self._degrees = torch.empty(0)
        self.feedback: nn.ModuleDict = nn.ModuleDict()

    def setup(self, stage: str) -> None:
        """Check that the model matches the data, load the nodes' in-degrees, and set up the feedback that the sampler needs.

        Raises:
            InputError: the model was built for other data, or the trainer clips sparse gradients.
        """
        super().setup(stage)
        module: SampledDataModule = self._datamodule
        data, hops = module.data, module.num_hops
        layers = self.model.num_layers if isinstance(self.model, LayerwiseModule) else hops
        features = self.hparams["in_channels"] or data.num_features
        if layers != hops or features != data.num_features:
            raise InputError(
                f"the model takes {features} features and {layers} blocks, {data.name} with this sampler gives "
                f"{data.num_features} and {hops}: use the data set and the number of hops that the model was built for"
            )
        self.degrees = torch.from_numpy(data.graph.in_degrees(np.float32))
        if not isinstance(self.model, GNN | LightGCN):
            rank_zero_info(f"{type(self.model).__name__} is evaluated from full neighbourhoods, {self._how_evaluated()}")
        if stage == "fit":
            own = "a model over blocks" if not isinstance(self.model, GNN | LightGCN) else "arch gine, gatv2, transformer or nnconv"
            self._warn_of_unread(own)
            if self.loss is not None and "gradient-norms" in module.sampler.feedback:
                raise InputError(
                    f"loss is {self.hparams['loss']} with {type(module.sampler).__name__}: the sampler needs gradient norms of the task's own loss; use "
                    "another sampler, or leave loss out"
                )
            standardize = getattr(self.model, "standardize", None)
            if isinstance(standardize, Standardize) and data.x is not None:
                standardize.fit(data.x, data.splits.get("train", np.arange(data.num_seed_nodes)))
            asked = feedback_for(module.sampler, self.model, data, normalize=self.normalize_features)
            self.feedback = nn.ModuleDict(asked).to(self.device)
            module.gathers_on_read = self._sums_table_rows

    @property
    def _sums_table_rows(self) -> bool:
        """True if training needs no copy of the features, since the first layer sums rows of the table."""
        is_plain = self._inputs_are_features and not self.feedback
        return is_plain and self.training and isinstance(self.model, GNN) and self.model.sums_table_rows

    @property
    def _inputs_are_features(self) -> bool:
        """True if ``inputs`` returns the features as they are stored."""
        return type(self).inputs is GraphTask.inputs and not self.normalize_features

    @property
    def reads_edges(self) -> bool:
        """True if the model reads edge features. A custom module over blocks may; one over ``edge_index`` does not get them."""
        if isinstance(self.model, GNN | LightGCN):
            return isinstance(self.model, GNN) and self.model.reads_edges
        return self.forward_inputs != "edge_index"

    @property
    def degrees(self) -> Tensor:
        """In-degrees (V,) of the graph's nodes, on the model's device.

        They are not a buffer: they belong to the data, and callbacks copy a model's buffers before the data are known.
        """
        if self._degrees.device != self.device:
            self._degrees = self._degrees.to(self.device)
        return self._degrees

    @degrees.setter
    def degrees(self, degrees: Tensor) -> None:
        self._degrees = degrees

    def forward(self, batch: MiniBatch) -> Tensor:
        """Compute the outputs (B, C) for the seeds of a batch."""
        self._warn_of_weights(batch)
        x: Any = batch.table_rows if isinstance(batch, TableBatch) and self._sums_table_rows else None
        x, degrees = self.inputs(batch) if x is None else x, self.degrees[batch.node_ids.long()]
        apply: Apply = partial(apply_model, self.model, self.forward_inputs)
        # The feedback of the inner sampler wraps first, since it may replace the model.
        for feedback in reversed(self._feedback() if self.training else []):
            apply = feedback.wrap(apply)
        return apply(x, batch, degrees)

    def _warn_of_weights(self, batch: MiniBatch) -> None:
        """Log a warning once if the sampled edges have weights that the model does not get."""
        if self._has_warned or self.forward_inputs != "edge_index" or all(block.weights is None for block in batch.blocks):
            return
        self._has_warned = True
        _log.warning(
            f"{type(self.model).__name__} does not get the weights of sampled edges, so its sums and means over neighbours are biased: use "
            "NeighborSampler, whose edges have no weights, or a model over blocks that reads block.weights"
        )

    def inputs(self, batch: MiniBatch) -> Tensor:
        """Return the model's input rows (S, F): the features of the batch's input nodes."""
        return to_input(batch.x, self.normalize_features)

    def all_inputs(self) -> Tensor | None:
        """Return the model's input rows (V, F) for all nodes, or None if these are the features."""
        return None

    def infer(self, nodes: Array) -> Tensor:
        """Compute outputs (N, C) for ``nodes`` (N,) from full neighbourhoods."""
        data: Dataset = self._datamodule.data
        options: dict[str, Any] = {"normalize": self.normalize_features, "device": self.device, "forward_inputs": self.forward_inputs}
        return layerwise_inference(self.model, data, nodes, num_hops=self._eval_hops, x=self.all_inputs(), **self._ranks(), **options)

    @property
    def _eval_hops(self) -> int:
        """Number of hops in full-neighbour batches for models without ``layer``: the sampler's; for models with ``edge_index`` at least ``num_layers``."""
        hops: int = self._datamodule.num_hops
        layers = getattr(self.model, "num_layers", None) if self.forward_inputs == "edge_index" else None
        return max(hops, layers) if isinstance(layers, int) else hops

    def _how_evaluated(self) -> str:
        if offers_layers(self.model, self.forward_inputs):
            return "layer by layer"
        hops, has_number = self._eval_hops, isinstance(getattr(self.model, "num_layers", None), int)
        limit = "" if has_number or self.forward_inputs != "edge_index" else f"; this is exact for at most {hops} layers"
        return f"on batches of all neighbours over {hops} hops, since it has no method layer{limit}"

    def on_train_epoch_start(self) -> None:
        """Reset the epoch's metrics, and update the sampler from the feedback of the previous epoch."""
        super().on_train_epoch_start()
        for feedback in self._feedback():
            feedback.begin_epoch(self.trainer)

    def commit(self) -> None:
        """Count the finished batch in the metrics, and store the feedback that the sampler needs."""
        super().commit()
        for feedback in self._feedback():
            feedback.commit()

    def rank_state(self) -> dict[str, Tensor]:
        """Return this rank's metric state of the epoch so far, and the feedback that it stores for the sampler."""
        return super().rank_state() | self._tables()

    def load_rank_state(self, state: dict[str, Tensor]) -> None:
        """Restore the state that ``rank_state`` returned."""
        super().load_rank_state(state)
        for name, table in self._tables().items():
            table.copy_(state[name])

    def _tables(self) -> dict[str, Tensor]:
        return {name: table for feedback in self._feedback() for name, table in feedback.tables().items()}

    def _feedback(self) -> list[Feedback]:
        """Return the entries of ``feedback``, typed as ``Feedback`` (``ModuleDict`` types them as modules)."""
        return [each for each in self.feedback.values() if isinstance(each, Feedback)]


class HeteroTask(ExactTask):
    """A task on a heterogeneous graph. A subclass makes its ``model``: a ``HeteroGNN``, or a custom module."""

    def __init__(
        self,
        model: Any,
        *,
        normalize_features: bool = False,
        lr: float = 0.003,
        weight_decay: float = 0.0,
        loss: AnyLoss | None = None,
        optimizer: OptimizerCallable | None = None,
        lr_scheduler: LRSchedulerCallable | None = None,
        **gnn: Any,
    ) -> None:
        """Store the options of the training, and those of the ``HeteroGNN``.

        Args:
            model: a custom module; None for a ``HeteroGNN``.
            normalize_features: divide each node's features by their sum.
            lr: Adam's learning rate.
            weight_decay: Adam's L2 penalty; it does not apply to node embeddings.
            loss: your own loss instead of the task's: a loss of torch.nn, or a function of outputs and targets.
            optimizer: your own optimiser: a function of the parameters, such as a class of torch.optim. Then lr and weight_decay are not used.
            lr_scheduler: learning rate schedule, stepped after each epoch: a function of the optimiser, such as a class of torch.optim.lr_scheduler.
            gnn: further options of ``HeteroGNN``.

        Raises:
            InputError: an option is out of range, or is one of a ``HeteroGNN`` with a custom module.
        """
        check_training(lr=lr, weight_decay=weight_decay, **gnn)
        if isinstance(model, nn.Module) and gnn:
            raise InputError(f"{next(iter(gnn))} with your own model: it is an option of the built-in HeteroGNN; leave it out")
        super().__init__(loss=loss, optimizer=optimizer, lr_scheduler=lr_scheduler)
        self.save_hyperparameters(ignore=["model", *([] if model is None else ["arch", "embeddings", "hidden_channels"])])
        self._gnn = gnn

    def make_gnn(
        self,
        arch: HeteroArch,
        in_channels: Mapping[str, int],
        num_nodes: Mapping[str, int],
        relations: Sequence[str],
        seed_types: Sequence[str],
        hidden_channels: int,
        out_channels: int,
        num_layers: int,
        embeddings: bool,
    ) -> HeteroGNN:
        """Build a ``HeteroGNN`` over relations ``source:name:destination``.

        Raises:
            InputError: a node type has no features, and ``embeddings`` is false.
        """
        self.note_defaults(HeteroGNN)
        ends: Any = [tuple(relation.split(":")) for relation in relations]
        model = HeteroGNN(arch, in_channels, num_nodes, ends, seed_types, hidden_channels, out_channels, num_layers, **self._gnn)
        bare = next(iter(model.tables.keys()), None)
        if bare is not None and not embeddings:
            raise InputError(
                f"nodes of type {bare} have no features: give them some, or set embeddings: true, which learns a vector for each of the "
                f"{num_nodes[bare]:,} nodes"
            )
        return model

    def compare(self, names: Sequence[str]) -> None:
        """Check that the model's arguments ``names``, which come from the data, equal the values of the data module.

        Raises:
            InputError: the model was built for other data.
        """
        module, ours = self._datamodule, {**self.hparams, "edge_channels": self.hparams.get("edge_channels") or {}}
        of_data = {"in_channels": module.num_features, "num_layers": module.num_hops} | {name: getattr(module, name) for name in names}
        if ours.get("arch") in READ_EDGES:
            of_data["edge_channels"] = module.edge_channels
        for name, theirs in of_data.items():
            if (ours[name] or isinstance(self.model, HeteroGNN)) and ours[name] != theirs:
                raise InputError(
                    f"the model has {name} {ours[name]}, {module.data.name} with this sampler {theirs}: use the data set and the sampler that "
                    "the model was built for"
                )

    def setup(self, stage: str) -> None:
        """Compute mean and standard deviation of the features if the model standardises them."""
        super().setup(stage)
        data = self._datamodule.data
        if stage == "fit":
            self._warn_of_unread("arch gatv2 or transformer" if isinstance(self.model, HeteroGNN) else "a model over blocks")
        own = getattr(self.model, "standardize", None)
        for kind, standardize in own.items() if stage == "fit" and isinstance(own, nn.ModuleDict) else ():
            # skips features of the wrong width, for which the subclass raises an error
            if isinstance(standardize, Standardize) and kind in data.x and data.x[kind].shape[1] == len(standardize.mean):
                train = data.splits.get("train") if kind == data.seed_type else None
                standardize.fit(data.x[kind], np.arange(data.graph.num_nodes[kind]) if train is None else train)

    @property
    def reads_edges(self) -> bool:
        """True if the model reads edge features. A custom module over blocks may; one over ``edge_index`` does not get them."""
        return bool(self.model.edge_channels) if isinstance(self.model, HeteroGNN) else self.hparams.get("forward_inputs") != "edge_index"

    def inputs(self, batch: HeteroMiniBatch) -> dict[str, Tensor]:
        """Return the model's input rows (S_t, F_t) by node type: the features of the batch's nodes."""
        return {name: to_input(rows, self.hparams["normalize_features"]) for name, rows in batch.x.items()}

    def exact(self, nodes: Mapping[str, Array]) -> dict[str, Tensor]:
        """Compute outputs of a ``HeteroGNN`` for ``nodes`` of each seed type from full neighbourhoods, see ``hetero_layerwise_inference``."""
        options: dict[str, Any] = {"normalize": self.hparams["normalize_features"], "device": self.device}
        return hetero_layerwise_inference(self.model, self._datamodule.data, nodes, **options, **self._ranks())


def no_sizes(name: str, sizes: str) -> str:
    """Return the error message for a task that is given neither a model nor the sizes to build one."""
    return f"{name} has neither a model nor its sizes: give {sizes}, or build it by {name}.from_data(data_module)"


def make_gnn(arch: str, in_channels: int, hidden_channels: int, num_outputs: int, num_layers: int, **gnn: Any) -> GNN | LightGCN:
    """Build a ``GNN``, or with arch lightgcn a ``LightGCN``."""
    if arch == "lightgcn":
        return LightGCN(in_channels, hidden_channels, num_outputs, num_layers, **dict(gnn))
    return GNN(arch, in_channels, hidden_channels, num_outputs, num_layers, **gnn)
