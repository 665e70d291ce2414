"""The data of knowledge graph completion: batches of the training's triples, and queries to evaluate."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from hoptrain.engine import Dataset, InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.datasets.triples import Named, Triples, load_triples
from hoptrain.engine.errors import check_choice
from hoptrain.samplers import Sampler
from hoptrain.samplers.seeds.triples import TripleSampler
from hoptrain.trainers.models.ranks import KnownTails
from hoptrain.trainers.tasks.node_data import SampledDataModule
from hoptrain.trainers.tasks.shared_data import opened

Unseen = Literal["refuse", "keep"]


class QueryBatch(NamedTuple):
    """This rank's share of what is asked in an evaluation.

    Attributes:
        queries: (N, 3) int64: a head, a relation or an inverse one, and the tail that is looked for.
    """

    queries: Tensor


class TripleDataModule(SampledDataModule):
    """Feeds training with triples through a ``TripleSampler``; messages pass along the training's triples and their inverses, in evaluation too.

    Attributes:
        triples: the data.
        edge_relations: (2 T,) the relation of each edge of the graph, by its place.
        known: the tails of all triples and their inverses, those of validation and test too.

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
        unseen: Unseen = "refuse",
        **feed: Any,
    ) -> None:
        """Open the triples.

        Args:
            triples: name of a .npz file or of a folder with train.txt, valid.txt and test.txt, or in Python ``Triples``.
            sampler: a NeighborSampler, whose hops are R-GCN's layers; left out for a model without messages.
            root: folder of the file; by default $HOPTRAIN_DATA.
            num_negatives: entities, drawn for each batch, that its triples are told from; by default all.
            unseen: whether triples of validation and test may have entities or relations that nothing is learnt of (keep), or not (refuse).
            feed: as ``SampledDataModule``; ``batch_size`` counts triples.

        Raises:
            InputError: as ``load_triples`` and ``TripleSampler``; entities or relations that training has not seen.
        """
        check_choice("unseen", unseen, get_args(Unseen))
        data = opened(triples, load_triples, root=root)
        self.triples: Triples = data
        for what in get_args(Named):
            if unseen == "refuse" and len(found := data.unseen(what)):
                raise InputError(
                    f"{data.name}: {len(found):,} {what}, {found[0]} for one, are in no triple that is trained on, and in some of validation or "
                    "test: nothing is learnt of them; leave these triples out, or set unseen: keep to have them judged all the same"
                )
        graph, sampler_of_triples = data.graph(), TripleSampler(data, sampler, num_negatives)  # type: ignore[arg-type]
        ends = {split: np.unique(rows[:, [0, 2]]) for split, rows in data.splits.items()}
        dataset = Dataset(name=data.name, graph=graph, splits=ends | {"train": np.arange(data.num_nodes)})
        super().__init__(dataset, sampler_of_triples, **feed)
        self.edge_relations: Array = data.relations_of_edges(graph)
        self.known: KnownTails = KnownTails.of(np.concatenate([data.queries(split) for split in data.splits]), 2 * data.num_relations)

    @property
    def num_nodes(self) -> int:
        """V."""
        return self.triples.num_nodes

    @property
    def num_relations(self) -> int:
        """R, without the inverse ones."""
        return self.triples.num_relations

    def val_dataloader(self) -> DataLoader[Any]:
        """This rank's share of the validation triples, in both directions; nothing if there are none."""
        return self._queries("val")

    def test_dataloader(self) -> DataLoader[Any]:
        """This rank's share of the test triples, in both directions."""
        if "test" not in self.triples.splits:
            raise InputError(f"{self.triples.name} has no test triples: its splits are {', '.join(self.triples.splits)}; add some")
        return self._queries("test")

    def _queries(self, split: str) -> DataLoader[Any]:
        batches = []
        if len(self.triples.splits.get(split, ())):
            mine = self.share(self.triples.queries(split))
            batches.append(QueryBatch(torch.from_numpy(np.ascontiguousarray(mine))))
        return DataLoader(batches, batch_size=None)  # type: ignore[arg-type]
