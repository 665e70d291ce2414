"""The matrix of docs/samplers.md: which sampler trains which task, and where. Each field was tried: one step of training, or what refuses it.

``python tests/pages/test_matrix.py`` writes it anew.
"""

import inspect
import logging
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from pytorch_lightning import Trainer

from hoptrain import samplers as s
from hoptrain.engine import Dataset, Graph, HeteroDataset, HeteroGraph, InputError
from hoptrain.engine.datasets.triples import Triples
from hoptrain.samplers import SampleLoader, Sampler
from hoptrain.samplers.cuda.drivers import DRIVERS
from hoptrain.trainers.pipeline import PipelineStrategy
from hoptrain.trainers.tasks import TASKS

PAGE = Path(__file__).parents[2] / "docs" / "samplers.md"
BEGIN, END = "<!-- matrix -->\n", "<!-- end of matrix -->\n"
V = 60
SPLITS = {"train": np.arange(0, 40), "val": np.arange(40, 50), "test": np.arange(50, 60)}
SAMPLERS = {
    "NeighborSampler": lambda: s.NeighborSampler([3, 3]),
    "LaborSampler": lambda: s.LaborSampler([3, 3]),
    "PinSAGESampler": lambda: s.PinSAGESampler([3, 3]),
    "MVSSampler": lambda: s.MVSSampler(s.NeighborSampler([3, 3]), 3),
    "WeightedSeedSampler": lambda: s.WeightedSeedSampler(s.NeighborSampler([3, 3]), np.ones(V)),
    "VRGCNSampler": lambda: s.VRGCNSampler([2, 2]),
    "FastGCNSampler": lambda: s.FastGCNSampler([8, 8]),
    "LadiesSampler": lambda: s.LadiesSampler([8, 8]),
    "ASGCNSampler": lambda: s.ASGCNSampler([8, 8]),
    "ClusterSampler": lambda: s.ClusterSampler(8),
    "SaintNodeSampler": lambda: s.SaintNodeSampler(8, num_subgraphs=8),
    "SaintEdgeSampler": lambda: s.SaintEdgeSampler(8, num_subgraphs=8),
    "SaintWalkSampler": lambda: s.SaintWalkSampler(8, num_subgraphs=8, error=0.5),
    "ShadowSampler": lambda: s.ShadowSampler(2, 3, num_layers=2),
    "ShadowPPRSampler": lambda: s.ShadowPPRSampler(4, num_layers=2),
    "RippleWalkSampler": lambda: s.RippleWalkSampler(8, num_subgraphs=8),
    "LinkSampler": lambda: s.LinkSampler(s.NeighborSampler([3, 3])),
    "TemporalSampler": lambda: s.TemporalSampler([3, 3], seed_times=np.full(V, 90)),
    "HeteroSampler": lambda: s.HeteroSampler([3, 3], "p"),
    "HeteroTemporalSampler": lambda: s.HeteroTemporalSampler([3, 3], "p"),
    "HeteroLaborSampler": lambda: s.HeteroLaborSampler([3, 3], "p"),
    "HeteroPinSAGESampler": lambda: s.HeteroPinSAGESampler([3, 3], ["p:of:a", "a:has:p"]),
    "HeteroLinkSampler": lambda: s.HeteroLinkSampler(s.HeteroSampler([3, 3]), ("a", "has", "p")),
    "HGTSampler": lambda: s.HGTSampler([4, 4], "p"),
    "RandomWalk": lambda: s.RandomWalk(4),
    "Node2Vec": lambda: s.Node2Vec(4),
    "MetapathWalk": lambda: s.MetapathWalk(np.zeros(V * 6, np.int32), [0], 4),
}
COLUMNS = ("nodes", "links", "edges", "triples", "hetero", "CUDA", "pipeline", "resume")


def plain():
    """A graph where vertex v has in-edges from v - 1, v - 2, ...: with features, classes, times and labels of edges."""
    sources = (np.arange(V)[:, None] - np.arange(1, 7)).ravel() % V
    graph = Graph(np.arange(0, V * 6 + 1, 6), np.sort(sources.reshape(V, 6), axis=1).ravel(), times=np.arange(V * 6) % 90)
    x = np.linspace(0, 1, V * 4, dtype=np.float32).reshape(V, 4)
    return Dataset(name="ring", graph=graph, x=x, y=np.arange(V) % 3, splits=SPLITS, edge_y=np.arange(V * 6) % 3)


def typed():
    """Papers and authors, three edges each way."""
    of = (np.arange(0, V * 3 + 1, 3), np.arange(V * 3) % V)
    graph = HeteroGraph({"p": V, "a": V}, {("a", "has", "p"): of, ("p", "of", "a"): of})
    x = {kind: np.linspace(0, 1, V * 4, dtype=np.float32).reshape(V, 4) for kind in "pa"}
    return HeteroDataset(name="papers", graph=graph, seed_type="p", x=x, y=np.arange(V) % 3, splits=SPLITS)


def module_of(task, sampler):
    """The task's data with the sampler; links and triples wrap it where that is how it is given."""
    _, data_class = TASKS[task].classes()
    options = {"num_workers": 0, "batch_size": 8}
    if task == "hetero":
        return data_class(typed(), sampler, **options)
    if task == "triples":
        ids = np.arange(3 * V)
        rows = np.stack([ids % V, ids // V, (ids * 7 + 1) % V], axis=1)
        return data_class(Triples(splits={"train": rows[:150], "val": rows[150:165], "test": rows[165:]}), sampler, **options)
    if task in ("links", "edges") and not isinstance(sampler, s.LinkSampler):
        sampler = s.LinkSampler(sampler, num_negatives=0 if task == "edges" else 1)
    elif task == "edges":
        sampler = s.LinkSampler(sampler.sampler, num_negatives=0)
    return data_class(plain(), sampler, **options)


def fits(task, name, **options):
    """Whether a step of training works; what refuses it does so by ``InputError``."""
    try:
        module = module_of(task, SAMPLERS[name]())
        model_class, _ = TASKS[task].classes()
        sizes = {theirs: getattr(module, own) for own, theirs in TASKS[task].from_data.items()}
        sizes |= {} if sizes.get("num_layers", 1) else {"num_layers": 2}  # as a user would give it, where a sampler of walks has no hops
        if name == "ASGCNSampler" and task == "nodes":
            from hoptrain import AdaptiveNodeClassifier as model_class
        model = model_class(**sizes, hidden_channels=32)
        Trainer(
            fast_dev_run=1,
            accelerator="cpu",
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            **options,
        ).fit(model, module)
    except InputError as error:
        return str(error)
    return ""


def refused_on_cuda(name):
    """Whether the table of drivers has none for it; what a driver makes of options stands in the sampler's docstring."""
    for kind in type(SAMPLERS[name]()).__mro__:
        if kind in DRIVERS:
            return ""
        if "sample_on_cpu" in vars(kind):
            break
    return "no driver"


def goes_on(name):
    """Whether a loader that takes another one's state gives the batches that were to follow."""
    try:
        data = typed() if name.startswith("H") else plain()
        first, second = (SampleLoader(data, SAMPLERS[name](), batch_size=4, num_workers=0, seed=3) for _ in range(2))
    except InputError as error:
        return str(error)
    batches = iter(first)
    next(batches)
    second.load_state_dict(first.state_dict())
    one, other = next(batches).arrays(), next(iter(second)).arrays()
    assert all(np.array_equal(one[key], other[key]) for key in one | other), name
    return ""


def refusal(name, column):
    """What refuses it; nothing where it works."""
    if column == "CUDA":
        return refused_on_cuda(name)
    if column == "resume":
        return goes_on(name)
    if column == "pipeline":
        return fits("nodes", name, strategy=PipelineStrategy(stages=1, chunks=2), devices=1)
    return fits(column, name)


def matrix():
    """The table, as the page has it."""
    lines = ["| sampler | " + " | ".join(COLUMNS) + " |", "|---" * (1 + len(COLUMNS)) + "|"]
    for name in SAMPLERS:
        found = {column: refusal(name, column) for column in COLUMNS}
        if "-v" in sys.argv:
            print(name, found, file=sys.stderr)
        lines.append(f"| `{name}` | " + " | ".join("" if found[column] else "yes" for column in COLUMNS) + " |")
    return "\n".join(lines) + "\n"


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore")  # Lightning's advice on a run this small
def test_the_page_has_the_matrix_as_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = PAGE.read_text()
    assert page[page.index(BEGIN) + len(BEGIN) : page.index(END)] == matrix(), "python tests/pages/test_matrix.py writes it anew"


def test_it_has_every_sampler():
    found = {name for name in s.__all__ if inspect.isclass(thing := getattr(s, name)) and issubclass(thing, Sampler)}
    assert set(SAMPLERS) == found - {"Sampler", "Program"}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    page = PAGE.read_text()
    before, after = page[: page.index(BEGIN) + len(BEGIN)], page[page.index(END) :]
    PAGE.write_text(before + matrix() + after)
