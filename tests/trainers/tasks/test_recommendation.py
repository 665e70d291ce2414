"""Recommendation by task links: steps of PyG's example, scores counted out, what goes on after a stop, and data that are refused."""

import numpy as np
import pytest
import torch
from pytorch_lightning import Callback, Trainer
from pytorch_lightning.callbacks import ModelCheckpoint
from torch_geometric.nn import LightGCN as OfPyG

from hoptrain.engine import Dataset, Graph, InputError
from hoptrain.samplers import LinkSampler, NeighborSampler
from hoptrain.trainers.cli import main
from hoptrain.trainers.tasks.pairs.link_data import LinkDataModule
from hoptrain.trainers.tasks.pairs.links import LinkPredictor

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's advice on a run this small
QUIET = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False, "use_distributed_sampler": False}
USERS, ITEMS, HELD = 20, 30, 25


def shop(**changed):
    """Both directions of the links that are learnt from; of the others one, of every second from the item."""
    rng = np.random.default_rng(0)
    src, dst = np.divmod(rng.permutation(USERS * ITEMS)[:240], ITEMS)
    src, dst = np.r_[src, USERS + dst], np.r_[USERS + dst, src]
    learnt = np.r_[2 * HELD : 240, 240 + 2 * HELD : 480]
    splits = {"train": learnt, "val": np.arange(HELD), "test": 240 * (np.arange(HELD) % 2) + np.arange(HELD, 2 * HELD)}
    return Dataset(name="shop", **{"graph": Graph.from_edges(src, dst, USERS + ITEMS), "edge_splits": splits} | changed)


def parts(data=None, negatives="uniform", fanouts=(-1, -1), destinations=(USERS, USERS + ITEMS), num_negatives=1, feed=None, **model):
    sampler = LinkSampler(NeighborSampler(list(fanouts), expand="new"), negatives, num_negatives, "none", destinations=destinations)
    module = LinkDataModule(data or shop(), sampler, **{"batch_size": 40, "num_workers": 0, "seed": 1} | (feed or {}))
    torch.manual_seed(0)
    options = {"arch": "lightgcn", "embeddings": "dense", "loss": "bpr", "l2": 0.01, "score": "recall@5", "lr": 0.05} | model
    return module, LinkPredictor(
        module.num_features, module.num_hops, module.num_vertices, **{"hidden_channels": 8, "out_channels": 8} | options
    )


def fit(module, model, **options):
    trainer = Trainer(**{"max_epochs": 1, "accelerator": "cpu", "num_sanity_val_steps": 0, "enable_checkpointing": False} | QUIET | options)
    trainer.fit(model, module)
    return trainer


def test_steps_are_those_of_pygs_example():
    """The same pairs and the same vectors to begin with: after two epochs the same vectors."""
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


@pytest.mark.parametrize("score", ["recall@5", "ndcg@3"])
def test_the_score_is_counted_out(score):
    """Each user's best items among those that are not learnt from; the links of the other splits count as others."""
    data = shop()
    module, model = parts(data, score=score)
    logged = fit(module, model).callback_metrics[f"val_{score}"].item()
    assert all((own.links[0] < USERS).all() and (own.links[1] >= USERS).all() for own in module.held_out.values())
    vectors, number = model.eval().infer(np.arange(USERS + ITEMS)).detach(), int(score[-1])
    ends = np.stack([data.graph.indices, data.graph.destinations()])
    learnt = set(map(tuple, ends[:, data.graph.places_of(data.edge_splits["train"])].T.tolist()))
    asked = set(map(tuple, ends[:, data.graph.places_of(data.edge_splits["val"])].T.tolist()))
    values = []
    for user in sorted({u for u, _ in asked}):
        left = [v for v in range(USERS, USERS + ITEMS) if (user, v) not in learnt]
        best = sorted(left, key=lambda v: -float(vectors[user] @ vectors[v]))[:number]
        hits, own = [(user, v) in asked for v in best], sum(u == user for u, _ in asked)
        gains = 1 / np.log2(np.arange(2, 2 + number))
        values.append(sum(hits) / own if "recall" in score else (gains * hits).sum() / gains[:own].sum())
    assert logged == pytest.approx(np.mean(values), rel=1e-5)


def test_a_last_batch_of_one_link_compares_nothing():
    """In a batch of its own it has no negative, by in_batch, and moves no vector."""
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
    """BPR over each link's three negatives, and over the one of them that scores highest."""
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
    """Five steps an epoch: from a step in the middle of the second, by two workers, then by none; to the bit, the moments too."""
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
    """The shop with one edge more, which is learnt from."""
    graph = shop().graph
    src, dst = np.r_[graph.indices, source], np.r_[graph.destinations(), destination]
    return shop(graph=Graph.from_edges(src, dst, USERS + ITEMS), edge_splits={"test": np.array([0])})


def test_mistakes():
    x = np.ones((USERS + ITEMS, 4), np.float32)
    for make, message in (
        (
            lambda: parts(with_edge(25, 30), feed={"shared_links": "drop"}),
            r"vertices 25 and 30 are linked in the graph and destinations is \(20, 50\): both are among them",
        ),
        (lambda: parts(with_edge(2, 30)), r"edges to learn from \(1, that from \d+ to \d+ for one\) are copies or reverses of links"),
        (lambda: parts(feed={"shared_links": "no"}), "shared_links is 'no': it is one of refuse, drop, keep"),
        (lambda: parts(shop(edge_splits={}), feed={"shared_links": "drop"}), "shared_links is drop and split share: .* leave it out"),
        (lambda: parts(destinations=(20, 40)), r"are linked in val and destinations is \(20, 40\): neither is among them"),
        (lambda: parts(feed={"eval_negatives": "uniform"}), "eval_negatives is uniform and the sampler has destinations"),
        (lambda: fit(*parts(score="recall@31")), "score is recall@31 and there are 30 destinations: K is at most their number"),
        (
            lambda: fit(*parts(destinations=None, feed={"eval_negatives": "uniform"})),
            "score is recall@5 and eval_negatives is not all: the best are those of all destinations; set it to all",
        ),
        (lambda: fit(*parts(score="mrr")), "score is mrr and the sampler has destinations: .* give recall@K, precision@K or ndcg@K"),
        (lambda: parts(embeddings="none"), "the vertices have no features: .* learns a vector for each of the 50"),
        (lambda: parts(shop(x=x)), "embeddings is dense and a vertex has 4 features: vectors are learnt for those without"),
        (lambda: parts(shop(x=x), embeddings="none", arch="sage"), "l2 is 0.01 with embeddings none"),
        (lambda: parts(l2=-1.0), "l2 is -1.0 with embeddings dense: it is at least 0"),
        (lambda: parts(loss="warp"), "loss is 'warp': it is one of bce, bpr"),
        (lambda: parts(embeddings="yes"), "embeddings is 'yes': it is one of none, sparse, dense"),
        (
            lambda: fit(*parts(destinations=None, negatives="pairs", feed={"eval_negatives": "all"})),
            r"loss is bpr and the sampler's negatives \"pairs\": it compares destinations of one source",
        ),
        (lambda: fit(*parts(num_negatives=0)), "the sampler's num_negatives is 0: links are learnt beside pairs that are none"),
        (lambda: fit(*parts(embeddings="sparse"), gradient_clip_val=1.0), "torch does not clip sparse gradients"),
        (
            lambda: fit(parts()[0], LinkPredictor(0, 2, 49, embeddings="dense", score="recall@5")),
            "the model has vectors of 49 vertices, shop has 50",
        ),
    ):
        with pytest.raises(InputError, match=message):
            make()


def test_the_configuration_trains(tmp_path, monkeypatch, capsys):
    """By the command line, which gives a model all options that it has."""
    monkeypatch.chdir(tmp_path)
    shop().save(tmp_path / "shop")
    small = ["--data.dataset", "shop", f"--data.sampler.destinations=[{USERS}, {USERS + ITEMS}]", "--trainer.max_epochs=1"]
    assert main(["fit", "--config", "gowalla_lightgcn", *small, "--trainer.enable_progress_bar=false"]) == 0
    assert "test Recall@20 " in capsys.readouterr().out
