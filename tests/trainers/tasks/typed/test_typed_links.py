"""Links of typed graphs: runs that learn, exact evaluation beside a slow one, what is dealt out, and what is refused."""

import operator
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml
from pytorch_lightning import Trainer
from reference.typed import typed_data

from hoptrain.engine import HeteroDataset, HeteroGraph, InputError
from hoptrain.samplers import HeteroLinkSampler, HeteroSampler, NeighborSampler
from hoptrain.trainers import HeteroLinkDataModule, HeteroLinkPredictor
from hoptrain.trainers.commands.lightning import run
from hoptrain.trainers.pipeline import PipelineStrategy

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's advice on a run this small
BUYS, BOUGHT, KNOWS = ("user", "buys", "item"), ("item", "bought", "user"), ("user", "knows", "user")


def shop():
    """Users buy items of their own group of four; users know those of their group."""
    rng = np.random.default_rng(1)
    user, item = rng.integers(0, 60, 900), rng.integers(0, 10, 900)
    item = user % 4 + 4 * item
    friend = (rng.integers(0, 15, 300) * 4 + rng.integers(0, 60, 300) % 4) % 60
    knows = np.arange(300) % 60, friend - friend % 4 + np.arange(300) % 60 % 4
    graph = HeteroGraph.from_edges({"user": 60, "item": 40}, {BUYS: (user, item), BOUGHT: (item, user), KNOWS: knows})
    return HeteroDataset(name="shop", graph=graph, seed_type="item", x={"user": np.eye(4, dtype=np.float32)[np.arange(60) % 4]})


def sampler(relation=BUYS, exclude="reverse", reverse=BOUGHT, **options):
    return HeteroLinkSampler(HeteroSampler([4, 4]), relation, exclude=exclude, reverse_relation=reverse, **options)


def module_of(data=None, dealt=None, **options):
    return HeteroLinkDataModule(data or shop(), dealt or sampler(), **{"batch_size": 64, "num_workers": 0, "seed": 2} | options)


def predictor_of(module, **options):
    sizes = {name: getattr(module, name) for name in ("num_vertices", "relations", "link_relation")}
    given = {
        "in_channels": module.num_features,
        "num_layers": module.num_hops,
        "hidden_channels": 16,
        "out_channels": 8,
        "embeddings": True,
    }
    return HeteroLinkPredictor(**sizes | given | options)


def trainer_of(**options):
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    return Trainer(**{"max_epochs": 1, "accelerator": "cpu", "use_distributed_sampler": False} | quiet | options)


def scores_after_a_step(module, predictor):
    trainer = trainer_of(limit_train_batches=1)
    trainer.fit(predictor, module)
    return trainer.test(predictor, module, verbose=False)[0]


@pytest.mark.parametrize("relation", [BUYS, KNOWS])
@pytest.mark.parametrize("arch", ["rgcn", "han"])
def test_ranks_among_all_are_those_of_a_slow_program(relation, arch):
    """By vectors from batches with all neighbours, pair by pair, in plain loops."""
    dealt = sampler() if relation == BUYS else sampler(KNOWS, "self", None)
    module = module_of(dealt=dealt, eval_negatives="all")
    predictor = predictor_of(module, score="mrr", decoder="distmult", arch=arch, heads=2).eval()
    found = scores_after_a_step(module, predictor)["test_mrr"]
    predictor.eval()
    kind, _, other = relation
    numbers = {name: np.arange(module.data.graph.num_nodes[name]) for name in {kind, other}}
    whole = HeteroSampler([-1, -1]).sample(module.data.graph, module.data.graph.numbered(numbers)).to("cpu")
    x = {name: torch.from_numpy(rows)[whole.node_ids[name].long()] for name, rows in module.data.x.items()}
    with torch.no_grad():
        vectors = predictor.model(x, whole.node_ids, whole.blocks)
    sources, destinations = vectors[kind][: len(numbers[kind])], vectors[other][: len(numbers[other])]
    weights, first = predictor.decoder.weights.detach(), len(numbers[kind])
    scores = ((sources * weights) @ destinations.T).tolist()
    columns = shop().graph.relations[relation]
    known = set(zip(columns.indices.tolist(), columns.destinations().tolist(), strict=True))
    ranks = []
    for u, v in (module.held_out["test"].links - np.array([[0], [first]])).T.tolist():
        for own in (
            [scores[u][w] for w in range(len(destinations)) if w == v or (u, w) not in known],
            [scores[w][v] for w in range(len(sources)) if w == u or (w, v) not in known],
        ):
            above, at_least = (sum(compare(each, scores[u][v]) for each in own) for compare in (operator.gt, operator.ge))
            ranks.append(1 + (above + at_least - 1) / 2)
    assert found == pytest.approx(np.mean(1 / np.array(ranks)), rel=1e-3)


def test_uniform_others_are_of_the_relations_types_and_no_links():
    module = module_of()
    columns = shop().graph.relations[BUYS]
    known = set(zip(columns.indices.tolist(), columns.destinations().tolist(), strict=True))
    for held in module.held_out.values():
        assert held.links.shape == held.others.shape
        assert (held.others[0] < 60).all()
        assert ((held.others[1] >= 60) & (held.others[1] < 100)).all()
        assert {(u, v - 60) for u, v in held.links.T.tolist()} <= known
        assert not {(u, v - 60) for u, v in held.others.T.tolist()} & known


@pytest.mark.parametrize("score", ["auc", "ap", "hits@10", "recall@3"])
@pytest.mark.parametrize("loss", ["bce", "bpr"])
def test_scores_and_losses(score, loss):
    module = module_of(eval_negatives="all" if score == "recall@3" else "uniform", dealt=sampler(num_negatives=3, negatives="filtered"))
    found = scores_after_a_step(module, predictor_of(module, score=score, loss=loss, hard_negatives=2, decoder="mlp"))
    assert 0 <= found[f"test_{score}"] <= 1


@pytest.mark.parametrize(("relation", "exclude", "reverse"), [(BUYS, "reverse", BOUGHT), (KNOWS, "self", None)])
def test_nothing_that_is_held_out_is_dealt_out_or_passes_a_message(relation, exclude, reverse):
    module = module_of(dealt=sampler(relation, exclude, reverse))
    kind, _, other = relation
    first = shop().graph.num_nodes[kind]
    held = {(u, v - first) for own in module.held_out.values() for u, v in own.links.T.tolist()}
    met = set()
    for batch in module.train_dataloader():
        pairs = batch.extra["pairs"][:, batch.extra["labels"] > 0]
        met |= set(zip(batch.node_ids[kind][pairs[0]].tolist(), batch.node_ids[other][pairs[1]].tolist(), strict=True))
    left = module.data.graph.relations
    passed = set(zip(left[relation].indices.tolist(), left[relation].destinations().tolist(), strict=True))
    assert met == passed
    assert not met & held
    if reverse is not None:
        assert {(u, v) for v, u in zip(left[reverse].indices.tolist(), left[reverse].destinations().tolist(), strict=True)} == passed


@pytest.mark.long
def test_the_command_line_learns_tests_and_predicts(tmp_path, capsys):
    shop().save(tmp_path / "data")
    options = {
        "task": "hetero_links",
        "data": {
            "dataset": str(tmp_path / "data"),
            "sampler": {
                "class_path": "HeteroLinkSampler",
                "init_args": {
                    "sampler": {"class_path": "HeteroSampler", "init_args": {"fanouts": [4, 4]}},
                    "relation": list(BUYS), "exclude": "reverse", "reverse_relation": list(BOUGHT),
                },
            },
            "batch_size": 64, "num_workers": 0,
        },
        "model": {"hidden_channels": 16, "out_channels": 8, "embeddings": True, "lr": 0.03, "dropout": 0.0},
        "trainer": {
            "max_epochs": 5, "check_val_every_n_epoch": 5, "accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False,
            "default_root_dir": str(tmp_path / "runs"),
        },
    }  # fmt: skip
    config = tmp_path / "run.yaml"
    config.write_text(yaml.safe_dump(options))
    cli = run(["fit", "--config", str(config)])
    assert cli.trainer.callback_metrics["test_auc"] > 0.8
    assert "test ROC AUC 0." in capsys.readouterr().out
    best = cli.trainer.checkpoint_callback.best_model_path
    run(["predict", "--config", str(config), "--trainer.default_root_dir", str(tmp_path / "scores"), "--ckpt_path", best])
    assert np.load(tmp_path / "scores" / "predictions.npy").shape == (100, 8)


def test_what_does_not_fit():
    data = shop()
    with pytest.raises(InputError, match=r"relation item:bought:user has the edges of user:buys:item turned round: what is asked for"):
        module_of(dealt=sampler(exclude="self", reverse=None))
    for wrong in (HeteroSampler([2], "item"), NeighborSampler([2]), sampler(edges=[0])):
        with pytest.raises(InputError, match="links of a typed graph are dealt out by a HeteroLinkSampler without edges"):
            module_of(dealt=wrong)
    with pytest.raises(InputError, match="split is time and the edges of user:buys:item have no times: give them to HeteroGraph"):
        module_of(split="time")
    module = module_of()
    with pytest.raises(InputError, match="vertices of type item have no features: give them some, or set embeddings: true"):
        predictor_of(module, embeddings=False)
    with pytest.raises(InputError, match="score is recall@3 and eval_negatives is not all"):
        trainer_of().fit(predictor_of(module, score="recall@3"), module)
    with pytest.raises(InputError, match="hard_negatives is 2 and the sampler's num_negatives 1"):
        trainer_of().fit(predictor_of(module, hard_negatives=2), module)
    with pytest.raises(InputError, match="gradient_clip_val with embeddings"):
        trainer_of(gradient_clip_val=1.0).fit(predictor_of(module), module)
    other = module_of(dealt=sampler(KNOWS, "self", None))
    with pytest.raises(InputError, match="the model has link_relation user:buys:item, shop with this sampler user:knows:user"):
        trainer_of().fit(predictor_of(module), other)
    with pytest.raises(InputError, match=r"run it with trainer.fit\(model, datamodule=HeteroLinkDataModule\(...\)\)"):
        trainer_of().fit(predictor_of(module), [0])
    with pytest.raises(InputError, match="the data are a HeteroGraph: give a name, or a HeteroDataset in memory"):
        module_of(data.graph)
    assert typed_data().y is not None  # labels are left out
    assert module_of(typed_data(), sampler(("author", "writes", "paper"), "self", None)).data.y is None
    with pytest.raises(InputError, match="HeteroLinkPredictor does not run in a pipeline"):
        PipelineStrategy(stages=2, chunks=2, balance=[1, 1]).check(predictor_of(module), SimpleNamespace(world_size=2))
