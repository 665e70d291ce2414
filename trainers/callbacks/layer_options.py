"""Callbacks that wrap a model's layers during training: activation checkpointing and torch.compile."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, TypeAlias

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from hoptrain.engine import InputError
from hoptrain.trainers.models.layered import LayerwiseModule

Layer: TypeAlias = Callable[..., Any]
"""Type of the method ``layer(i, x, ...)`` of a ``LayerwiseModule``."""
_VARIANTS = 8
"""Maximum number of variants of a layer that torch.compile may compile, for example a variant for a single row and a variant for several rows."""


class LayerOption(Callback):
    """A callback that wraps the layers of the module's ``LayerwiseModule`` models in training. Evaluation, weights and names of weights do not change."""

    _models: Sequence[Any] = ()

    @abstractmethod
    def wrap(self, model: Any, layer: Layer) -> Layer:
        """Return the function that training calls instead of ``layer`` of ``model``."""

    def put_on(self, trainer: Trainer, module: LightningModule) -> None:
        """Wrap the layers of all ``LayerwiseModule`` models of the module.

        Raises:
            InputError: the module has no ``LayerwiseModule``, or the strategy is a pipeline.
        """
        name = type(self).__name__
        self._models = [model for model in module.modules() if isinstance(model, LayerwiseModule) and model.num_layers]
        self._was_called = False
        if not self._models:
            raise InputError(
                f"{name} with {type(module).__name__}: its model must have layer(i, x, ...) and num_layers; add them, or leave {name} out"
            )
        if hasattr(trainer.strategy, "plan"):
            raise InputError(
                f"{name} with a pipeline: they cannot be combined; leave {name} out, and raise the number of chunks to save memory"
            )
        for model in self._models:
            model.layer = partial(self._call, model, model.layer, self.wrap(model, model.layer))

    def _call(self, model: nn.Module, plain: Layer, wrapped: Layer, *inputs: Any, **options: Any) -> Any:
        if not (model.training and torch.is_grad_enabled()):
            return plain(*inputs, **options)
        self._was_called = True
        return wrapped(*inputs, **options)

    def on_train_batch_end(self, trainer: Trainer, module: LightningModule, *_: Any) -> None:
        """Check that the training step has called the wrapped layers.

        Raises:
            InputError: the training step does not call ``layer``.
        """
        if not self._was_called:
            raise InputError(
                f"{type(self).__name__}: training does not call layer(i, x, ...) of {type(self._models[0]).__name__}, for example since VRGCNSampler "
                f"uses the weights itself; leave {type(self).__name__} out"
            )

    def on_fit_end(self, trainer: Trainer, module: LightningModule) -> None:
        """Restore the layers."""
        for model in self._models:
            vars(model).pop("layer", None)

    def on_exception(self, trainer: Trainer, module: LightningModule, exception: BaseException) -> None:
        """Restore the layers."""
        self.on_fit_end(trainer, module)


class ActivationCheckpointing(LayerOption):
    """A callback for activation checkpointing: it keeps only the inputs of each layer, and recomputes the layer in the backward pass (Chen et al. 2016).

    This saves memory, at the cost of a second forward pass. Weights, losses and dropout masks are bit-identical to those of a run without this callback.

    Examples:
        >>> from pytorch_lightning import Trainer
        >>> from hoptrain import ActivationCheckpointing, NodeDataModule, NeighborSampler, NodeClassifier
        >>> data = NodeDataModule("digits-knn", NeighborSampler([5, 5]), batch_size=256, num_workers=0, seed=1)
        >>> model = NodeClassifier(data.num_features, data.num_classes, data.num_hops, hidden_channels=16)
        >>> trainer = Trainer(callbacks=[ActivationCheckpointing()], fast_dev_run=2, enable_progress_bar=False, enable_model_summary=False)
        >>> trainer.fit(model, data)
        >>> "train_loss" in trainer.callback_metrics
        True
    """

    def on_train_start(self, trainer: Trainer, module: LightningModule) -> None:
        """Wrap the layers. If ``CompiledLayers`` is used too, it has wrapped them before, in ``on_fit_start``."""
        self.put_on(trainer, module)

    def wrap(self, model: Any, layer: Layer) -> Layer:
        """Return ``layer`` with activation checkpointing."""
        return partial(checkpoint, layer, use_reentrant=False, context_fn=lambda: (nullcontext(), _means_apart(model)))


@contextmanager
def _means_apart(model: nn.Module) -> Iterator[None]:
    """Let BatchNorm layers update copies of their running statistics inside the context, so that recomputing a layer does not update the originals twice."""
    norms = [each for each in model.modules() if isinstance(each, _BatchNorm)]
    buffers = [(norm, name, buffer) for norm in norms for name, buffer in norm.named_buffers(recurse=False)]
    for norm, name, buffer in buffers:
        setattr(norm, name, buffer.clone())
    try:
        yield
    finally:
        for norm, name, buffer in buffers:
            setattr(norm, name, buffer)


class CompiledLayers(LayerOption):
    """A callback that compiles each layer with ``torch.compile``, for dynamic numbers of nodes and edges. The first steps take seconds for compilation.

    Compiled code sums in another order and draws other dropout masks. So losses are reproducible, but differ from those of uncompiled layers.

    Examples:
        >>> from hoptrain import CompiledLayers
        >>> type(CompiledLayers()).__mro__[1].__name__  # Trainer(callbacks=[CompiledLayers()]), or fit --trainer.callbacks+=CompiledLayers
        'LayerOption'
    """

    def __init__(self, backend: str = "inductor") -> None:
        """Create the callback.

        Args:
            backend: backend of ``torch.compile``, such as ``inductor`` or ``eager``.
        """
        super().__init__()
        self._backend = backend

    def on_fit_start(self, trainer: Trainer, module: LightningModule) -> None:
        """Wrap the layers."""
        self.put_on(trainer, module)

    def wrap(self, model: Any, layer: Layer) -> Layer:
        """Return ``layer`` compiled."""
        from torch._dynamo import config
        from torch._dynamo.exc import FailOnRecompileLimitHit, TorchDynamoException

        compiled = torch.compile(layer, backend=self._backend, dynamic=True, fullgraph=True)

        def call(i: int, *inputs: Any, **options: Any) -> Any:
            try:
                with config.patch(recompile_limit=_VARIANTS * model.num_layers):
                    return compiled(i, *inputs, **options)
            except (TorchDynamoException, FailOnRecompileLimitHit) as error:
                line = next((text.strip() for text in str(error).splitlines() if text.strip()), type(error).__name__)
                raise InputError(
                    f"CompiledLayers: torch.compile cannot compile the layers of {type(model).__name__} ({line}); leave CompiledLayers out"
                ) from error

        return call
