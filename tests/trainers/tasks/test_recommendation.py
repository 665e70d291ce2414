"""Recommendation with the task links: steps equal PyG's example, metrics equal a slow computation, runs resume, bad data are rejected."""

import numpy as np
import pytest
import torch
from cases.mistakes import Mistake, each_of
from pytorch_lightning import Callback, Trainer
from pytorch_lightning.callbacks import ModelCheckpoint
from torch_geometric.nn import LightGCN as OfPyG

from hoptrain.engine import Dataset, Graph
from hoptrain.samplers import LinkSampler, NeighborSampler
from hoptrain.trainers.cli import main
from hoptrain.trainers.tasks.links.data import LinkDataModule
from hoptrain.trainers.tasks.links.task import LinkPredictor

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's warnings about a small run
QUIET = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False, "use_distributed_sampler": False}
USERS, ITEMS, HELD = 20, 30, 25


def shop(**changed):
    """Return training links in both directions, and held-out links in one direction, every second of them from the item."""
    rng = np.random.default_rng(0)
    src, dst = np.divmod(rng.permutation(USERS * ITEMS)[:240], ITEMS)
    src, dst = np.r_[src, USERS + dst], np.r_[USERS + dst, src]
    learnt = np.r_[2 * HELD : 240, 240 + 2 * HELD : 480]
    splits = {"train": learnt, "val": np.arange(HELD), "test": 240 * (np.arange(HELD) % 2) + np.arange(HELD, 2 * HELD)}
    return Dataset(name="shop", **{"graph": Graph.from_edges(src, dst, USERS + ITEMS), "edge_splits": splits} | changed)


def parts(data=None, negatives="uniform", fanouts=(-1, -1), dst_range=(USERS, USERS + ITEMS), num_negatives=1, feed=None, **model):
    sampler = LinkSampler(NeighborSampler(list(fanouts), expand="new"), negatives, num_negatives, "none", dst_range=dst_range)
    module = LinkDataModule(data or shop(), sampler, **{"batch_size": 40, "num_workers": 0, "seed": 1} | (feed or {}))
    torch.manual_seed(0)
    options = {"arch": "lightgcn", "embeddings": "dense", "loss": "bpr", "l2": 0.01, "metric": "recall@5", "lr": 0.05} | model
    return module, LinkPredictor(
        module.num_features, module.num_hops, module.num_nodes, **{"hidden_channels": 8, "out_channels": 8} | options
    )


def fit(module, model, **options):
    trainer = Trainer(**{"max_epochs": 1, "accelerator": "cpu", "num_sanity_val_steps": 0, "enable_checkpointing": False} | QUIET | options)
    trainer.fit(model, module)
    return trainer


def test_steps_are_those_of_pygs_example():
    """With the same pairs and initial embeddings, hoptrain and PyG's example have equal embeddings after two epochs."""
    module, model = parts()
    theirs = OfPyG(USERS + ITEMS, 8, 2)
    theirs.embedding.load_state_dict(model.table.state_dict())
    optimizer = torch.optim.Adam(theirs.parameters(), lr=0.05)
    graph, loader = module.data.graph, module.make_loader(0, 1, 1)
    edges = torch.from_numpy(np.stack([graph.indices.astype(np.int64), graph.destinations()]))
    for batch in [batch.to("cpu") for _ in range(2) for batch in loader]:
        pairs = batch.node_ids.long()[batch.extra["pairs"].long()]
        assert (pairs[0] < USERS).all()
        assert (pairs[1] >= USERS).all()
        links, others = theirs(edges, pairs).chunk(2)
        optimizer.zero_grad()
        theirs.recommendation_loss(links, others, pairs.unique(), lambda_reg=0.01).backward()
        optimizer.step()
    fit(module, model, max_epochs=2)
    torch.testing.assert_close(model.table.weight, theirs.embedding.weight, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("metric", ["recall@5", "ndcg@3"])
def test_the_score_is_counted_out(metric):
    """The metric ranks all items except those of the user's training links; links of other splits count as negatives."""
    data = shop()
    module, model = parts(data, metric=metric)
    logged = fit(module, model).callback_metrics[f"val_{metric}"].item()
    assert all((own.links[0] < USERS).all() and (own.links[1] >= USERS).all() for own in module.held_out.values())
    vectors, number = model.eval().infer(np.arange(USERS + ITEMS)).detach(), int(metric[-1])
    ends = np.stack([data.graph.indices, data.graph.destinations()])
    learnt = set(map(tuple, ends[:, data.graph.csc_positions(data.edge_splits["train"])].T.tolist()))
    asked = set(map(tuple, ends[:, data.graph.csc_positions(data.edge_splits["val"])].T.tolist()))
    values = []
    for user in sorted({u for u, _ in asked}):
        left = [v for v in range(USERS, USERS + ITEMS) if (user, v) not in learnt]
        best = sorted(left, key=lambda v: -float(vectors[user] @ vectors[v]))[:number]
        hits, own = [(user, v) in asked for v in best], sum(u == user for u, _ in asked)
        gains = 1 / np.log2(np.arange(2, 2 + number))
        values.append(sum(hits) / own if "recall" in metric else (gains * hits).sum() / gains[:own].sum())
    assert logged == pytest.approx(np.mean(values), rel=1e-5)


def test_a_last_batch_of_one_link_compares_nothing():
    """With in_batch negatives, a batch of one link has no negative and updates nothing."""
    module, model = parts(negatives="in_batch", l2=0.0, feed={"batch_size": 63})
    batches = [batch.to("cpu") for batch in module.make_loader(0, 1, 1)]
    assert [len(batch.extra["labels"]) for batch in batches] == [126, 126, 126, 1]
    assert torch.isfinite(fit(module, model).callback_metrics["train_loss"])
    model.zero_grad()
    loss = model.training_step(batches[-1], 3)
    loss.backward()
    assert loss == 0
    assert not any(own.grad.any() for own in model.parameters() if own.grad is not None)


def test_hard_and_several_negatives():
    """BPR uses all three negatives of a link, or with ``hard_negatives=1`` only the negative with the highest logit."""
    for hard in (None, 1):
        module, model = parts(num_negatives=3, hard_negatives=hard, l2=0.0)
        fit(module, model, max_epochs=1, limit_train_batches=0)
        batch = next(iter(module.make_loader(0, 1, 1))).to("cpu")
        model.degrees = torch.from_numpy(module.data.graph.in_degrees()).float()
        vectors = model(batch)
        scores = (vectors[batch.extra["pairs"][0].long()] * vectors[batch.extra["pairs"][1].long()]).sum(1)
        links, others = scores[:40], scores[40:].view(40, 3)
        others = others if hard is None else others.max(1, keepdim=True).values
        expected = torch.nn.functional.softplus(others - links[:, None]).mean()
        torch.testing.assert_close(model.training_step(batch, 0), expected)


class Stop(Callback):
    def on_train_batch_end(self, trainer, *arguments):
        if trainer.global_step == 8:
            raise KeyError("power cut")


@pytest.mark.parametrize("embeddings", ["sparse", "dense"])
def test_killed_and_resumed_with_other_workers(embeddings, tmp_path):
    """A run with two workers that is killed in the second epoch and resumed without workers is bit-identical, even in Adam's moments."""
    shop().save(tmp_path / "data")

    def run(workers, *callbacks, ckpt_path=None):
        module, model = parts(str(tmp_path / "data"), "filtered", (3, 3), feed={"num_workers": workers}, embeddings=embeddings)
        checkpoints = ModelCheckpoint(tmp_path / "checkpoints", every_n_train_steps=1, save_top_k=-1, filename="{step}")
        trainer = Trainer(max_epochs=3, accelerator="cpu", callbacks=[checkpoints, *callbacks], num_sanity_val_steps=0, **QUIET)
        trainer.fit(model, module, ckpt_path=ckpt_path, weights_only=True)
        state = trainer.optimizers[0].state_dict()["state"]
        return [model.table.weight.detach().clone(), *(torch.as_tensor(value) for own in state.values() for value in own.values())]

    whole = run(0)
    for file in (tmp_path / "checkpoints").iterdir():
        file.unlink()
    with pytest.raises(KeyError):
        run(2, Stop())
    resumed = run(0, ckpt_path=tmp_path / "checkpoints" / "step=7.ckpt")
    assert len(whole) == len(resumed) == 4
    assert all(torch.equal(one, other) for one, other in zip(whole, resumed, strict=True))


def with_edge(source, destination):
    """Return the shop with one more training edge."""
    graph = shop().graph
    src, dst = np.r_[graph.indices, source], np.r_[graph.destinations(), destination]
    return shop(graph=Graph.from_edges(src, dst, USERS + ITEMS), edge_splits={"test": np.array([0])})


def test_the_configuration_trains(tmp_path, monkeypatch, capsys):
    """The configuration trains on small data: the command line passes all options to the model."""
    monkeypatch.chdir(tmp_path)
    shop().save(tmp_path / "shop")
    small = ["--data.dataset", "shop", f"--data.sampler.dst_range=[{USERS}, {USERS + ITEMS}]", "--trainer.max_epochs=1"]
    assert main(["fit", "--config", "gowalla_lightgcn", *small, "--trainer.enable_progress_bar=false"]) == 0
    assert "test Recall@20 " in capsys.readouterr().out


X = np.ones((USERS + ITEMS, 4), np.float32)
MISTAKES = {
    "an edge between two destinations": Mistake(
        lambda: parts(with_edge(25, 30), feed={"leaked_edges": "drop"}),
        value="nodes 25 and 30",
        rule="linked graph dst_range (20, 50)",
        remedy="change leave out",
    ),
    "a copy of what is held out": Mistake(
        lambda: parts(with_edge(2, 30)), value="shop", rule="1 training edges copies held", remedy="data.leaked_edges drop keep"
    ),
    "a word for shared links": Mistake(
        lambda: parts(feed={"leaked_edges": "no"}), value="'no'", rule="leaked_edges one", remedy="error drop keep"
    ),
    "shared links of shares": Mistake(
        lambda: parts(shop(edge_splits={}), feed={"leaked_edges": "drop"}),
        value="leaked_edges is drop",
        rule="split random all copies",
        remedy="leave out",
    ),
    "a link that leads to no destination": Mistake(
        lambda: parts(dst_range=(20, 40)), value="(20, 40)", rule="linked val dst_range neither", remedy="change leave out"
    ),
    "pairs of any nodes beside destinations": Mistake(
        lambda: parts(feed={"eval_negatives": "uniform"}), value="uniform", rule="eval_negatives sampler dst_range", remedy="all predefined"
    ),
    "a K above the destinations": Mistake(
        lambda: fit(*parts(metric="recall@31")), value="recall@31", rule="metric 30 destinations K", remedy="smaller"
    ),
    "a score of the best beside some": Mistake(
        lambda: fit(*parts(dst_range=None, feed={"eval_negatives": "uniform"})),
        value="recall@5",
        rule="eval_negatives not metric ranks destinations",
        remedy="set all",
    ),
    "ranks beside destinations": Mistake(
        lambda: fit(*parts(metric="mrr")), value="metric is mrr", rule="sampler dst_range ranks", remedy="recall@K precision@K ndcg@K"
    ),
    "neither features nor vectors": Mistake(
        lambda: parts(embeddings="none"), value="50", rule="nodes no features", remedy="data.features: walks degrees embeddings: sparse"
    ),
    "vectors beside features": Mistake(lambda: parts(shop(x=X)), value="4 features", rule="embeddings dense without", remedy="leave out"),
    "l2 without vectors": Mistake(
        lambda: parts(shop(x=X), embeddings="none", arch="sage"), value="l2 is 0.01", rule="embeddings none without", remedy="leave out"
    ),
    "l2 below 0": Mistake(lambda: parts(l2=-1.0), value="l2 is -1.0", rule="embeddings dense least 0", remedy="leave out"),
    "a word for the loss": Mistake(lambda: parts(loss="warp"), value="'warp'", rule="loss one", remedy="bce bpr"),
    "a word for embeddings": Mistake(lambda: parts(embeddings="yes"), value="'yes'", rule="embeddings one", remedy="none sparse dense"),
    "a loss of one source with pairs": Mistake(
        lambda: fit(*parts(dst_range=None, negatives="pairs", feed={"eval_negatives": "all"})),
        value='"pairs"',
        rule="loss bpr negatives source",
        remedy='"uniform" loss: bce',
    ),
    "no negatives": Mistake(
        lambda: fit(*parts(num_negatives=0)),
        value="num_negatives is 0",
        rule="sampler link negative",
        remedy="data.sampler num_negatives 1",
    ),
    "clipping of sparse gradients": Mistake(
        lambda: fit(*parts(embeddings="sparse"), gradient_clip_val=1.0),
        value="gradient_clip_val",
        rule="embeddings sparse torch clip gradients",
        remedy="leave embeddings: dense",
    ),
    "a model of fewer nodes": Mistake(
        lambda: fit(parts()[0], LinkPredictor(0, 2, 49, embeddings="dense", metric="recall@5")),
        value="49 nodes",
        rule="model embeddings shop 50",
        remedy="data set",
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
