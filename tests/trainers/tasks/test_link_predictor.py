"""Link prediction: training links, evaluation, and a command line run that learns."""

import numpy as np
import pytest
import torch
import yaml
from cases.mistakes import Mistake, each_of
from pytorch_lightning import Trainer
from pytorch_lightning.callbacks import RichProgressBar

from hoptrain.engine import Dataset, Graph
from hoptrain.samplers import LinkSampler, NeighborSampler
from hoptrain.trainers.callbacks.callbacks import ProgressBar
from hoptrain.trainers.commands.lightning import run
from hoptrain.trainers.tasks.linked import with_hard_negatives
from hoptrain.trainers.tasks.links.data import LinkDataModule
from hoptrain.trainers.tasks.links.task import LinkPredictor

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's warnings about a small run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Save a data set of four groups with links inside; noisy features reveal the groups, and there are no labels."""
    rng = np.random.default_rng(0)
    group = np.arange(200) % 4
    src, dst = rng.integers(0, 200, (2, 6000))
    near = (group[src] == group[dst]) & (src != dst)
    src, dst = src[near], dst[near]
    x = np.eye(4, dtype=np.float32)[group] + rng.normal(0, 0.5, (200, 4)).astype(np.float32)
    path = tmp_path_factory.mktemp("links") / "data"
    Dataset(name="groups", graph=Graph.from_edges(np.r_[src, dst], np.r_[dst, src], 200), x=x).save(path)
    return path


def sampler(**options):
    return LinkSampler(NeighborSampler([5, 5]), **options)


@pytest.mark.promise
def test_a_run_learns(folder, tmp_path, capsys, monkeypatch):
    options = {
        "task": "links",
        "data": {
            "dataset": str(folder),
            "sampler": {
                "class_path": "hoptrain.samplers.LinkSampler",
                "init_args": {"sampler": {"class_path": "hoptrain.samplers.NeighborSampler", "init_args": {"fanouts": [5, 5]}}},
            },
            "batch_size": 256,
            "num_workers": 0,
        },
        "model": {"hidden_channels": 16, "out_channels": 16, "lr": 0.02},
        "trainer": {
            "max_epochs": 6, "accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False,
            "default_root_dir": str(tmp_path),
        },
    }  # fmt: skip
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(options))
    cli = run(["fit", "--config", str(tmp_path / "run.yaml")])
    assert cli.trainer.callback_metrics["test_auc"] > 0.8
    assert cli.trainer.checkpoint_callback.monitor == "val_auc"
    assert cli.trainer.checkpoint_callback.best_model_score > 0.8
    monkeypatch.setattr(RichProgressBar, "get_metrics", lambda *_: {"val_loss": 1.0, "val_auc": 0.5})
    assert ProgressBar().get_metrics(cli.trainer, cli.model) == {"val auc": "0.500"}
    assert f"test ROC AUC {cli.trainer.callback_metrics['test_auc']:.3f}" in capsys.readouterr().out


def test_held_out_links_pass_no_message(folder):
    module = LinkDataModule(dataset=str(folder), sampler=sampler(), num_workers=0, batch_size=64)
    graph = module.data.graph
    left = set(zip(graph.indices.tolist(), np.repeat(np.arange(200), graph.in_degrees()).tolist(), strict=True))
    for held in module.held_out.values():
        pairs = held.links.T.tolist()
        assert pairs
        assert not left & ({(u, v) for u, v in pairs} | {(v, u) for u, v in pairs})
    batch = next(iter(module.train_dataloader())).to("cpu")
    nodes, links = batch.node_ids, batch.extra["pairs"][:, batch.extra["labels"] > 0]
    assert {(int(nodes[u]), int(nodes[v])) for u, v in links.T} <= left
    share = module.val_dataloader().dataset[0]
    assert share.links.shape == share.others.shape == module.held_out["val"].links.shape


def groups(**changed):
    """Return four groups' links without labels; val and test have each link once, and training links have both directions."""
    rng = np.random.default_rng(0)
    src, dst = np.nonzero(np.triu(rng.random((40, 40)) < 0.2, 1))
    order = rng.permutation(len(src))
    val, test, train = order[:12], order[12:24], order[24:]
    splits = {"train": np.r_[train, train + len(src)], "val": val, "test": test}
    graph = Graph.from_edges(np.r_[src, dst], np.r_[dst, src], 40, times=np.tile(np.argsort(order), 2))
    return Dataset(graph=graph, x=rng.normal(size=(40, 6)).astype(np.float32), **{"edge_splits": splits} | changed)


def judged(data, model, **options):
    """Return the metrics of one epoch's validation, the model and the data module."""
    module = LinkDataModule(data, sampler(num_negatives=3), batch_size=64, num_workers=0, seed=1, **options)
    predictor = LinkPredictor(module.num_features, module.num_hops, hidden_channels=8, out_channels=6, **model)
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False, "logger": False}
    trainer = Trainer(max_epochs=1, accelerator="cpu", use_distributed_sampler=False, num_sanity_val_steps=0, **quiet)
    trainer.fit(predictor, module)
    return {name: float(value) for name, value in trainer.callback_metrics.items()}, predictor.eval(), module


def ranks_in(predictor, module, candidates):
    """Return the ranks of validation links, computed pair by pair.

    ``candidates`` yields for a link the competing pairs, once for each side.
    """
    vectors = predictor.infer(np.arange(40))
    ranks = []
    with torch.no_grad():
        for link in module.held_out["val"].links.T:
            for pairs in candidates(link.tolist()):
                own, others = (predictor.decoder(*vectors[np.array(part).T]) for part in ([link], pairs))
                ranks.append(1 + ((others > own).sum() + (others >= own).sum()).item() / 2)
    return np.array(ranks)


@pytest.mark.parametrize("decoder", ["dot", "complex"])
def test_links_among_all_nodes(decoder):
    """In the ranks among all nodes, known links of any split do not compete."""
    data = groups()
    logged, predictor, module = judged(data, {"metric": "mrr", "decoder": decoder}, eval_negatives="all")
    known = set(zip(data.graph.indices.tolist(), data.graph.destinations().tolist(), strict=True))

    def candidates(link):
        u, v = link
        yield [(u, w) for w in range(40) if (u, w) not in known]
        yield [(w, v) for w in range(40) if (w, v) not in known]

    assert logged["val_mrr"] == pytest.approx((1 / ranks_in(predictor, module, candidates)).mean(), rel=1e-5)


def test_links_among_their_own_negatives():
    rng = np.random.default_rng(2)
    negatives = {name: rng.integers(0, 40, (2, 12, 9)) for name in ("val", "test")}
    of = {tuple(link): negatives["val"][:, i].T.tolist() for i, link in enumerate(given_val().T.tolist())}
    logged, predictor, module = judged(groups(negatives=negatives), {"metric": "hits@3", "hard_negatives": 2})
    ranks = ranks_in(predictor, module, lambda link: [of[tuple(link)]])
    assert logged["val_hits@3"] == pytest.approx((ranks <= 3).mean())
    logged, predictor, module = judged(groups(negatives=negatives), {"metric": "auc"})
    flat = negatives["val"].reshape(2, -1).T.tolist()
    ranks = ranks_in(predictor, module, lambda _: [flat])
    assert logged["val_auc"] == pytest.approx(1 - (ranks - 1).mean() / len(flat))


def given_val():
    data = groups()
    places = data.graph.csc_positions(data.edge_splits["val"])
    return np.stack([data.graph.indices[places], data.graph.destinations()[places]])


def test_given_links_pass_no_message_and_none_but_train_does():
    module = judged(groups(), {"metric": "ap", "decoder": "mlp"})[2]
    assert (module.held_out["val"].links == given_val()).all()
    assert module.data.graph.num_edges == len(groups().edge_splits["train"])


def test_links_of_the_latest_times():
    data = groups(edge_splits={})
    module = LinkDataModule(data, sampler(), num_workers=0, split="temporal", val_ratio=0.1, test_ratio=0.1)
    times = {
        frozenset(edge): time
        for *edge, time in zip(data.graph.indices.tolist(), data.graph.destinations().tolist(), data.graph.times.tolist(), strict=True)
    }
    val, test = ([times[frozenset(link)] for link in module.held_out[name].links.T.tolist()] for name in ("val", "test"))
    assert module.data.graph.times.max() < min(val) <= max(val) < min(test)


def test_hard_negatives_are_those_that_score_highest():
    scores = torch.tensor([0.5, -0.5, 3.0, 1.0, 2.0, -1.0, -3.0, -2.0])
    labels = torch.tensor([1.0, 1.0, 0, 0, 0, 0, 0, 0])
    kept, own = with_hard_negatives(scores, labels, 2)
    assert kept.tolist() == [0.5, -0.5, 3.0, 2.0, -1.0, -2.0]
    assert own.tolist() == [1.0, 1.0, 0, 0, 0, 0]
    assert with_hard_negatives(scores, labels, None)[0] is scores
    assert with_hard_negatives(scores[:2], labels[:2], 2)[0].tolist() == [0.5, -0.5]  # in_batch negatives of a single link


def fit_data_without_a_graph():
    trainer = Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
    trainer.fit(LinkPredictor(4, 2), [0])


NEGATIVES = {"val": np.zeros((2, 12, 2), int), "test": np.zeros((2, 12, 2), int)}
MISTAKES = {
    "a sampler of nodes": Mistake(
        lambda folder: LinkDataModule(dataset=str(folder), sampler=NeighborSampler([5]), num_workers=0),
        value="NeighborSampler(fanouts=[5]",
        rule="sampler must",
        remedy="LinkSampler without edges",
    ),
    "a sampler of links with edges": Mistake(
        lambda folder: LinkDataModule(dataset=str(folder), sampler=sampler(edges=[0, 1]), num_workers=0),
        value="sampler is LinkSampler(",
        rule="sampler must",
        remedy="LinkSampler without edges",
    ),
    "a score that has no ranks": Mistake(
        lambda: judged(groups(), {"metric": "auc"}, eval_negatives="all"),
        value="metric is auc",
        rule="link ranked own negatives",
        remedy="mrr hits@K recall@K precision@K ndcg@K",
    ),
    "negatives that are not given": Mistake(
        lambda: judged(groups(), {}, eval_negatives="predefined"),
        value="12 links of val",
        rule="eval_negatives predefined data none",
        remedy="Dataset negatives uniform all",
    ),
    "negatives of links that are given, for others": Mistake(
        lambda: judged(groups(negatives=NEGATIVES), {}, split="random"),
        value="7 links of val",
        rule="eval_negatives predefined data none",
        remedy="Dataset negatives uniform all",
    ),
    "shares beside links that are given": Mistake(
        lambda: judged(groups(), {}, val_ratio=0.2),
        value="val_ratio 0.2",
        rule="split predefined test_ratio 0.1 edge_splits",
        remedy="leave out",
    ),
    "a word for the split": Mistake(
        lambda: judged(groups(), {}, split="share"), value="'share'", rule="split one", remedy="random temporal predefined"
    ),
    "more hard negatives than there are": Mistake(
        lambda: judged(groups(), {"hard_negatives": 4}), value="hard_negatives is 4", rule="num_negatives 3", remedy="raise num_negatives"
    ),
    "no hard negatives": Mistake(
        lambda: LinkPredictor(4, 2, hard_negatives=0), value="hard_negatives is 0", rule="must least 1", remedy="leave out"
    ),
    "a score without its K": Mistake(
        lambda: LinkPredictor(4, 2, metric="recall"), value="'recall'", rule="metric one", remedy="auc ap mrr hits@K recall@K"
    ),
    "data without a graph": Mistake(
        fit_data_without_a_graph, value="LinkPredictor", rule="needs graph", remedy="trainer.fit(model, datamodule=LinkDataModule("
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
