"""A table of invalid command lines with their messages: exit code 2, one line, no traceback."""

import os
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from cases.mistakes import exits
from reference.hetero_data import hetero_data

from hoptrain.engine import Dataset
from hoptrain.trainers.cli import main

CONFIGS = Path(__file__).parents[2] / "configs"
QUICKSTART = (CONFIGS / "quickstart.yaml").read_text()
CLASS = "class_path: hoptrain.samplers.NeighborSampler"
HETERO = {"class_path": "hoptrain.samplers.HeteroSampler", "init_args": {"fanouts": [3, 3], "seed_type": "paper"}}

# Command lines (Q, H and L stand for a --config of the tasks nodes, hetero and hetero_links) and messages (`...` stands for any words).
TABLE = """
fit                                         | data.dataset, data.sampler must be given: name a configuration, such as --config quickstart, ...
validate                                    | data.dataset, data.sampler must be given: name a configuration, ...
fit --data.dataset digits-knn               | data.sampler must be given: name a configuration, such as --config own_data (own_hetero for several node types)...
fit --config                                | ...expected one argument; 'hoptrain fit --help' lists the options
fit --config nowhere.yaml                   | the configuration nowhere.yaml cannot be read (No such file or directory): name a file, ...
fit --config .                              | the configuration . cannot be read (Is a directory): name a file, ...
fit --config broken.yaml                    | the configuration broken.yaml is not valid YAML (...line 2): fix the file
fit --config binary.yaml                    | the configuration binary.yaml is not valid YAML (it is not text): fix the file
fit --config aliases.yaml                   | the configuration aliases.yaml is not valid YAML (it has more than 20,000 values, line 5): fix the file
fit --config brackets.yaml                  | the configuration brackets.yaml is not valid YAML (it nests more than 100 levels, line 1): fix the file
fit --config fifo.yaml                      | the configuration fifo.yaml cannot be read (it is no regular file): name a file, ...
fit Q --data aliases.yaml                   | data: Unable to load config 'aliases.yaml' - it has more than 20,000 values in "<unicode string>", line ...
fit Q --model brackets.yaml                 | model: Unable to load config 'brackets.yaml' - it nests more than 100 levels in ...
fit Q --trainer.default_root_dir d\udcff    | trainer.default_root_dir is d\\udcff: its name must be UTF-8, since TensorBoard writes it; name another folder
fit --config list.yaml                      | the configuration list.yaml has no options: ...
fit --config empty.yaml                     | the configuration empty.yaml has no options: ...
fit --config option.yaml                    | there is no option data.batchsize: did you mean data.batch_size?
fit --config group.yaml                     | there is no option trainr.max_epochs: did you mean trainer.max_epochs?
fit --config type.yaml                      | data.batch_size is many: it must be an integer
fit --config class.yaml                     | data.sampler is hoptrain.samplers.NeighbourSampler (...): it must be a Sampler; did you mean NeighborSampler...?
fit --config module.yaml                    | data.sampler is nomodule.S (No module named 'nomodule'): ...; add the folder of the module to PYTHONPATH, ...
fit --config other.yaml                     | data.sampler is hoptrain.engine.Graph: it must be a Sampler; ...
fit --config fanouts.yaml                   | data.sampler: fanouts is abc: it must be a list of integers or numbers
fit --config task.yaml                      | task 'nodess' is unknown: did you mean nodes?
fit Q --task nodess                         | task 'nodess' is unknown: did you mean nodes?
fit Q --task                                | task '' is unknown: choose one of nodes, adaptive, ..., sign, sse, full_batch
fit Q --data.batchsize 5                    | there is no option --data.batchsize: did you mean --data.batch_size?
fit Q --model.hidden 5                      | there is no option --model.hidden: did you mean --model.hidden_channels?
fit Q --batch_size 5                        | there is no option --batch_size: did you mean --data.batch_size?
fit Q --trainer.max_epoch 5                 | there is no option --trainer.max_epoch: did you mean --trainer.max_epochs?
fit Q --nothing                             | there is no option --nothing: 'hoptrain fit --help' lists the options
fit Q extra                                 | there is no option extra: 'hoptrain fit --help' lists the options
fit Q --untrained                           | there is no option --untrained: ...
fit Q --trainer.max_epochs abc              | trainer.max_epochs is abc: it must be an integer or null
fit Q --trainer.max_epochs -3               | `max_epochs` must be a non-negative integer or -1. You passed in -3.
fit Q --trainer.devices abc                 | trainer: `devices` selected with `CPUAccelerator` should be an int > 0.
fit Q --trainer.devices 9999 --trainer.accelerator cpu | trainer.devices is 9999: each rank is a process that computes, and this machine has ...
fit Q --trainer.devices 2 --trainer.accelerator cpu --data.batch_size 5000 | 2 ranks for 1 batches...
fit Q --trainer.accelerator quantum         | trainer: You selected an invalid accelerator name: `accelerator='quantum'`...
fit Q --trainer.strategy nothing            | trainer: You selected an invalid strategy name: `strategy='nothing'`...
fit Q --trainer.strategy.stages 2           | there is no option trainer.strategy.stages: trainer.strategy must be a string or a Strategy; ...
fit Q --trainer.precision 12                | trainer.precision is 12: it must be one of 64, 32, 16, ... or null...
fit Q --trainer.precision transformer-engine | trainer: ...
fit Q --trainer.precision 16-true           | trainer.precision is 16-true: it must be one of 32-true, bf16-mixed, 16-mixed; choose one
fit Q --trainer.precision 16-mixed          | trainer.precision is 16-mixed: torch supports it only on GPUs, and none can be used here; give bf16-mixed
fit Q --task adaptive                       | AdaptiveNodeClassifier with NeighborSampler: it learns the scores of an ASGCNSampler; use an ASGCNSampler
fit Q --trainer.accumulate_grad_batches 0   | trainer.accumulate_grad_batches is 0: it must be at least 1; give 1 or more, or leave it out
fit Q --trainer.gradient_clip_val -1        | trainer.gradient_clip_val is -1: it must be at least 0; give 0 or more, or leave it out
fit Q --trainer.val_check_interval 0        | trainer.val_check_interval is 0: it must be a share of an epoch or a number of batches; give more than 0
fit Q --trainer.val_check_interval 100      | `val_check_interval` (100) must be less than or equal to the number of the training batches (9). ...
fit Q --trainer.limit_test_batches 0.5      | trainer.limit_test_batches is 0.5: the share is less than one batch, since test has 1; give a number ...
fit Q --trainer.overfit_batches 0.3         | trainer.overfit_batches is 0.3: the share is less than one batch, since validation has 1; give a number ...
fit Q --trainer.barebones true              | trainer.barebones is on: it disables the logs, checkpoints and callbacks that this command needs; ...
fit Q --model.lr_scheduler StepLR           | model.lr_scheduler: step_size must be given: ...as --model.lr_scheduler.step_size VALUE
fit Q --trainer.callbacks+=EarlyStoping     | trainer.callbacks is EarlyStoping: it must be a list of Callback ...; did you mean EarlyStopping?
fit Q --trainer.logger WandbLogger          | pytorch_lightning.loggers.WandbLogger cannot be imported (Requirement 'wandb>=...pip install ...
fit Q --trainer.default_root_dir a_file/x   | trainer.default_root_dir a_file/x cannot be written (Not a directory): name a folder that you may write to
fit Q --checkpoint.dirpath a_file           | checkpoint.dirpath .../a_file cannot be written (Not a directory): name a folder that you may write to
fit Q --checkpoint.mode maxx                | `mode` can be min, max but got maxx
fit Q --seed_everything -1                  | seed_everything is -1: it must be in [0, 2**32); give for instance 1
fit Q --seed_everything abc                 | seed_everything is abc: it must be true or false or an integer
fit Q --optimizer Adam                      | there is no option --optimizer: did you mean --model.optimizer?
fit Q --model.optimizer Adamm               | model.optimizer is Adamm: it must be a class or a function or null; did you mean Adam ...
fit Q --model.loss torch.nn.CrossEntropyLos | model.loss is torch.nn.CrossEntropyLos (...): ...CrossEntropyLoss...
fit Q --model.lr_scheduler ReduceLROnPlateau | model.lr_scheduler is ReduceLROnPlateau: several classes have this name; give one by its path: ...
fit Q --model.metric f2                     | metric is 'f2' and the labels are classes: it must be one of acc, macro_f1, auc, or a metric ...
fit Q --model.lr -1                         | lr is -1.0: it must be at least 0; give for instance 0.001
fit Q --model.weight_decay -1               | weight_decay is -1.0: it must be at least 0; give for instance 0.001
fit Q --model.dropout 1.5                   | dropout is 1.5: the share to drop must be in [0, 1); give for instance 0.5
fit Q --model.arch sagee                    | arch is 'sagee': it must be one of sage, gat, gcn, gin, gine, gatv2, transformer, nnconv; did you mean sage?
fit Q --model.arch gat --model.heads 0      | heads is 0 and out_heads 1: both must be at least 1; give 1 or more
fit Q --model.hidden_channels 0             | a model of 2 layers from 64 over 0 to 10 channels: all must be at least 1
fit Q --model.num_layers 3                  | model.num_layers cannot be given: it is set from the number of hops of the sampler, ...fanouts; ...
fit Q --model.in_channels 3                 | model.in_channels cannot be given: it is set from the features of the data set; leave it out
fit Q --data.batch_size 0                   | batch_size is 0: it must be an integer of 1 or more; give 1 or more
fit Q --data.batch_size 1.5                 | data.batch_size is 1.5: it must be an integer
fit Q --data.sampler.init_args.fanouts abc  | data.sampler: fanouts is abc: it must be a list of integers or numbers
fit Q --data.sampler.init_args.fanouts [5,0] | fanout 0 in [5, 0]: a hop takes ...
fit Q --data.sampler.init_args.fanouts [5,1.5] | fanout 1.5 in [5, 1.5]: a hop takes ... or a share of them such as 0.5, above 0 and at most 1.0
fit Q --data.sampler.init_args.fanout [5]   | data.sampler: there is no option fanout: did you mean fanouts?
fit Q --data.sampler.init_args.sizes [5]    | data.sampler: there is no option sizes: the options are expand, fanouts, replace, weighted
fit Q --data.sampler NeighbourSampler       | data.sampler is NeighbourSampler: it must be a Sampler; did you mean NeighborSampler or LaborSampler?
fit Q --data.num_workers -1                 | num_workers is -1: must be at least 0; give 0 to sample in this process
fit Q --data.num_workers 0 --data.worker_options.prefetch_factor 3 | worker_options.prefetch_factor is 3 with num_workers 0: ...
fit Q --data.in_memory true                 | in_memory with 2 workers: workers read the data set's files; set num_workers=0, or leave in_memory out
fit Q --data.feature_cache lots                    | feature_cache is lots: it must be bytes with their unit, or auto; give for instance 8GiB
fit Q --data.feature_cache 0.5                     | feature_cache is 0.5: it must be bytes with their unit, or auto; give for instance 8GiB
fit Q --data.partitions nowhere             | nowhere holds no partitioned data set: name a folder that 'hoptrain data partition' wrote
fit Q --data.prefetch_steps 8                    | prefetch_steps is 8 without feature_cache, whose option it is; give feature_cache, or leave it out
fit Q --data.features random                | data.features is random: it must be one of stored, degrees, walks
fit Q --data.dataset corra                  | 'corra' is not a known data set, file or folder: did you mean cora?
fit Q --data.dataset bare                   | bare has no features: a model needs some; compute them from the graph with features: walks (or degrees)
fit Q --data.dataset unlabelled             | unlabelled has no labels: node classification needs labels; task: links needs none, or choose another data set
fit Q --data.dataset images.npz             | images.npz holds labelled samples without edges ...: task: images reads it ...
fit Q --data.dataset mixed                  | mixed is a heterogeneous graph (several node types), not ...: task: hetero trains on it (--config own_hetero, ...)
fit Q --data.dataset mixed.npz              | mixed.npz: meta has node_types None and target None: node_types must be the number of nodes of each type, ...
fit H                                       | nodes of type subject have no features: give them some, or set embeddings: true, which learns a vector ...
fit H --data.dataset digits-knn             | digits-knn has one node type: task: nodes trains on it; ...
fit H --data.splits 20                      | splits is '20': mixed has no split train_20 (it has test, train, val); ... --data.splits null ... own_hetero
fit --config CONFIGS/acm_rgcn.yaml --data.dataset mixed | splits is '60': mixed has no split train_60 (...); give --data.splits null ...
fit --config CONFIGS/acm_han.yaml --data.dataset mixed | splits is '60': mixed has no split train_60 (...); give --data.splits null ...
fit --task hetero --data.dataset mixed      | data.sampler must be given: name a configuration, such as --config own_hetero, or ...
fit --task links --data.dataset digits-knn  | data.sampler must be given: name a configuration, such as --config own_links, or ...
fit H --data.sampler.seed_type author       | seed_type is 'author', that of mixed 'paper': give the sampler the data's
fit H --model.arch rgcm                     | model.arch is rgcm: it must be one of rgcn, gat, gatv2, transformer, gin, graphconv, hgt, han; did you ...
fit H --model.arch hgt --model.heads 3      | hidden_channels 64 cannot be divided among 3 heads: give a multiple of heads
fit H --model.arch gat --model.num_bases 3  | num_bases is 3 with arch gat: it must be at least 0, and 0 for other layers than rgcn; ...
fit H --data.partitions parts               | there is no option --data.partitions: ...
fit H --model.seed_type author              | model.seed_type cannot be given: it is set from data.seed_type; give data.seed_type
fit H --model.embeddings true --trainer.gradient_clip_val 1 | gradient_clip_val with embeddings: torch cannot clip their sparse gradients; ...
fit H --task hetero_links --model.arch rgcn | the sampler is HeteroSampler(...): it must be a HeteroLinkSampler without edges, ...
fit L --model.embeddings true --data.sampler.init_args.num_negatives 0 | the sampler's num_negatives is 0: each link needs at least one negative; ...
fit L --data.split temporal                     | author:writes:paper: split is temporal, but edges have no times: ...
fit L --data.sampler.init_args.relation [author,wrote,paper] | relation author:wrote:paper is not in the graph: it has author:writes:paper, ...
fit L --data.sampler.init_args.relation writes | data.sampler: relation is writes: it must be a list of 3 strings or a list of lists of 3 strings
fit L --data.sampler.init_args.relation [[author,writes,paper],[paper,by]] | data.sampler: relation is [[...: it must be a list of 3 strings or a list of ...
fit L --data.sampler.init_args.relation [[author,writes,paper],[paper,to,author]] | relation paper:to:author is not in the graph: it has ...
fit L --data.split predefined                    | author:writes:paper: split is predefined, but mixed has no edge_splits except train: ...
fit L --data.split predefined --data.val_ratio 0.2 | split is predefined with val_ratio 0.2 and test_ratio 0.1: ...
fit L --data.leaked_edges drop              | leaked_edges is drop and split random: such a split holds out all copies of a link; leave leaked_edges out
fit --config CONFIGS/wikipedia_tgn.yaml --data.num_neighbors 0 --data.events whole.npz | num_neighbors is 0: a node needs at least its last event; give 1 ...
fit Q --data.dataset events.npz             | events.npz holds a temporal graph ..., for TemporalSampler
fit Q --data.dataset kg.npz                 | kg.npz holds a knowledge graph (...), not a homogeneous graph (...): task: kg reads it with data.triples
fit --task kg --data.triples kg.npz    | kg: triple (0, 0, 1) is in train and in test: ...; drop one of them (1 in all)
fit Q --data.dataset missing.npz            | missing.npz cannot be read (...): ...
fit Q --data.dataset cora --data.root a_file | root a_file is not a folder: root must be the folder of the data sets; create it or name another
fit Q --data.scale 0.5                      | scale is 0.5: only synthetic: data sets can be scaled, not digits-knn; ...
fit Q --data.worker_options.buffer_dir nowhere        | buffer_dir nowhere cannot hold the queue's files: ...
fit Q --timeline nowhere/x.json             | the timeline nowhere/x.json cannot be written (No such file or directory): ...
fit Q --ckpt_path nofile.ckpt               | checkpoint nofile.ckpt does not exist: give the path of a .ckpt file, or last
fit Q --ckpt_path best                      | checkpoint best does not exist: ...
fit Q --ckpt_path garbage.ckpt              | checkpoint garbage.ckpt is damaged, or has objects other than tensors and plain values: ...
fit Q --ckpt_path text.ckpt                 | checkpoint text.ckpt is damaged (it has another format): ...
fit Q --ckpt_path cut.ckpt                  | checkpoint cut.ckpt is damaged (it is truncated, ...): give another .ckpt file ...
fit Q --ckpt_path bare                      | checkpoint bare is no regular file: give the path of a .ckpt file, or last
fit Q --ckpt_path fifo.ckpt                 | checkpoint fifo.ckpt is no regular file: ...
fit Q --ckpt_path loop.ckpt                 | checkpoint loop.ckpt is no regular file: ...
fit Q --ckpt_path empty.ckpt                | checkpoint empty.ckpt is damaged (it is empty): ...
fit Q --ckpt_path foreign.ckpt              | foreign.ckpt is a torch file, but no checkpoint of Lightning: ...
test Q                                      | test without a checkpoint: give either --ckpt_path (a file, or last), or --untrained ...
validate Q                                  | validate without a checkpoint: give either --ckpt_path ...
predict Q                                   | predict without a checkpoint: give either --ckpt_path ...
test Q --untrained --ckpt_path last         | test with ckpt_path last and untrained: give either --ckpt_path (a file, or last), or --untrained ...
test Q --ckpt_path last                     | --ckpt_path is last, but runs has no last.ckpt: give the path of a .ckpt file
predict --ckpt_path nowhere.ckpt            | --ckpt_path is nowhere.ckpt: it must be a file; give the path of an existing checkpoint, ...
test Q --ckpt_path other_model.ckpt         | the checkpoint's model has hidden_channels 64, this one 128: ...
test Q --ckpt_path other_task.ckpt          | the checkpoint is of another kind of model: only one of the two has ...; ...
predict Q --untrained --out made.txt        | the suffix of the predictions' file is '.txt': it must be one of .npy, .csv, .parquet...
predict Q --untrained --out a_file/x.csv    | --out .../a_file cannot be written (Not a directory): name a folder that you may write to
predict Q --untrained --nodes nowhere.npy   | --nodes nowhere.npy cannot be read (No such file or directory...): give a .npy, .csv, .txt or .parquet file of ids
predict Q --untrained --data.predict_ids [3] | there is no option --data.predict_ids: hoptrain predict --nodes FILE names the nodes ...
predict Q --untrained --nodes empty.ckpt    | empty.ckpt is empty: ...
predict Q --untrained --data.dataset unlabelled | unlabelled has no labels: ...
fit L --data.eval_sampler NeighborSampler --data.eval_sampler.fanouts [3] | eval_sampler with HeteroLinkDataModule: it is for tasks on nodes, ...
fit Q --data.eval_sampler NeighborSampler --data.eval_sampler.fanouts [3] | eval_sampler has 1 hops, sampler 2: a model over blocks needs the same number ...
predict Q --timeline x.json --untrained     | there is no option --timeline: ...
fit --config CONFIGS/digits_vig.yaml --data.shift -1   | shift is -1: the number of pixels must be at least 0; give 0 or more
fit --config CONFIGS/digits_vig.yaml --model.patch 3   | patch is 3: ...
fit --config CONFIGS/digits_vig.yaml --model.lr -1     | lr is -1.0: it must be at least 0; give for instance 0.001
fit --config CONFIGS/proteins_gin.yaml --data.fold 11  | fold is 11: it must be one of 10 folds; give a number from 0 to 9
fit --config CONFIGS/pubmed_sign.yaml --model.num_hops 2 | model.num_hops cannot be given: it is set from data.num_hops; give data.num_hops
fitt                                        | 'fitt' is unknown: it must be one of fit, ...; did you mean fit?
--nothing                                   | the following arguments are required: COMMAND; see 'hoptrain --help'
data infoo cora                             | 'infoo' is unknown: it must be one of list, info, import, convert, partition; did you mean info?
data info                                   | the following arguments are required: name; see 'hoptrain data info --help'
data info corra                             | 'corra' is not a known data set, file or folder: did you mean cora?
data info digits-knn --feature-cache 0.5           | feature_cache is 0.5: it must be bytes with their unit, or auto; give for instance 8GiB
data info digits-knn --fanouts 3,2          | --fanouts is 3,2, but --feature-cache is not given: it is for the prediction of reads; ...
data info digits-knn --feature-cache 8GiB --batch-size 0 | batch_size is 0: it must be an integer of 1 or more; give 1 or more
data info digits-knn --scale abc            | argument --scale: invalid float value: 'abc'; see 'hoptrain data info --help'
data partition digits-knn parts --parts 0   | parts is 0: a graph of 1,797 nodes can have 1 to 1797 partitions; give a number in this range
data partition mixed parts --parts 2        | mixed is a heterogeneous graph: only homogeneous graphs can be partitioned; give each machine a copy of ...
data list --rot x                           | unrecognized arguments: --rot x; did you mean --root or --out?
data convert digits-knn a_file/x            | a_file/x cannot be written (...): free disk space, or name a folder that you can write to
data convert digits-knn y --missing mean    | --missing is mean, but digits-knn is not a folder of tables: it is for tables that are read; leave it out
data convert digits-knn .                   | . exists: dataset folders are not overwritten; remove it or name another folder
bench samplr                                | 'samplr' is no benchmark: it must be one of ...; did you mean sampler...?
bench scale --out redit --config redit.yaml | 'redit' is not a known data set, file or folder: did you mean reddit?
bench sampler --rounds abc                  | argument --rounds: invalid int value: 'abc'; see 'hoptrain bench sampler --help'
bench sampler --nothing                     | unrecognized arguments: --nothing; see 'hoptrain bench sampler --help'
"""
ROWS = [[cell.strip() for cell in line.split("|", 1)] for line in TABLE.strip().splitlines()]


def checkpoint(**content):
    return {"pytorch-lightning_version": "2.6.0", "epoch": 0, "global_step": 0, "loops": {}, "state_dict": {}, **content}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, dataset):
    """Return a folder with the files that the table names."""
    path = tmp_path_factory.mktemp("wrong")
    for name, old, new in (
        ("option", "batch_size:", "batchsize:"),
        ("group", "trainer:", "trainr:"),
        ("type", "batch_size: 128", "batch_size: many"),
        ("class", CLASS, "class_path: hoptrain.samplers.NeighbourSampler"),
        ("module", CLASS, "class_path: nomodule.S"),
        ("other", CLASS, "class_path: hoptrain.engine.Graph"),
        ("fanouts", "[10, 10]", "abc"),
        ("task", "seed_everything: 1", "task: nodess"),
    ):
        assert old in QUICKSTART
        (path / f"{name}.yaml").write_text(QUICKSTART.replace(old, new))
    (path / "broken.yaml").write_text("data: [1, 2\nmodel: }")
    (path / "binary.yaml").write_bytes(bytes(range(256)))
    (path / "list.yaml").write_text("- 1\n- 2\n")
    repeated = (f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in zip("abcdefghi", "bcdefghij", strict=True))
    (path / "aliases.yaml").write_text("a: &a [1, 2]\n" + "".join(repeated) + "data: *j")
    (path / "brackets.yaml").write_text("data: " + "[" * 20_000)
    os.mkfifo(path / "fifo.yaml")
    for name in ("empty.yaml", "empty.ckpt", "a_file"):
        (path / name).write_bytes(b"")
    (path / "garbage.ckpt").write_bytes(b"garbage")
    (path / "text.ckpt").write_text("hello")
    torch.save({"a": 1}, path / "foreign.ckpt")
    (path / "cut.ckpt").write_bytes((path / "foreign.ckpt").read_bytes()[:-30])
    (path / "loop.ckpt").symlink_to("loop.ckpt")
    os.mkfifo(path / "fifo.ckpt")
    torch.save(checkpoint(hyper_parameters={"arch": "sage", "hidden_channels": 64}), path / "other_model.ckpt")
    torch.save(checkpoint(state_dict={"head.weight": torch.ones(2)}), path / "other_task.ckpt")
    Dataset(name="bare", graph=dataset.graph, y=dataset.y, splits=dataset.splits, num_classes=3).save(path / "bare")
    Dataset(name="unlabelled", graph=dataset.graph, x=dataset.x).save(path / "unlabelled")
    np.savez(path / "images.npz", train_x=np.zeros(3), train_y=np.zeros(3))
    hetero_data().save(path / "mixed")
    (path / "mixed.yaml").write_text(
        yaml.safe_dump({"task": "hetero", "data": {"dataset": "mixed", "num_workers": 0, "sampler": HETERO}, "trainer": {"max_epochs": 1}})
    )
    links = {"sampler": {"class_path": "HeteroSampler", "init_args": {"fanouts": [3, 3]}}, "relation": ["author", "writes", "paper"]}
    link_sampler = {"class_path": "hoptrain.samplers.HeteroLinkSampler", "init_args": links}
    of_links = {
        "task": "hetero_links",
        "data": {"dataset": "mixed", "num_workers": 0, "sampler": link_sampler},
        "trainer": {"max_epochs": 1},
    }
    (path / "links.yaml").write_text(yaml.safe_dump(of_links))
    (path / "redit.yaml").write_text("all: {dataset: redit}\ngrids:\n  - {system: [hoptrain]}\n")
    np.savez(path / "mixed.npz", rel_a__b_indptr=np.zeros(3), node_type=np.zeros(3))
    np.savez(path / "whole.npz", src=np.arange(30) % 4, dst=4 + np.arange(30) % 3, t=np.arange(30))
    np.savez(path / "kg.npz", train=np.array([[0, 0, 1]]), valid=np.array([[1, 0, 0]]), test=np.array([[0, 0, 1]]))
    np.savez(path / "events.npz", src=np.zeros(3), dst=np.zeros(3), t=np.zeros(3))
    return path


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize(("line", "answer"), ROWS, ids=[row[0] for row in ROWS])
def test_a_wrong_call(folder, monkeypatch, capsys, line, answer):
    monkeypatch.chdir(folder)
    for letter, config in (("Q", f"{CONFIGS}/quickstart.yaml"), ("H", "mixed.yaml"), ("L", "links.yaml")):
        line = line.replace(f" {letter}", f" --config {config}")
    arguments = line.replace("CONFIGS", str(CONFIGS))
    code = main(shlex.split(arguments))
    error = capsys.readouterr().err
    assert code == 2, error
    assert re.fullmatch(f"hoptrain: {re.escape(answer).replace(re.escape('...'), '.*')}\n", error), error


@pytest.mark.parametrize(
    ("line", "answer"), [("--nothing", "unrecognized arguments: --nothing"), ("extra", "unrecognized arguments: extra")]
)
def test_a_wrong_call_of_the_doctor(capsys, line, answer):
    """A wrong call of ``hoptrain doctor`` is one line with exit code 2; it has its own parser, since it must work if nothing else does."""
    with exits(2):
        main(["doctor", line])
    assert capsys.readouterr().err == f"hoptrain: {answer}; see 'hoptrain doctor --help'\n"
