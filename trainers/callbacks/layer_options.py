"""What may stand around a model's layers while it is trained: activations computed again in place of kept ones, and torch.compile."""

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
"""``layer(i, x, ...)`` of a ``LayerwiseModule`` model."""
_VARIANTS = 8
"""Programs that torch may make of a layer, as for one row and for several, before it gives up."""


class LayerOption(Callback):
    """Calls the layers of the module's ``LayerwiseModule`` models in another way in training; evaluation, weights and their names stay as they are."""

    _models: Sequence[Any] = ()

    @abstractmethod
    def wrap(self, model: Any, layer: Layer) -> Layer:
        """What is called in training in place of ``layer``, that of ``model``."""

    def put_on(self, trainer: Trainer, module: LightningModule) -> None:
        """Take the place of the layers.

        Raises:
            InputError: no model says its layers, or stages of a pipeline call them.
        """
        name = type(self).__name__
        self._models = [model for model in module.modules() if isinstance(model, LayerwiseModule) and model.num_layers]
        self._was_called = False
        if not self._models:
            raise InputError(f"{name} with {type(module).__name__}: it goes layer by layer, and this model says no layers; leave it out")
        if hasattr(trainer.strategy, "plan"):
            raise InputError(f"{name} with a pipeline: its stages keep what a chunk's layers need; leave it out, or cut more chunks")
        for model in self._models:
            model.layer = partial(self._call, model, model.layer, self.wrap(model, model.layer))

    def _call(self, model: nn.Module, plain: Layer, wrapped: Layer, *inputs: Any, **options: Any) -> Any:
        if not (model.training and torch.is_grad_enabled()):
            return plain(*inputs, **options)
        self._was_called = True
        return wrapped(*inputs, **options)

    def on_train_batch_end(self, trainer: Trainer, module: LightningModule, *_: Any) -> None:
        """See whether training calls the layers.

        Raises:
            InputError: it does not.
        """
        if not self._was_called:
            raise InputError(
                f"{type(self).__name__}: the training does not call layer(i, x, ...) of {type(self._models[0]).__name__}, as with VRGCNSampler, "
                "which uses the weights in its own way; leave it out"
            )

    def on_fit_end(self, trainer: Trainer, module: LightningModule) -> None:
        """Leave the layers as they were."""
        for model in self._models:
            vars(model).pop("layer", None)

    def on_exception(self, trainer: Trainer, module: LightningModule, exception: BaseException) -> None:
        """Leave the layers as they were."""
        self.on_fit_end(trainer, module)


class ActivationCheckpointing(LayerOption):
    """Keeps of each layer what enters it, and computes the layer again for its gradient: less memory, a second forward pass (Chen et al. 2016).

    Weights, losses and dropout are the same bit for bit as without it.

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
        """Begin, around layers that were compiled before."""
        self.put_on(trainer, module)

    def wrap(self, model: Any, layer: Layer) -> Layer:
        """See ``LayerOption``."""
        return partial(checkpoint, layer, use_reentrant=False, context_fn=lambda: (nullcontext(), _means_apart(model)))


@contextmanager
def _means_apart(model: nn.Module) -> Iterator[None]:
    """A batch counts once in the running means of BatchNorm, also where a layer is computed twice: the second time copies take it."""
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
    """Trains by ``torch.compile`` of each layer, for all numbers of nodes and edges: the first steps take seconds, for compiling.

    Sums and dropout are those of torch's compiler: losses repeat, but differ from those of a training without it.

    Examples:
        >>> from hoptrain import CompiledLayers
        >>> type(CompiledLayers()).__mro__[1].__name__  # Trainer(callbacks=[CompiledLayers()]), or behind fit: --trainer.callbacks+=CompiledLayers
        'LayerOption'
    """

    def __init__(self, backend: str = "inductor") -> None:
        """State the compiler.

        Args:
            backend: as of ``torch.compile``.
        """
        super().__init__()
        self._backend = backend

    def on_fit_start(self, trainer: Trainer, module: LightningModule) -> None:
        """Begin."""
        self.put_on(trainer, module)

    def wrap(self, model: Any, layer: Layer) -> Layer:
        """See ``LayerOption``."""
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
                    f"CompiledLayers: torch.compile takes no layer of this {type(model).__name__} ({line}); leave it out"
                ) from error

        return call
