"""Data modules for link prediction. They hold links out for validation and test, provide negatives, and train on mini-batches of the other links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch
from torch.utils.data import DataLoader

from hoptrain.engine import Dataset, Graph, HeteroDataset, InputError, load_hetero_dataset
from hoptrain.engine.arrays import Array
from hoptrain.engine.dataset import ONLY, BaseDataset
from hoptrain.engine.errors import check_choice, explain_keywords
from hoptrain.engine.hetero_graph import Relation, relation_name
from hoptrain.engine.transforms.link_split import (
    Ends,
    HeldOut,
    LinkSplit,
    Reverses,
    SharedLinks,
    both_ways,
    given_links,
    hold_out_links,
    pairs_without_link,
)
from hoptrain.samplers import LinkSampler, Sampler
from hoptrain.trainers.metrics.top import NAMES
from hoptrain.trainers.models.ranks import Bounds
from hoptrain.trainers.tasks import TASKS
from hoptrain.trainers.tasks.linked import LinkBatch
from hoptrain.trainers.tasks.nodes.data import HeteroSizes, NodeDataModule, check_within_reach
from hoptrain.trainers.tasks.shared_data import SampledDataModule, open_data

if TYPE_CHECKING:
    from hoptrain.samplers import HeteroLinkSampler

Split = Literal["random", "temporal", "predefined"]
EvalNegatives = Literal["uniform", "all", "predefined"]
SHARES = (0.05, 0.1)


class HeldOutLinks(SampledDataModule):
    """A base class of data modules that hold links out of the graph for validation and test.

    In held-out links, the ends of all relations are numbered consecutively. Each relation has a range of numbers: its V_s sources first, then its
    destinations. So source u is begin + u, and destination v is begin + V_s + v (also if both ends have the same type). In a homogeneous graph, the
    numbers are node ids.

    Attributes:
        held_out: links of validation and test, and their negatives.
        known: graph of all links, including held-out ones, in both directions; None if links are not ranked among all nodes.
        passed: graph of the links that are not held out, in both directions; None if links are not ranked among all nodes.
        ends: ranges [begin, end) of the numbers of each relation's sources and destinations.
        relation_names: names of the relations; one empty name if there is only one.
    """

    held_out: dict[str, HeldOut]
    known: Graph | None
    passed: Graph | None
    ends: list[Ends]
    relation_names: Sequence[str] = ("",)

    def relations_of(self, pairs: Array) -> Array:
        """Return the index of the relation of each of ``pairs`` (2, N), as (N,)."""
        places: Array = np.searchsorted([begin for (begin, _), _ in self.ends], pairs[0], side="right") - 1
        return places

    def draw_negatives(self, graph: Graph, links: Mapping[str, Array], seed: int) -> dict[str, Array | None]:
        """Draw as many negatives of each relation as a split has links, for each split. They are no links of ``graph``, and no two splits share one."""
        draws = [pairs_without_link(graph, own) for own in self.ends]
        before, others = [np.zeros((2, 0), np.int64)] * len(draws), dict[str, Array | None]()
        for stream, (name, own) in enumerate(links.items()):
            numbers = np.bincount(self.relations_of(own), minlength=len(draws)).tolist()
            parts = [draw(number, seed, stream, taken) for draw, number, taken in zip(draws, numbers, before, strict=True)]
            before = [np.concatenate(pair, axis=1) for pair in zip(before, parts, strict=True)]
            others[name] = np.concatenate(parts, axis=1)
        return others

    def check_score(self, metric: str, number: int) -> None:
        """Raise InputError if the evaluation cannot compute a metric. ``number`` is the metric's K (best destinations per source), or 0.

        Raises:
            InputError: K is larger than the number of destinations, or evaluation does not rank all destinations.
        """
        is_among_all = all(held.others is None for held in self.held_out.values())
        for _, (begin, end) in self.ends:
            if number and not is_among_all:
                raise InputError(
                    f"metric is {metric} and eval_negatives is not all: this metric ranks all destinations; set eval_negatives to all"
                )
            if number > end - begin:
                raise InputError(
                    f"metric is {metric} and there are {end - begin:,} destinations: K must be at most this number; give a smaller K"
                )

    def val_dataloader(self) -> DataLoader[Any]:
        """Return a loader of this rank's share of the validation links."""
        return self._link_batches("val")

    def test_dataloader(self) -> DataLoader[Any]:
        """Return a loader of this rank's share of the test links."""
        return self._link_batches("test")

    def _link_batches(self, name: str) -> DataLoader[Any]:
        batches = []
        if name in self.held_out and self.held_out[name].links.shape[1]:
            links, others = self.held_out[name]
            if others is None:  # without given negatives, a single rank evaluates all links of a source node
                mine = np.isin(links[0], self.share(np.unique(links[0])))
                batches.append(LinkBatch(torch.from_numpy(links[:, mine]), None))
            else:
                parts = [torch.from_numpy(own[:, self.share(np.arange(own.shape[1]))]) for own in (links, others)]
                batches.append(LinkBatch(*parts))
        return DataLoader(batches, batch_size=None)  # type: ignore[arg-type]


def _check_choices(split: str | None, eval_negatives: str | None, leaked_edges: str | None, negatives: Any) -> None:
    """Raise InputError if an option has an unknown value; ``negatives`` lists the values of ``eval_negatives``."""
    given = (("split", split, Split), ("eval_negatives", eval_negatives, negatives), ("leaked_edges", leaked_edges, SharedLinks))
    for name, value, choices in given:
        if value is not None:
            check_choice(name, value, get_args(choices))


def _hold_out(
    data: BaseDataset, reverses: Reverses, shares: Mapping[str, float], seed: int, split: Split | None, leaked_edges: SharedLinks | None
) -> LinkSplit:
    """Hold links out by the requested split. The default is the data set's own split; without one, links are drawn at random.

    Raises:
        InputError: shares are given with a predefined split, or ``leaked_edges`` with a split that is not predefined.
    """
    own = data.contents()
    taken: Split = split or ("predefined" if any(own.edge_splits.get(relation) for relation in reverses) else "random")
    if taken == "predefined":
        if tuple(shares.values()) != SHARES:
            told = " and ".join(f"{each}_ratio {share}" for each, share in shares.items())
            raise InputError(
                f"split is predefined with {told}: the edge_splits of {data.name} define the held-out links; leave the ratios out"
            )
        return given_links(data, reverses, leaked_edges)
    if leaked_edges is not None:
        raise InputError(
            f"leaked_edges is {leaked_edges} and split {taken}: such a split holds out all copies of a link; leave leaked_edges out"
        )
    return hold_out_links(own.relations, reverses, shares, seed=seed, by_time=taken == "temporal")


@explain_keywords
class LinkDataModule(HeldOutLinks, NodeDataModule):
    """A data module that holds links out of a graph, and trains on mini-batches of the other links from a ``LinkSampler``.

    Messages never pass along held-out links, not even in validation and test. Labels are not needed.

    If the sampler has ``dst_range``, every link is oriented from a node outside this range to a node in it, for instance from users to items. Links of
    validation and test are oriented likewise.

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

    def __init__(
        self,
        dataset: str | Dataset,
        sampler: Sampler,
        val_ratio: float = SHARES[0],
        test_ratio: float = SHARES[1],
        split_seed: int = 0,
        split: Split | None = None,
        eval_negatives: EvalNegatives | None = None,
        leaked_edges: SharedLinks | None = None,
        **options: Any,
    ) -> None:
        """Open the data set and hold out links.

        Args:
            dataset: name of a data set ('hoptrain data list' shows them), a folder written by 'hoptrain data convert', or in Python a ``Dataset``.
                Labels are not needed.
            sampler: a ``LinkSampler`` without edges.
            val_ratio: fraction of the links for validation.
            test_ratio: fraction of the links for the test.
            split_seed: seed of the random choice of held-out links; it does not depend on the training seed.
            split: which links are held out: random, temporal (the latest), or predefined (those in ``Dataset.edge_splits``). By default predefined
                if the data set has edge_splits, else random.
            eval_negatives: negatives in validation and test: uniform (one random pair without a link for each link), all (each link is ranked among
                all pairs with the same source, and with the same destination, except for other links), or predefined (those in ``Dataset.negatives``).
                By default predefined if the data set has negatives, all if the sampler has ``dst_range``, else uniform.
            leaked_edges: how to treat training edges that are copies or reverses of held-out links, with a predefined split: error raises an error (the
                default, except for OGB's data sets), drop removes the edges, keep keeps them (for events that recur).
            options: further options of ``NodeDataModule``; ``batch_size`` counts edges.

        Raises:
            InputError: the sampler is not a ``LinkSampler`` without edges, or options contradict each other; see also
                ``hoptrain.engine.transforms.link_split``.
        """
        _check_choices(split, eval_negatives, leaked_edges, EvalNegatives)
        self._shares, self._split_seed = {"val": val_ratio, "test": test_ratio}, split_seed  # ``prepare`` reads these attributes
        self._split, self._eval_negatives, self._leaked_edges = split, eval_negatives, leaked_edges
        self.known = self.passed = None
        super().__init__(dataset, sampler, **options)

    def prepare(self, data: Dataset) -> Dataset:
        """Return the data set without the held-out links."""
        if not isinstance(self.sampler, LinkSampler) or self.sampler.edges is not None:
            raise InputError(
                f"the sampler is {self.sampler!r}: it must be a LinkSampler without edges, since the data module chooses them; use one"
            )
        made = _hold_out(data, {ONLY: ONLY}, self._shares, self._split_seed, self._split, self._leaked_edges)
        graph, links = data.graph.with_edges(made.is_kept[ONLY]), made.links
        self.bounds: Bounds = self.sampler.bounds(graph)
        self.ends = [((0, graph.num_nodes), self.bounds)]
        if self.sampler.dst_range is not None:
            links = orient_links(graph, links, self.bounds)
        others = self._others(data, graph, links)
        self.held_out = {name: HeldOut(own, others[name]) for name, own in links.items()}
        ends = {name: np.unique(own) for name, own in links.items() if own.shape[1]}
        splits = {"train": np.arange(graph.num_nodes)} | ends
        return Dataset(name=data.name, graph=graph, x=data.x, edge_attr=data.edge_attr, splits=splits, meta=data.meta)

    def _others(self, data: Dataset, graph: Graph, links: dict[str, Array]) -> dict[str, Array | None]:
        is_open = self.sampler.dst_range is None  # type: ignore[attr-defined]
        kind = self._eval_negatives or ("predefined" if data.negatives else "uniform" if is_open else "all")
        if kind == "all":
            self.known, self.passed = (both_ways({ONLY: own}, [ONLY]) for own in (data.graph, graph))
            return dict.fromkeys(links)
        if kind == "uniform" and not is_open:
            raise InputError(
                "eval_negatives is uniform and the sampler has a dst_range: random pairs of any nodes are too easy; set it to all or predefined"
            )
        if kind == "predefined":
            for name, own in links.items():
                found = data.negatives.get(name)
                if found is None or (found.ndim == 3 and found.shape[1] != own.shape[1]):
                    raise InputError(
                        f"eval_negatives is predefined and {data.name} has none for the {own.shape[1]:,} links of {name}: give Dataset negatives of "
                        "the split, or set it to uniform or all"
                    )
            return dict(data.negatives)
        return self.draw_negatives(data.graph, links, self._split_seed)

    @property
    def num_nodes(self) -> int:
        """Number of nodes, V, if they have no features; else 0."""
        return 0 if self.data.num_features else self.data.graph.num_nodes

    @property
    def default_metric(self) -> str:
        """Default metric: for OGB's data sets the one of OGB's leaderboard, else auc."""
        return str(self.data.meta.get("score", TASKS["links"].metric))

    def check_score(self, metric: str, number: int) -> None:
        """Raise InputError if the evaluation cannot compute a metric.

        Raises:
            InputError: the metric needs other negatives, or needs ranks among all nodes although the sampler has ``dst_range``.
        """
        super().check_score(metric, number)
        if not number and self.known is not None and self.bounds != (0, self.data.graph.num_nodes):
            raise InputError(f"metric is {metric} and the sampler has a dst_range: this metric ranks all nodes; give {NAMES}")


def orient_links(graph: Graph, links: Mapping[str, Array], bounds: tuple[int, int]) -> dict[str, Array]:
    """Return links (2, N) by name, reversed where only the source is in ``bounds``, so that all destinations are in ``bounds``.

    Raises:
        InputError: an edge of the graph or a link has both ends in ``bounds``, or a link has no end in it.
    """
    begin, end = bounds
    turned = {}
    pairs = {"the graph": np.stack([graph.indices.astype(np.int64), graph.destinations()]), **links}
    for name, own in pairs.items():
        is_item = (own >= begin) & (own < end)
        wrong = np.flatnonzero(is_item[0] & is_item[1] if name not in links else is_item[0] == is_item[1])
        if len(wrong):
            u, v = own[:, wrong[0]]
            what = "both are" if is_item[0, wrong[0]] else "neither is"
            raise InputError(
                f"nodes {u} and {v} are linked in {name} and dst_range is ({begin}, {end}): {what} among them, but a link must lead from another "
                "node to one of them, as from a user to an item; change dst_range or leave the link out"
            )
        if name in links:
            turned[name] = np.where(is_item[0], own[::-1], own)
    return turned


@explain_keywords
class HeteroLinkDataModule(HeldOutLinks, HeteroSizes):
    """A data module that holds out links of some relations of a heterogeneous graph, and trains on the other links with a ``HeteroLinkSampler``.

    Messages never pass along held-out links, not even in validation and test. Labels are not needed.

    Examples:
        >>> from hoptrain import HeteroLinkDataModule, HeteroLinkSampler, HeteroSampler
        >>> paths = {"sampler": HeteroSampler([5, 5]), "relation": ("paper", "has_topic", "field_of_study")}
        >>> sampler = HeteroLinkSampler(**paths, exclude="reverse", reverse_relation=("field_of_study", "rev_has_topic", "paper"))
        >>> data = HeteroLinkDataModule("synthetic:mag", sampler, scale=0.001, add_reverse=True, batch_size=64, num_workers=0, seed=1)
        >>> batch = next(iter(data.train_dataloader()))
        >>> batch.extra["pairs"].shape, batch.seed_relation
        ((2, 128), ('paper', 'has_topic', 'field_of_study'))
    """

    def __init__(
        self,
        dataset: str | HeteroDataset,
        sampler: Sampler,
        root: str | None = None,
        scale: float = 1.0,
        add_reverse: bool = False,
        seed_type: str | None = None,
        val_ratio: float = SHARES[0],
        test_ratio: float = SHARES[1],
        split_seed: int = 0,
        split: Split | None = None,
        eval_negatives: Literal["uniform", "all"] = "uniform",
        leaked_edges: SharedLinks | None = None,
        **feed: Any,
    ) -> None:
        """Open the data set and hold out links.

        Args:
            dataset: name of a data set ('hoptrain data list' shows them), a folder written by 'hoptrain data convert', or in Python a
                ``HeteroDataset``. Labels are not needed.
            sampler: a ``HeteroLinkSampler`` without edges, with the relations of the links and their reverses.
            root: folder with the data sets' files; by default $HOPTRAIN_DATA.
            scale: size of a synthetic data set relative to the real one.
            add_reverse: add the reverse of each relation NAME as a relation rev_NAME.
            seed_type: needed only for a folder of tables without labels or with labels of several types; give any node type, since links do not use labels.
            val_ratio: fraction of each relation's links for validation.
            test_ratio: fraction of each relation's links for the test.
            split_seed: seed of the random choice of held-out links; it does not depend on the training seed.
            split: which links are held out: random, temporal (the latest), or predefined (those in ``HeteroDataset.edge_splits``). By default
                predefined if one of the relations has edge_splits, else random.
            eval_negatives: negatives in validation and test: uniform (for each link one random pair of the relation's types without a link), or all
                (each link is ranked among all pairs with the same source, and with the same destination, except for other links).
            leaked_edges: how to treat training edges that are copies or reverses of held-out links, with a predefined split: error raises an error (the
                default, except for OGB's data sets), drop removes the edges, keep keeps them (for events that recur).
            feed: further options of ``SampledDataModule``, such as num_workers; ``batch_size`` counts edges.

        Raises:
            InputError: the sampler is not a ``HeteroLinkSampler`` without edges, or options contradict each other; see also ``hold_out_links``,
                ``given_links`` and ``check_within_reach``.
        """
        _check_choices(split, eval_negatives, leaked_edges, Literal["uniform", "all"])
        link_sampler = _with_all_edges(sampler)
        data = open_data(dataset, load_hetero_dataset, root=root, scale=scale, add_reverse=add_reverse, seed_type=seed_type)
        reverses = dict(zip(link_sampler.relations, link_sampler.reverses_in(data.graph), strict=True))
        made = _hold_out(data, reverses, {"val": val_ratio, "test": test_ratio}, split_seed, split, leaked_edges)
        graph, self.ends = data.graph.with_edges(made.is_kept), made.ends
        self.known = both_ways(data.graph.relations, reverses)
        self.passed = both_ways(graph.relations, reverses)
        self.relation_names = list(map(relation_name, link_sampler.relations)) if len(link_sampler.relations) > 1 else [""]
        others = self.draw_negatives(self.known, made.links, split_seed) if eval_negatives != "all" else dict.fromkeys(made.links)
        self.held_out = {name: HeldOut(own, others[name]) for name, own in made.links.items()}
        kind = link_sampler.relations[0][2]
        splits = {"train": np.arange(data.graph.num_nodes[kind])}
        splits |= {name: self._judged(own) for name, own in made.links.items() if own.shape[1]}
        changed: dict[str, Any] = {"edge_splits": {}, "seed_type": kind, "y": None, "num_classes": 0, "path": None, "validate": False}
        left = replace(data, graph=graph, splits=splits, **changed)
        check_within_reach(left, types_of(link_sampler.relations), link_sampler.num_hops)
        super().__init__(left, link_sampler, **feed)

    def _judged(self, links: Array) -> Array:
        """Return the nodes of the first relation's destination type among the destinations of ``links`` (2, N). They form the node split."""
        begin, end = self.ends[0][1]
        return np.unique(links[1][(links[1] >= begin) & (links[1] < end)] - begin)

    @property
    def link_relation(self) -> str | list[str]:
        """Relation ``source:name:destination`` of the links; a list if there are several."""
        names = list(map(relation_name, self.sampler.relations))  # type: ignore[attr-defined]
        return names[0] if len(names) == 1 else names

    def every_item(self) -> Array:
        """Return the numbers (N,) of all nodes of the types at the ends of links, type by type."""
        relations = self.sampler.relations  # type: ignore[attr-defined]
        return np.arange(sum(self.data.graph.num_nodes[kind] for kind in types_of(relations)))


def _with_all_edges(sampler: Sampler) -> HeteroLinkSampler:
    from hoptrain.samplers import HeteroLinkSampler  # not imported for homogeneous graphs

    if not isinstance(sampler, HeteroLinkSampler) or sampler.edges is not None:
        raise InputError(
            f"the sampler is {sampler!r}: it must be a HeteroLinkSampler without edges, since the data module chooses them; use one"
        )
    link_sampler = copy(sampler)
    link_sampler.edges = "all"
    return link_sampler


def types_of(relations: Sequence[Relation]) -> list[str]:
    """Return the node types at the ends of relations, each once, source types before destination types."""
    return list(dict.fromkeys(kind for source, _, destination in relations for kind in (source, destination)))
