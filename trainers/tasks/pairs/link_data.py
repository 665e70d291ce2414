"""The data of link prediction: links that are held out, the pairs that they are told from, and training batches of the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from hoptrain.engine import Dataset, Graph, InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.derived.link_split import (
    HeldOut,
    LinkSplit,
    SharedLinks,
    given_links,
    hold_out_latest,
    hold_out_links,
    pairs_without_link,
)
from hoptrain.engine.errors import check_choice
from hoptrain.samplers import LinkSampler, Sampler
from hoptrain.trainers.scores.top import NAMES
from hoptrain.trainers.tasks import TASKS
from hoptrain.trainers.tasks.node_data import GraphDataModule
from hoptrain.trainers.tasks.pairs.top import directed

Split = Literal["share", "time", "given"]
EvalNegatives = Literal["uniform", "all", "given"]
SHARES = (0.05, 0.1)


class LinkBatch(NamedTuple):
    """This rank's share of the links to evaluate.

    Attributes:
        links: (2, N) int64 global ids.
        others: (2, M) or (2, N, K) pairs that are none; None for all vertices.
    """

    links: Tensor
    others: Tensor | None


class LinkDataModule(GraphDataModule):
    """Holds links out of a data set's graph, and feeds training with the others through a ``LinkSampler``.

    Messages pass along the links that are left, in validation and test too. Labels are not needed.

    Where the sampler has ``destinations``, links lead from other vertices to these, as from users to items, in validation and test too.

    Attributes:
        held_out: the links of validation and test, and what they are told from.
        known: with ``eval_negatives`` all the graph of all links, also those held out, in both directions; else None.
        passed: likewise the graph of the links that are left.

    Examples:
        >>> from hoptrain import LinkDataModule, LinkSampler, NeighborSampler
        >>> data = LinkDataModule("digits-knn", LinkSampler(NeighborSampler([5, 5])), batch_size=256, num_workers=0, seed=1)
        >>> data.held_out["test"].links.shape
        (2, 992)
        >>> batch = next(iter(data.train_dataloader()))
        >>> batch.extra["pairs"].shape, batch.extra["labels"].mean()
        ((2, 512), np.float32(0.5))
    """

    needs_features = False
    of_vertices = False
    ends: ClassVar[None] = None

    def __init__(
        self,
        dataset: str | Dataset,
        sampler: Sampler,
        val_share: float = SHARES[0],
        test_share: float = SHARES[1],
        split_seed: int = 0,
        split: Split | None = None,
        eval_negatives: EvalNegatives | None = None,
        shared_links: SharedLinks | None = None,
        **options: Any,
    ) -> None:
        """Open the data set and hold out links.

        Args:
            dataset: as ``GraphDataModule``; labels are not needed.
            sampler: a ``LinkSampler`` without edges.
            val_share: part of the links for validation.
            test_share: part of the links for the test.
            split_seed: of the choice of these links: another seed of the training has the same.
            split: which links are held out: a share of them at random, those of the latest time, or those given by ``Dataset.edge_splits``. By
                default given ones where there are some, else share.
            eval_negatives: what links are told from in validation and test: as many uniform pairs that are no links, ``all`` vertices, each with
                either end of the link, but for other links, or those given by ``Dataset.negatives``. By default given ones where there are some, all
                where the sampler has ``destinations``, else uniform.
            shared_links: what becomes of edges to learn from that are copies or reverses of links held out, where the split is given: ``refuse`` is
                the default, but for OGB's sets; ``drop`` leaves them out; ``keep`` is for contacts that recur.
            options: as ``GraphDataModule``; ``batch_size`` counts edges.

        Raises:
            InputError: a sampler that is no ``LinkSampler``, or names its edges; shares or a seed that have no effect; as the functions of
                ``hoptrain.engine.derived.link_split``.
        """
        given = (("split", split, Split), ("eval_negatives", eval_negatives, EvalNegatives), ("shared_links", shared_links, SharedLinks))
        for name, value, choices in given:
            if value is not None:
                check_choice(name, value, get_args(choices))
        self._shares, self._split_seed = {"val": val_share, "test": test_share}, split_seed  # before the data is prepared
        self._split, self._eval_negatives, self._shared_links = split, eval_negatives, shared_links
        self.known: Graph | None = None
        self.passed: Graph | None = None
        super().__init__(dataset, sampler, **options)

    def prepare(self, data: Dataset) -> Dataset:
        """The data set without the links that are held out."""
        if not isinstance(self.sampler, LinkSampler) or self.sampler.edges is not None:
            raise InputError(
                f"the sampler is {self.sampler!r}: links are dealt out by a LinkSampler without edges, since those are held out here; use one"
            )
        graph, links = self._held_out_links(data)
        self.bounds: tuple[int, int] = self.sampler.bounds(graph)
        if self.sampler.destinations is not None:
            links = directed(graph, links, self.bounds)
        others = self._others(data, graph, links)
        self.held_out: dict[str, HeldOut] = {name: HeldOut(own, others[name]) for name, own in links.items()}
        ends = {name: np.unique(own) for name, own in links.items() if own.shape[1]}
        splits = {"train": np.arange(graph.num_nodes)} | ends
        return Dataset(name=data.name, graph=graph, x=data.x, edge_attr=data.edge_attr, splits=splits, meta=data.meta)

    def _held_out_links(self, data: Dataset) -> LinkSplit:
        split = self._split or ("given" if data.edge_splits else "share")
        check_split(split, data.name, self._shares, self._shared_links)
        if split == "given":
            return given_links(data, self._shared_links)
        return hold_out_latest(data.graph, self._shares) if split == "time" else hold_out_links(data.graph, self._shares, self._split_seed)

    def _others(self, data: Dataset, graph: Graph, links: dict[str, Array]) -> dict[str, Array | None]:
        is_open = self.sampler.destinations is None  # type: ignore[attr-defined]
        kind = self._eval_negatives or ("given" if data.negatives else "uniform" if is_open else "all")
        if kind == "all":
            self.known, self.passed = (Graph.from_pairs(own.indices, own.destinations(), own.num_nodes) for own in (data.graph, graph))
            return dict.fromkeys(links)
        if kind == "uniform" and not is_open:
            raise InputError(
                "eval_negatives is uniform and the sampler has destinations: pairs of any vertices are too easy to tell; take all or given"
            )
        if kind == "given":
            for name, own in links.items():
                found = data.negatives.get(name)
                if found is None or (found.ndim == 3 and found.shape[1] != own.shape[1]):
                    raise InputError(
                        f"eval_negatives is given and {data.name} has none for the {own.shape[1]:,} links of {name}: give Dataset negatives of "
                        "the split, or take uniform or all"
                    )
            return dict(data.negatives)
        draw, others = pairs_without_link(data.graph), np.zeros((2, 0), np.int64)
        for place, own in enumerate(links.values()):  # no pair is a negative of two splits
            others = np.concatenate([others, draw(own.shape[1], self._split_seed, place, others)], axis=1)
        return dict(zip(links, np.split(others, np.cumsum([own.shape[1] for own in links.values()])[:-1], axis=1), strict=True))

    @property
    def num_ends(self) -> int:
        """Vertices that may be an end of a link."""
        return self.data.graph.num_nodes

    @property
    def num_vertices(self) -> int:
        """V where they have no features, else 0."""
        return 0 if self.data.num_features else self.data.graph.num_nodes

    @property
    def default_score(self) -> str:
        """That of OGB for its sets, else ROC AUC."""
        return str(self.data.meta.get("score", TASKS["links"].score))

    def check_score(self, score: str, number: int) -> None:
        """Whether evaluation gives a score; of those of each source's best ``number`` destinations it is that, else 0.

        Raises:
            InputError: the best are not found among all destinations, or these are fewer; ranks are asked for, which are among all vertices.
        """
        check_top(score, number, self.known is not None, self.bounds)
        if not number and self.known is not None and self.bounds != (0, self.data.graph.num_nodes):
            raise InputError(f"score is {score} and the sampler has destinations: ranks are among all vertices; give {NAMES}")

    def val_dataloader(self) -> DataLoader[Any]:
        """This rank's share of the validation links."""
        return link_batches(self, "val")

    def test_dataloader(self) -> DataLoader[Any]:
        """This rank's share of the test links."""
        return link_batches(self, "test")


def check_split(split: Split, name: str, shares: Mapping[str, float], shared_links: SharedLinks | None) -> None:
    """Refuse options of a given split with another one, and the other way round.

    Raises:
        InputError: shares with a split of the data set ``name`` that is given, or ``shared_links`` with another one.
    """
    if split == "given" and tuple(shares.values()) != SHARES:
        told = " and ".join(f"{each}_share {share}" for each, share in shares.items())
        raise InputError(f"split is given with {told}: the links held out are those of {name}'s edge_splits; leave them out")
    if split != "given" and shared_links is not None:
        raise InputError(
            f"shared_links is {shared_links} and split {split}: links that are held out here have no copies among the others; leave it out"
        )


def check_top(score: str, number: int, is_among_all: bool, bounds: tuple[int, int]) -> None:
    """Whether a score of each source's best ``number`` destinations, if it is one, can be had.

    Raises:
        InputError: links are not told from all of them, or there are fewer.
    """
    begin, end = bounds
    if number and not is_among_all:
        raise InputError(f"score is {score} and eval_negatives is not all: the best are those of all destinations; set it to all")
    if number > end - begin:
        raise InputError(f"score is {score} and there are {end - begin:,} destinations: K is at most their number; correct it")


def link_batches(module: Any, name: str) -> DataLoader[Any]:
    """A rank's share of the links that a data module holds out under a name: no batch, or one."""
    batches = []
    if name in module.held_out and module.held_out[name].links.shape[1]:
        links, others = module.held_out[name]
        if others is None:  # all links of a source are one rank's
            mine = np.isin(links[0], module.share(np.unique(links[0])))
            batches.append(LinkBatch(torch.from_numpy(links[:, mine]), None))
        else:
            parts = [torch.from_numpy(own[:, module.share(np.arange(own.shape[1]))]) for own in (links, others)]
            batches.append(LinkBatch(*parts))
    return DataLoader(batches, batch_size=None)  # type: ignore[arg-type]
