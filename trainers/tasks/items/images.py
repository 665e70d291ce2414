"""Image classification with a Vision GNN (ViG), which builds graphs of patches or pixels inside the model."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hoptrain.engine import Address, InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.datasets.images.load import ImageSet, load_images
from hoptrain.kernels.cpu.shuffle import random_words
from hoptrain.kernels.shared.philox import HOP_IMAGES
from hoptrain.trainers.metrics.own import AnyLoss, AnyMetric
from hoptrain.trainers.models.vig.gnn import ViG
from hoptrain.trainers.tasks.items.classifier import ItemClassifier
from hoptrain.trainers.tasks.items.feed import ItemDataModule
from hoptrain.trainers.tasks.options import check_training
from hoptrain.trainers.tasks.scored import LRSchedulerCallable, OptimizerCallable
from hoptrain.trainers.tasks.shared_data import open_data


class ImageDataModule(ItemDataModule):
    """A data module that loads images; the model gets them as (B, H, W, C) float32 in [-1, 1].

    Examples:
        >>> from hoptrain import ImageDataModule
        >>> data = ImageDataModule("digits", batch_size=100, seed=1)
        >>> batch = next(iter(data.train_dataloader()))
        >>> batch.x.shape, batch.y.shape
        (torch.Size([100, 8, 8, 1]), torch.Size([100]))
    """

    data: ImageSet

    def __init__(
        self,
        images: str | ImageSet,
        root: str | None = None,
        batch_size: int = 128,
        seed: int | None = None,
        shift: int = 0,
        mirror: bool = False,
    ) -> None:
        """Open the images. The first time, convert them.

        Args:
            images: digits, cifar10, the name of a .npz file (see ``load_images``), or in Python an ``ImageSet``.
            root: folder with the files; by default $HOPTRAIN_DATA.
            batch_size: number of images per rank and step.
            seed: seed of the order and of the random changes to training images; by default that of seed_everything.
            shift: shift each training image at random by up to this number of pixels in each direction; pixels that move in get the middle value of
                the range.
            mirror: mirror each training image horizontally with probability 1/2.
        """
        if shift < 0:
            raise InputError(f"shift is {shift}: the number of pixels must be at least 0; give 0 or more")
        super().__init__(open_data(images, load_images, root=root), batch_size, seed)
        self.shift = shift
        self.mirror = mirror

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Height, width and channels (H, W, C) of an image."""
        return self.data.shape

    def collate(self, items: Array, address: Address | None) -> tuple[Tensor, Tensor]:
        """Return images and their classes. With ``address`` (in training), shift and mirror images at random."""
        x = torch.from_numpy(np.take(self.data.x, items, axis=0)).float() / self.data.white * 2 - 1
        if address is not None and (self.shift or self.mirror):
            x = self._change(x, random_words(len(x), *address, HOP_IMAGES))
        return x, torch.from_numpy(np.take(self.data.y, items))

    def _change(self, x: Tensor, words: Array) -> Tensor:
        """Mirror and shift images by the bits of each image's random word: one bit mirrors it, and 31 bits shift it in each direction."""
        count, height, width, _ = x.shape
        if self.mirror:
            x = torch.where(torch.from_numpy(words >> np.uint64(63) == 1)[:, None, None, None], x.flip(2), x)
        padded = F.pad(x, (0, 0, self.shift, self.shift, self.shift, self.shift))
        bits = np.stack([words, words >> np.uint64(31)]) & np.uint64((1 << 31) - 1)
        top, left = torch.from_numpy((bits * np.uint64(2 * self.shift + 1) >> np.uint64(31)).astype(np.int64))
        rows, columns = top[:, None] + torch.arange(height), left[:, None] + torch.arange(width)
        return padded[torch.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]]


class ImageClassifier(ItemClassifier):
    """A LightningModule that classifies images with a ViG.

    Examples:
        >>> from hoptrain import ImageClassifier, ImageDataModule
        >>> data = ImageDataModule("digits", batch_size=100, seed=1)
        >>> model = ImageClassifier(data.image_shape, data.num_classes, patch=2, num_blocks=2)
        >>> model(next(iter(data.train_dataloader()))).shape
        torch.Size([100, 10])
    """

    data_class = ImageDataModule
    example = "image"

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        num_classes: int,
        *,
        lr: float = 0.001,
        weight_decay: float = 0.05,
        metric: AnyMetric = "acc",
        class_weight: Literal["balanced"] | None = None,
        loss: AnyLoss | None = None,
        optimizer: OptimizerCallable | None = None,
        lr_scheduler: LRSchedulerCallable | None = None,
        **options: Any,
    ) -> None:
        """Build the model. On the command line, the first two arguments come from the data.

        Args:
            image_shape: height, width and channels of an image.
            num_classes: number of classes.
            lr: AdamW's learning rate.
            weight_decay: AdamW's weight decay.
            metric: metric to log: acc, macro_f1 or auc; or a metric or MetricCollection of torchmetrics.
            class_weight: balanced weights the loss of each class inversely to its frequency in the training split. By default all classes count equally.
            loss: your own loss instead of the task's: a loss of torch.nn, or a function of outputs and targets.
            optimizer: your own optimiser: a function of the parameters, such as a class of torch.optim. Then lr and weight_decay are not used.
            lr_scheduler: learning rate schedule, stepped after each epoch: a function of the optimiser, such as a class of torch.optim.lr_scheduler.
            options: further options of ``ViG``.
        """
        check_training(lr=lr, weight_decay=weight_decay)
        own: dict[str, Any] = {"loss": loss, "optimizer": optimizer, "lr_scheduler": lr_scheduler}
        super().__init__(ViG(image_shape, num_classes, **options), num_classes, metric=metric, class_weight=class_weight, **own)
        self.save_hyperparameters()
        self.note_defaults(ViG)
