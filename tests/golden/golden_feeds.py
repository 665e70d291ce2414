"""Golden cases of training loaders: by name, a function of the data folder that makes the loader of a task."""

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np
from golden_batches import contents
from golden_graphs import TRAIN, hetero_graph, rows, small, spread

from hoptrain import samplers as s
from hoptrain.engine import Dataset, HeteroDataset, to_bfloat16
from hoptrain.engine.datasets.events import Events
from hoptrain.engine.datasets.triples import Triples
from hoptrain.trainers import NodeDataModule
from hoptrain.trainers.pipeline import ChunkLoader
from hoptrain.trainers.tasks.edges import EdgeDataModule
from hoptrain.trainers.tasks.full_batch.task import FullBatchDataModule
from hoptrain.trainers.tasks.items.feed import ItemBatch
from hoptrain.trainers.tasks.items.graphs import GraphDataModule
from hoptrain.trainers.tasks.items.images import ImageDataModule
from hoptrain.trainers.tasks.items.sign import SIGNDataModule
from hoptrain.trainers.tasks.kg import TripleDataModule
from hoptrain.trainers.tasks.links.data import HeteroLinkDataModule, LinkDataModule
from hoptrain.trainers.tasks.nodes.data import HeteroDataModule
from hoptrain.trainers.tasks.sse import SteadyDataModule
from hoptrain.trainers.tasks.temporal_links import EventDataModule

EPOCHS = (0, 3)
SEED = 2**64 - 3


@contextmanager
def data_folder():
    """Yield a temporary folder with the data of all loaders, in which converted data are stored."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        node_data().save(folder / "nodes")
        np.savez(folder / "rings.npz", **rings())
        np.savez(folder / "pictures.npz", **pictures())
        yield folder


def node_data(**others):
    """Return the small graph with features and classes."""
    splits = {"train": TRAIN, "val": TRAIN + 1, "test": TRAIN[:-1] + 2}
    given = {"x": rows(40, 5, 50), "y": spread(40, 51) % 3, "splits": {name: own[own < 40] for name, own in splits.items()}}
    return Dataset(name="golden", graph=small(), num_classes=3, **given | others)


def rings():
    """Return twenty small graphs: rings of 3 to 6 nodes."""
    sizes = 3 + np.arange(20) % 4
    ptr = np.r_[0, np.cumsum(sizes)]
    before = np.concatenate([(np.arange(size) - 1) % size + begin for begin, size in zip(ptr, sizes, strict=False)])
    arrays = {"indptr": np.arange(ptr[-1] + 1), "indices": before, "node_label": np.arange(ptr[-1]) % 3}
    return arrays | {"graph_ptr": ptr, "graph_y": np.arange(20) % 2, "fold10": np.arange(20) // 2}


def pictures():
    """Return images of 4 x 4 pixels."""
    arrays = {}
    for part, number in (("train", 20), ("test", 4)):
        arrays[f"{part}_x"] = (spread(number * 16, 60).reshape(number, 4, 4, 1) % 256).astype(np.uint8)
        arrays[f"{part}_y"] = np.arange(number) % 3
    return arrays


def nodes(folder, sampler, batch_size=5, rank=0, world_size=1, kind=NodeDataModule, **options):
    module = kind(str(folder / "nodes"), sampler, batch_size=batch_size, num_workers=0, seed=SEED, **options)
    return module.make_loader(rank, world_size, SEED)


def other_rows(folder):
    """Return a loader with bfloat16 features and several labels per node."""
    y = (spread(120, 52).reshape(40, 3) % 2).astype(np.uint8)
    return s.SampleLoader(node_data(x=to_bfloat16(rows(40, 5, 50)), y=y), s.NeighborSampler([3, 2]), batch_size=5, seed=SEED)


def links(folder, **shares):
    options = {"sampler": s.LinkSampler(s.NeighborSampler([3, 2])), "batch_size": 64, "num_workers": 0, "seed": SEED}
    return LinkDataModule(dataset=str(folder / "nodes"), **shares, **options).train_dataloader()


def events(folder, rank=0, world_size=1):
    """Return a loader of events between eleven nodes, with repetitions."""
    data = Events(src=spread(60, 56) % 7, dst=4 + spread(60, 57) % 7, t=np.arange(60) // 2)
    return EventDataModule(data, num_neighbors=3, batch_size=8, num_workers=0).make_loader(rank, world_size, SEED)


def triples(sampler, num_negatives, rank=0, world_size=1):
    """Return a loader of sixty triples with twenty entities and three relations."""
    numbers = np.arange(60)
    rows = np.stack([numbers % 20, numbers // 20, spread(60, 58) % 20], axis=1)
    module = TripleDataModule(Triples(splits={"train": rows}), sampler, num_negatives=num_negatives, batch_size=8, num_workers=0)
    return module.make_loader(rank, world_size, SEED)


def edges():
    """Return a loader of labelled edges of the small graph; every fifth edge has no label."""
    y = spread(small().num_edges, 56) % 4
    y[::5] = -1
    sampler = s.LinkSampler(s.NeighborSampler([3, 2]), num_negatives=0)
    return EdgeDataModule(node_data(edge_y=y), sampler, batch_size=16, num_workers=0, seed=SEED).train_dataloader()


def chunks(folder, **options):
    return ChunkLoader(node_data(), s.NeighborSampler([3, 2]), batch_size=5, seed=SEED, **options)


def hetero_node_data():
    x = {"p": rows(20, 3, 53), "a": spread(30, 54).reshape(15, 2)}
    return HeteroDataset(graph=hetero_graph(), seed_type="p", x=x, y=spread(20, 55) % 4, splits={"train": np.arange(11)})


def types(folder):
    return s.SampleLoader(hetero_node_data(), s.HeteroSampler([2, 2], "p"), batch_size=4, seed=SEED)


def hetero(folder):
    module = HeteroDataModule(hetero_node_data(), s.HeteroSampler([2, 2], "p"), batch_size=3, num_workers=0, seed=SEED)
    return module.make_loader(1, 2, SEED)


def hetero_links(folder):
    sampler = s.HeteroLinkSampler(s.HeteroSampler([2, 2]), ("a", "writes", "p"), "degree", 2, exclude="self")
    return HeteroLinkDataModule(hetero_node_data(), sampler, batch_size=8, num_workers=0, seed=SEED).train_dataloader()


def items(folder, module, *data, **options):
    """Return a loader that keeps converted data in the folder. Not for loaders with workers, whose kernels would be cached there too."""
    with patch.dict(os.environ, HOPTRAIN_CACHE=str(folder / "cache")):
        return module(*data, seed=SEED, **options).train_dataloader()


def images(folder, **changes):
    return items(folder, ImageDataModule, "pictures", root=str(folder), batch_size=8, **changes)


FEEDS = {
    "nodes": lambda folder: nodes(folder, s.NeighborSampler([3, 2])),
    "nodes, rank 1 of 2": lambda folder: nodes(folder, s.NeighborSampler([3, 2]), rank=1, world_size=2),
    "nodes, vrgcn": lambda folder: nodes(folder, s.VRGCNSampler([2, 2])),
    "nodes, mvs": lambda folder: nodes(folder, s.MVSSampler(s.NeighborSampler([3, 2]), num_draws=4)),
    "nodes, balanced": lambda folder: nodes(folder, s.NeighborSampler([3, 2]), class_balanced_sampling=True),
    "nodes, saint": lambda folder: nodes(folder, s.SaintWalkSampler(3, 2), batch_size=1),
    "nodes, other rows": other_rows,
    "adaptive": lambda folder: nodes(folder, s.ASGCNSampler([6, 6])),
    "chunks": lambda folder: chunks(folder, chunks=2),
    "chunks, by index": lambda folder: chunks(folder, chunks=2, chunking="by-index"),
    "links": lambda folder: links(folder, val_ratio=0.0, test_ratio=0.0),
    "links, held out": lambda folder: links(folder, val_ratio=0.05, test_ratio=0.1),
    "temporal_links": events,
    "temporal_links, rank 1 of 2": lambda folder: events(folder, rank=1, world_size=2),
    "kg": lambda folder: triples(s.NeighborSampler([3, 2]), 4),
    "kg, without messages, rank 1 of 2": lambda folder: triples(None, None, rank=1, world_size=2),
    "edges": lambda folder: edges(),
    "typed": types,
    "hetero, rank 1 of 2": hetero,
    "hetero_links": hetero_links,
    "images": images,
    "images, changed": lambda folder: images(folder, shift=1, mirror=True),
    "graphs": lambda folder: items(folder, GraphDataModule, "rings", root=str(folder), batch_size=6),
    "sign": lambda folder: items(folder, SIGNDataModule, str(folder / "nodes"), num_hops=2, batch_size=5),
    "sse": lambda folder: nodes(folder, s.NeighborSampler([-1]), kind=SteadyDataModule),
    "full_batch, rank 1 of 2": lambda folder: FullBatchDataModule(str(folder / "nodes"), seed=SEED).make_loader(1, 2, SEED),
}


def feed_contents(batch):
    """Return everything in a batch of any loader, by name."""
    if isinstance(batch, ItemBatch):
        x = batch.x._asdict() if hasattr(batch.x, "_asdict") else {"x": batch.x}
        x = {name: rows for name, rows in x.items() if rows is not None}
        return batch.address._asdict() | x | {"y": batch.y, "num_step_items": batch.num_step_items}
    if hasattr(batch, "chunks"):
        named = {f"chunk{i}.{name}": value for i, chunk in enumerate(batch.chunks) for name, value in contents(chunk).items()}
        return named | {"seed": batch.chunks[0].seed, "epoch": batch.epoch, "batch": batch.batch}
    return contents(batch)


def of_epochs(loader):
    """Yield the contents of all batches of the tested epochs."""
    for epoch in EPOCHS:
        loader.set_epoch(epoch)
        yield from map(feed_contents, loader)
