"""SIGN (Frasca et al. 2020): an MLP classifies nodes from features of 0 to K hops, which are computed before training.

A batch is any set of nodes and needs no neighbours, so a pipeline can divide it into chunks without losing edges.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hoptrain.engine import Address, Dataset, InputError, load_dataset
from hoptrain.engine.arrays import Array
from hoptrain.engine.transforms.hop_features import open_hop_features
from hoptrain.trainers.models.features import Standardize
from hoptrain.trainers.models.layers import Dropout
from hoptrain.trainers.tasks.items.classifier import ItemClassifier
from hoptrain.trainers.tasks.items.feed import ItemDataModule
from hoptrain.trainers.tasks.options import check_training
from hoptrain.trainers.tasks.shared_data import open_data


class SIGNDataModule(ItemDataModule):
    """A data module that loads a data set and its precomputed hop features. Both are memory-mapped and shared by all ranks.

    Examples:
        >>> from hoptrain import SIGNDataModule
        >>> data = SIGNDataModule("digits-knn", num_hops=2, batch_size=256, seed=1)
        >>> batch = next(iter(data.train_dataloader()))
        >>> batch.x.shape, batch.y.shape  # a node's own features, and those of its two hops
        (torch.Size([256, 3, 64]), torch.Size([256]))
    """

    data: Dataset

    def __init__(
        self,
        dataset: str | Dataset,
        num_hops: int = 3,
        root: str | None = None,
        scale: float = 1.0,
        normalize_features: bool = False,
        batch_size: int = 1024,
        seed: int | None = None,
    ) -> None:
        """Open the data set. The first time, compute its hop features.

        Args:
            dataset: name of a data set ('hoptrain data list' shows them), a folder written by 'hoptrain data convert', or in Python a ``Dataset``.
            num_hops: number of hops of the precomputed features, K.
            root: folder with the data sets' files; by default $HOPTRAIN_DATA.
            scale: size of a synthetic data set relative to the real one.
            normalize_features: divide each node's features by their sum, before the hops are computed.
            batch_size: number of nodes per rank and step.
            seed: seed of the order of examples; by default that of seed_everything.
        """
        data = open_data(dataset, load_dataset, root=root, scale=scale)
        if data.y is None or data.is_multilabel or data.is_regression:
            found = "no labels" if data.y is None else "several labels a node" if data.is_multilabel else "targets of a regression"
            raise InputError(f"{data.name} has {found}: task sign needs one class per node; choose another task")
        super().__init__(data, batch_size, seed)
        self._y = data.y
        self._hops = open_hop_features(data, num_hops, normalize=normalize_features)

    @property
    def hops(self) -> list[Array]:
        """Features (V, F) of each hop, memory-mapped."""
        return self._hops

    @property
    def num_features(self) -> int:
        """Number of features of a node, F."""
        return self.data.num_features

    @property
    def num_hops(self) -> int:
        """Number of hops, K."""
        return len(self._hops) - 1

    def every_item(self) -> Array:
        """Return the ids of all nodes."""
        return np.arange(self.data.graph.num_nodes)

    def collate(self, items: Array, address: Address | None) -> tuple[Tensor, Tensor]:
        """Return features (B, K + 1, F) of all hops, and the labels (B,)."""
        rows = np.empty((len(items), len(self._hops), self.num_features), np.float32)
        for number, hop in enumerate(self._hops):
            rows[:, number] = np.take(hop, items, axis=0)
        return torch.from_numpy(rows), torch.from_numpy(np.take(self._y, items))


class SIGN(nn.Module):
    """A module with a linear map for each hop; an MLP of ``num_layers`` layers maps their concatenated outputs to logits. A pipeline can split it."""

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        num_hops: int,
        hidden_channels: int,
        num_layers: int,
        dropout: float,
        standardize_features: bool = False,
    ) -> None:
        super().__init__()
        self.widths = [in_channels, (num_hops + 1) * hidden_channels, *[hidden_channels] * (num_layers - 1), num_classes]
        inner = (nn.Sequential(nn.Linear(self.widths[i], self.widths[i + 1]), nn.PReLU(), Dropout(dropout)) for i in range(1, num_layers))
        first = HopMaps(in_channels, hidden_channels, num_hops, dropout, standardize_features)
        self.layers = nn.ModuleList([first, *inner, nn.Linear(self.widths[-2], num_classes)])

    def forward(self, hops: Tensor) -> Tensor:
        """Compute logits (B, num_classes) from features (B, K + 1, F) of all hops."""
        x = hops
        for i in range(self.num_layers):
            x = self.layer(i, x)
        return x

    @property
    def num_layers(self) -> int:
        """Number of layers that a pipeline can divide: the maps of all hops count as one, followed by the layers of the MLP."""
        return len(self.layers)

    def layer(self, i: int, x: Tensor) -> Tensor:
        """Apply layer ``i`` to the output of the previous layer; layer 0 maps the features of all hops."""
        out: Tensor = self.layers[i](x)
        return out

    def shape(self, i: int) -> tuple[int]:
        """Return the shape of an input row of layer ``i``, in [1, L - 1]."""
        return (self.widths[i],)

    def modules_of(self, i: int) -> tuple[str]:
        """Return the name of the submodule of layer ``i``."""
        return (f"layers.{i}",)


class HopMaps(nn.Module):
    """A module that maps each hop linearly: (B, K + 1, F) to (B, (K + 1) * hidden_channels). It may standardise each hop's features before."""

    def __init__(self, in_channels: int, hidden_channels: int, num_hops: int, dropout: float, standardize_features: bool = False) -> None:
        super().__init__()
        self.standardize = nn.ModuleList(Standardize(in_channels) for _ in range(num_hops + 1) if standardize_features)
        self.maps = nn.ModuleList(nn.Linear(in_channels, hidden_channels) for _ in range(num_hops + 1))
        self.activation = nn.PReLU()
        self.dropout = Dropout(dropout)

    def forward(self, hops: Tensor) -> Tensor:
        """Map features (B, K + 1, F) to (B, (K + 1) * hidden_channels)."""
        if len(self.standardize):
            hops = torch.stack([standardize(hop) for standardize, hop in zip(self.standardize, hops.unbind(1), strict=True)], dim=1)
        mapped = [layer(hop) for layer, hop in zip(self.maps, self.dropout(hops).unbind(1), strict=True)]
        out: Tensor = self.dropout(self.activation(torch.cat(mapped, dim=1)))
        return out


class SIGNClassifier(ItemClassifier):
    """A LightningModule that classifies nodes with SIGN.

    Examples:
        >>> from pytorch_lightning import Trainer
        >>> from hoptrain import SIGNDataModule, SIGNClassifier
        >>> data = SIGNDataModule("digits-knn", num_hops=2, batch_size=256, seed=1)
        >>> model = SIGNClassifier(data.num_features, data.num_classes, data.num_hops)
        >>> trainer = Trainer(fast_dev_run=2, enable_progress_bar=False, enable_model_summary=False)
        >>> trainer.fit(model, data)
        >>> sorted(trainer.callback_metrics)
        ['train_acc', 'train_loss', 'train_loss_step', 'val_acc', 'val_loss']
    """

    data_class = SIGNDataModule
    example = "node"

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        num_hops: int,
        hidden_channels: int = 256,
        num_layers: int = 2,
        dropout: float = 0.5,
        lr: float = 0.001,
        weight_decay: float = 0.0,
        standardize_features: bool = False,
        **options: Any,
    ) -> None:
        """Build the model. On the command line, the first three arguments come from the data.

        Args:
            in_channels: number of features of a node.
            num_classes: number of classes.
            num_hops: number of hops of the precomputed features, K.
            hidden_channels: width of each hop's map and of the MLP's hidden layers.
            num_layers: number of layers of the MLP that follows the hops' maps, including the output layer.
            dropout: dropout probability of the features and of hidden values.
            lr: AdamW's learning rate.
            weight_decay: AdamW's weight decay.
            standardize_features: subtract from each feature of each hop its mean over the training nodes, and divide by its standard deviation over them.
            options: further options of ``ItemClassifier``: metric, class_weight, loss, optimizer and lr_scheduler.
        """
        check_training(dropout=dropout, lr=lr, weight_decay=weight_decay)
        if num_layers < 1 or hidden_channels < 1:
            raise InputError(f"num_layers is {num_layers} and hidden_channels {hidden_channels}: both must be at least 1; give 1 or more")
        model = SIGN(in_channels, num_classes, num_hops, hidden_channels, num_layers, dropout, standardize_features)
        super().__init__(model, num_classes, False, **options)
        self.save_hyperparameters()

    def setup(self, stage: str) -> None:
        """Check the labels, and compute mean and standard deviation of the features if the model standardises them."""
        super().setup(stage)
        module: SIGNDataModule = self._datamodule
        for first in self.model.modules() if stage == "fit" else ():  # a stage of a pipeline may lack the first layer
            if isinstance(first, HopMaps):
                for standardize, hop in zip(first.standardize, module.hops, strict=False):
                    standardize.fit(hop, module.data.split("train"))  # type: ignore[operator]
