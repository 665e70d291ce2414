"""SIGN (Frasca et al. 2020): nodes classified by a perceptron on features of 0 to K hops, which were computed before the training.

A batch is any set of nodes and needs no neighbours: it can be cut at will, in a pipeline too, without losing an edge.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from hoptrain.engine import Address, Dataset, InputError, load_dataset
from hoptrain.engine.arrays import Array
from hoptrain.engine.transforms.hop_features import open_hop_features
from hoptrain.trainers.models.layers import Dropout
from hoptrain.trainers.tasks.items.classifier import ItemClassifier
from hoptrain.trainers.tasks.items.feed import ItemDataModule
from hoptrain.trainers.tasks.options import check_training
from hoptrain.trainers.tasks.shared_data import opened


class SIGNDataModule(ItemDataModule):
    """Loads a data set and the features of its hops, and gathers rows of them; both are memory-mapped and shared by all ranks.

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
        """Open the data set, and compute the features of its hops the first time.

        Args:
            dataset: name ('hoptrain data list' shows them), a folder written by 'hoptrain data convert', or in Python a ``Dataset``.
            num_hops: K, how far the features reach.
            root: folder with the data's files; by default $HOPTRAIN_DATA.
            scale: size of a synthetic data set as a share of the real one.
            normalize_features: divide each node's features by their sum, before the hops.
            batch_size: nodes per rank and step.
            seed: seed of the order; by default that of seed_everything.
        """
        data = opened(dataset, load_dataset, root=root, scale=scale)
        if data.y is None or data.is_multilabel or data.is_regression:
            found = "no labels" if data.y is None else "several labels a node" if data.is_multilabel else "targets of a regression"
            raise InputError(f"{data.name} has {found}: this task takes one class each")
        super().__init__(data, batch_size, seed)
        self._y = data.y
        self._hops = open_hop_features(data, num_hops, normalize=normalize_features)

    @property
    def num_features(self) -> int:
        """F."""
        return self.data.num_features

    @property
    def num_hops(self) -> int:
        """K."""
        return len(self._hops) - 1

    def every_item(self) -> Array:
        """All nodes."""
        return np.arange(self.data.graph.num_nodes)

    def collate(self, items: Array, address: Address | None) -> tuple[Tensor, Tensor]:
        """Features (B, K + 1, F) of all hops, and the labels."""
        rows = np.empty((len(items), len(self._hops), self.num_features), np.float32)
        for number, hop in enumerate(self._hops):
            rows[:, number] = np.take(hop, items, axis=0)
        return torch.from_numpy(rows), torch.from_numpy(np.take(self._y, items))


class SIGN(nn.Module):
    """A linear map for each hop, their outputs side by side, then a perceptron of ``num_layers``. All these are its layers for a pipeline."""

    def __init__(self, in_channels: int, num_classes: int, num_hops: int, hidden_channels: int, num_layers: int, dropout: float) -> None:
        super().__init__()
        self.widths = [in_channels, (num_hops + 1) * hidden_channels, *[hidden_channels] * (num_layers - 1), num_classes]
        inner = (nn.Sequential(nn.Linear(self.widths[i], self.widths[i + 1]), nn.PReLU(), Dropout(dropout)) for i in range(1, num_layers))
        self.layers = nn.ModuleList(
            [HopMaps(in_channels, hidden_channels, num_hops, dropout), *inner, nn.Linear(self.widths[-2], num_classes)]
        )

    def forward(self, hops: Tensor) -> Tensor:
        """(B, K + 1, F) features of all hops to (B, num_classes) logits."""
        x = hops
        for i in range(self.num_layers):
            x = self.layer(i, x)
        return x

    @property
    def num_layers(self) -> int:
        """The maps of the hops, and the layers behind them."""
        return len(self.layers)

    def layer(self, i: int, x: Tensor) -> Tensor:
        """Layer ``i`` alone."""
        out: Tensor = self.layers[i](x)
        return out

    def shape(self, i: int) -> tuple[int]:
        """The width of what enters layer ``i``, i in 1 to L - 1."""
        return (self.widths[i],)

    def modules_of(self, i: int) -> tuple[str]:
        """The name of the submodule that layer ``i`` is."""
        return (f"layers.{i}",)


class HopMaps(nn.Module):
    """(B, K + 1, F) to (B, (K + 1) * hidden_channels): each hop by a map of its own."""

    def __init__(self, in_channels: int, hidden_channels: int, num_hops: int, dropout: float) -> None:
        super().__init__()
        self.maps = nn.ModuleList(nn.Linear(in_channels, hidden_channels) for _ in range(num_hops + 1))
        self.activation = nn.PReLU()
        self.dropout = Dropout(dropout)

    def forward(self, hops: Tensor) -> Tensor:
        """Apply."""
        mapped = [layer(hop) for layer, hop in zip(self.maps, self.dropout(hops).unbind(1), strict=True)]
        out: Tensor = self.dropout(self.activation(torch.cat(mapped, dim=1)))
        return out


class SIGNClassifier(ItemClassifier):
    """A SIGN that classifies nodes.

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
    ) -> None:
        """Build the model. The first three arguments come from the data when the command line is used.

        Args:
            in_channels: features of a node.
            num_classes: number of classes.
            num_hops: K, hops of the features.
            hidden_channels: width of each hop's map and of the layers behind.
            num_layers: layers behind the hops' maps, the classifying one included.
            dropout: share of features and of hidden values dropped.
            lr: AdamW's learning rate.
            weight_decay: AdamW's decay.
        """
        check_training(dropout=dropout, lr=lr, weight_decay=weight_decay)
        if num_layers < 1 or hidden_channels < 1:
            raise InputError(f"num_layers is {num_layers} and hidden_channels {hidden_channels}: one layer has to classify; give 1 or more")
        super().__init__(SIGN(in_channels, num_classes, num_hops, hidden_channels, num_layers, dropout), num_classes)
        self.save_hyperparameters()
