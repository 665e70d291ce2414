"""Link prediction on heterogeneous graphs: runs learn, full-neighbour evaluation equals a slow one, training batches, input errors."""

import operator
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml
from cases.mistakes import Mistake, each_of, refused
from pytorch_lightning import Trainer
from reference.hetero_data import hetero_data

from hoptrain.engine import HeteroDataset, HeteroGraph
from hoptrain.samplers import HeteroLinkSampler, HeteroSampler, NeighborSampler
from hoptrain.trainers import HeteroLinkDataModule, HeteroLinkPredictor
from hoptrain.trainers.commands.lightning import run
from hoptrain.trainers.pipeline import PipelineStrategy

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's warnings about a small run
BUYS, BOUGHT, KNOWS = ("user", "buys", "item"), ("item", "bought", "user"), ("user", "knows", "user")


def shop():
    """Return users who buy items of their own group of four and know users of their group."""
    rng = np.random.default_rng(1)
    user, item = rng.integers(0, 60, 900), rng.integers(0, 10, 900)
    item = user % 4 + 4 * item
    friend = (rng.integers(0, 15, 300) * 4 + rng.integers(0, 60, 300) % 4) % 60
    knows = np.arange(300) % 60, friend - friend % 4 + np.arange(300) % 60 % 4
    graph = HeteroGraph.from_edges({"user": 60, "item": 40}, {BUYS: (user, item), BOUGHT: (item, user), KNOWS: knows})
    return HeteroDataset(name="shop", graph=graph, seed_type="item", x={"user": np.eye(4, dtype=np.float32)[np.arange(60) % 4]})


def sampler(relation=BUYS, exclude="reverse", reverse=BOUGHT, **options):
    return HeteroLinkSampler(HeteroSampler([4, 4]), relation, exclude=exclude, reverse_relation=reverse, **options)


def module_of(data=None, link_sampler=None, **options):
    return HeteroLinkDataModule(data or shop(), link_sampler or sampler(), **{"batch_size": 64, "num_workers": 0, "seed": 2} | options)


def predictor_of(module, **options):
    sizes = {name: getattr(module, name) for name in ("num_nodes", "relations", "link_relation")}
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


def both(**options):
    return sampler([BUYS, KNOWS], "reverse", [BOUGHT, None], **options)


def pairs_of(columns):
    return set(zip(columns.indices.tolist(), columns.destinations().tolist(), strict=True))


def vectors_by_type(module, predictor):
    """Return the embeddings of all users and all items, from batches with all neighbours."""
    numbers = {kind: np.arange(number) for kind, number in module.data.graph.num_nodes.items()}
    whole = HeteroSampler([-1, -1]).sample(module.data.graph, module.data.graph.numbered(numbers)).to("cpu")
    x = {name: torch.from_numpy(rows)[whole.node_ids[name].long()] for name, rows in module.data.x.items()}
    with torch.no_grad():
        return predictor.model(x, whole.node_ids, whole.blocks)


def ranks_of_a_slow_program(links, scores, known):
    """Return filtered ranks of each link's destination and source, computed pair by pair."""
    ranks, (num_sources, num_destinations) = [], (len(scores), len(scores[0]))
    for u, v in links:
        for own in (
            [scores[u][w] for w in range(num_destinations) if w == v or (u, w) not in known],
            [scores[w][v] for w in range(num_sources) if w == u or (w, v) not in known],
        ):
            above, at_least = (sum(compare(each, scores[u][v]) for each in own) for compare in (operator.gt, operator.ge))
            ranks.append(1 + (above + at_least - 1) / 2)
    return ranks


@pytest.mark.parametrize("relations", [[BUYS], [KNOWS], [BUYS, KNOWS]])
@pytest.mark.parametrize("arch", ["rgcn", "han"])
def test_ranks_among_all_are_those_of_a_slow_program(relations, arch):
    link_sampler = {BUYS: sampler(), KNOWS: sampler(KNOWS, "self", None)}[relations[0]] if len(relations) == 1 else both()
    module = module_of(link_sampler=link_sampler, eval_negatives="all")
    predictor = predictor_of(module, metric="mrr", decoder="distmult", arch=arch, heads=2).eval()
    logged = scores_after_a_step(module, predictor)
    vectors = vectors_by_type(module, predictor.eval())
    decoders = [predictor.decoder] if len(relations) == 1 else predictor.decoder
    ranks, links = [], module.held_out["test"].links
    for relation, decoder, ((begin, first), _) in zip(relations, decoders, module.ends, strict=True):
        scores = ((vectors[relation[0]] * decoder.weights.detach()) @ vectors[relation[2]].T).tolist()
        own = links[:, (links[0] >= begin) & (links[0] < first)] - np.array([[begin], [first]])
        ranks.append(ranks_of_a_slow_program(own.T.tolist(), scores, pairs_of(shop().graph.relations[relation])))
        if len(relations) > 1:
            assert logged[f"test_mrr/{':'.join(relation)}"] == pytest.approx(np.mean(1 / np.array(ranks[-1])), rel=1e-3)
    assert all(ranks)
    assert logged["test_mrr"] == pytest.approx(np.mean(1 / np.concatenate(ranks)), rel=1e-3)


def test_pairs_of_several_relations_are_scored_by_their_own_decoders():
    module = module_of(link_sampler=both())
    predictor = predictor_of(module, decoder="distmult").eval()
    logged = scores_after_a_step(module, predictor)
    vectors = vectors_by_type(module, predictor.eval())
    held, scores, own = module.held_out["test"], {True: [], False: []}, {}
    for relation, decoder, ((begin, first), _) in zip((BUYS, KNOWS), predictor.decoder, module.ends, strict=True):
        of_relation = {}
        for is_link, pairs in ((True, held.links), (False, held.others)):
            local = pairs[:, (pairs[0] >= begin) & (pairs[0] < first)] - np.array([[begin], [first]])
            of_relation[is_link] = [
                float((vectors[relation[0]][u] * decoder.weights.detach() * vectors[relation[2]][v]).sum()) for u, v in local.T
            ]
            scores[is_link] += of_relation[is_link]
        own[relation] = of_relation
    for name, found in [("test_auc", scores), *((f"test_auc/{':'.join(relation)}", found) for relation, found in own.items())]:
        won = [(link > other) + (link == other) / 2 for link in found[True] for other in found[False]]
        assert logged[name] == pytest.approx(np.mean(won), abs=1e-3)


def test_a_batch_of_several_relations_trains_all_decoders():
    module = module_of(link_sampler=both(num_negatives=2))
    predictor = predictor_of(module, decoder="distmult")
    assert predictor.hparams["link_relation"] == ["user:buys:item", "user:knows:user"]
    before = [decoder.weights.detach().clone() for decoder in predictor.decoder]
    scores_after_a_step(module, predictor)
    assert all((old != decoder.weights).any() for old, decoder in zip(before, predictor.decoder, strict=True))
    batch = next(iter(module.make_loader(0, 1, 2))).to("cpu")
    seen = []
    predictor.loss_of = lambda scores, labels: seen.append(scores)
    predictor.eval().training_step(batch, 0)
    vectors = predictor(batch)
    for pair, number, metric in zip(batch.extra["pairs"].T.tolist(), batch.extra["relations"].tolist(), seen[0], strict=True):
        kind, _, other = (BUYS, KNOWS)[number]
        assert predictor.decoder[number](vectors[kind][pair[0]], vectors[other][pair[1]]).item() == pytest.approx(metric.item(), rel=1e-4)


def test_uniform_others_are_of_the_relations_types_and_no_links():
    module, sizes = module_of(link_sampler=both()), shop().graph.num_nodes
    for relation, ((begin, first), (_, end)) in zip((BUYS, KNOWS), module.ends, strict=True):
        assert (first - begin, end - first) == (sizes[relation[0]], sizes[relation[2]])
        known = pairs_of(shop().graph.relations[relation])
        for held in module.held_out.values():
            links, others = (own[:, (own[0] >= begin) & (own[0] < first)] - np.array([[begin], [first]]) for own in held)
            assert links.shape == others.shape
            assert others.min() >= 0
            assert (others.max(1) < [first - begin, end - first]).all()
            assert set(map(tuple, links.T.tolist())) <= known
            assert not set(map(tuple, others.T.tolist())) & known


@pytest.mark.parametrize("metric", ["auc", "ap", "hits@10", "recall@3"])
@pytest.mark.parametrize("loss", ["bce", "bpr"])
def test_scores_and_losses(metric, loss):
    module = module_of(
        eval_negatives="all" if metric == "recall@3" else "uniform", link_sampler=sampler(num_negatives=3, negatives="filtered")
    )
    found = scores_after_a_step(module, predictor_of(module, metric=metric, loss=loss, hard_negatives=2, decoder="mlp"))
    assert 0 <= found[f"test_{metric}"] <= 1


@pytest.mark.parametrize("relations", [[BUYS], [KNOWS], [BUYS, KNOWS]])
def test_held_out_edges_are_neither_yielded_nor_used_for_messages(relations):
    module = module_of(link_sampler={BUYS: sampler(), KNOWS: sampler(KNOWS, "self", None)}[relations[0]] if len(relations) == 1 else both())
    met = {relation: set() for relation in relations}
    for batch in module.train_dataloader():
        for place, relation in enumerate(relations):
            own = batch.extra["labels"] > 0
            pairs = batch.extra["pairs"][:, own & (batch.extra["relations"] == place) if len(relations) > 1 else own]
            met[relation] |= set(
                zip(batch.node_ids[relation[0]][pairs[0]].tolist(), batch.node_ids[relation[2]][pairs[1]].tolist(), strict=True)
            )
    left = module.data.graph.relations
    for relation, ((begin, first), _) in zip(relations, module.ends, strict=True):
        of_all = np.concatenate([own.links for own in module.held_out.values()], axis=1)
        held = {(u - begin, v - first) for u, v in of_all.T.tolist() if begin <= u < first}
        assert held
        assert met[relation] == pairs_of(left[relation]) == pairs_of(shop().graph.relations[relation]) - held
    if BUYS in relations:
        assert {(u, v) for v, u in pairs_of(left[BOUGHT])} == met[BUYS]


def test_given_splits_are_taken_as_they_are():
    data = shop()
    ids = np.random.default_rng(3).permutation(900)
    given = dict(zip(("val", "test", "train"), np.split(ids, [50, 150]), strict=True))
    data = replace(data, edge_splits={BUYS: given})
    module = module_of(data, leaked_edges="drop")
    columns = data.graph.relations[BUYS]
    ends = {name: np.stack([columns.indices, columns.destinations()])[:, columns.csc_positions(own)] for name, own in given.items()}
    for name in ("val", "test"):
        assert (module.held_out[name].links - np.array([[0], [60]])).tolist() == ends[name].tolist()
    held = set(map(tuple, np.concatenate([ends["val"], ends["test"]], axis=1).T.tolist()))
    assert pairs_of(module.data.graph.relations[BUYS]) == set(map(tuple, ends["train"].T.tolist())) - held
    assert 0 <= scores_after_a_step(module, predictor_of(module))["test_auc"] <= 1
    assert module_of(data, split="random").held_out["val"].links.shape != (2, 50)
    with refused("user:buys:item", "shop training edges copies held", "data.leaked_edges drop keep"):
        module_of(data)
    with refused("user:knows:user", "split predefined shop edge_splits", "add links random"):
        module_of(data, both(), leaked_edges="drop")


@pytest.mark.promise
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
    assert "the vectors of all nodes of type user, then of type item, in order: " in capsys.readouterr().out


def test_labels_are_left_out():
    assert hetero_data().y is not None
    assert module_of(hetero_data(), sampler(("author", "writes", "paper"), "self", None)).data.y is None


def fit(given=None, to=None, **options):
    """Fit a model built for ``shop`` on the data ``to``."""
    module = module_of()
    trainer_of(**given or {}).fit(predictor_of(module, **options), module if to is None else to)


def run_in_a_pipeline():
    PipelineStrategy(stages=2, chunks=2, balance=[1, 1]).check(predictor_of(module_of()), SimpleNamespace(world_size=2))


MISTAKES = {
    "reversed edges that stay": Mistake(
        lambda: module_of(link_sampler=sampler(exclude="self", reverse=None)),
        value="item:bought:user",
        rule="user:buys:item reversed leak",
        remedy="exclude reverse reverse_relation 'bought'",
    ),
    **{
        f"a {name}": Mistake(
            lambda wrong=wrong: module_of(link_sampler=wrong), value=value, rule="sampler must", remedy="HeteroLinkSampler edges"
        )
        for name, wrong, value in (
            ("sampler of nodes", HeteroSampler([2], "item"), "HeteroSampler(fanouts=[2]"),
            ("sampler of plain graphs", NeighborSampler([2]), "NeighborSampler(fanouts=[2]"),
            ("sampler of links with edges", sampler(edges=[0]), "HeteroLinkSampler(HeteroSampler"),
        )
    },
    "a split by times without any": Mistake(
        lambda: module_of(split="temporal"), value="user:buys:item", rule="split temporal edges no times", remedy="HeteroGraph random"
    ),
    "a type without features": Mistake(
        lambda: predictor_of(module_of(), embeddings=False), value="type item", rule="no features", remedy="embeddings: true 40"
    ),
    "a score of the best beside some": Mistake(
        lambda: fit(metric="recall@3"), value="recall@3", rule="eval_negatives not all metric ranks destinations", remedy="all"
    ),
    "more hard negatives than there are": Mistake(
        lambda: fit(hard_negatives=2), value="hard_negatives is 2", rule="num_negatives 1", remedy="raise num_negatives"
    ),
    "clipping of sparse gradients": Mistake(
        lambda: fit({"gradient_clip_val": 1.0}), value="gradient_clip_val", rule="embeddings sparse", remedy="leave out"
    ),
    "data of another relation than the model's": Mistake(
        lambda: fit(to=module_of(link_sampler=sampler(KNOWS, "self", None))),
        value="user:buys:item",
        rule="model link_relation shop user:knows:user",
        remedy="data sampler",
    ),
    "data without a graph": Mistake(
        lambda: fit(to=[0]), value="HeteroLinkPredictor", rule="needs graph", remedy="trainer.fit(model, datamodule=HeteroLinkDataModule("
    ),
    "a graph as data": Mistake(lambda: module_of(shop().graph), value="HeteroGraph", rule="data", remedy="name HeteroDataset object"),
    "a pipeline": Mistake(run_in_a_pipeline, value="HeteroLinkPredictor", rule="pipeline", remedy="NodeClassifier chunks"),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
