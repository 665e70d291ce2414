"""Train on several machines with Ray Train: ``python ray_train.py FOLDER WORKERS``. FOLDER on each machine has its partition of the data set.

A worker is a rank. Machines are counted by their first workers, as with any launcher, so there must be as many machines as partitions. This script is a
template: replace the data set, the sampler, the model, the accelerator and the folder that all machines can access by your own.
"""

import sys
from pathlib import Path

from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


def learn(config):
    """Train on one worker; Ray calls this function on each."""
    from hoptrain import NeighborSampler, NodeClassifier, NodeDataModule
    from hoptrain.trainers.callbacks.rank_watch import RankWatch
    from pytorch_lightning import Trainer, seed_everything
    from ray.train.lightning import RayDDPStrategy, RayLightningEnvironment, prepare_trainer

    seed_everything(1)
    data = NodeDataModule(
        config["dataset"],
        NeighborSampler([4, 3]),
        partitions=config["parts"],
        batch_size=32,
        num_workers=1,
        seed=1,
    )
    task = NodeClassifier(data.num_features, data.num_classes, num_layers=2, lr=0.003)
    trainer = Trainer(
        max_epochs=2,
        accelerator="cpu",
        strategy=RayDDPStrategy(),
        plugins=[RayLightningEnvironment()],
        use_distributed_sampler=False,  # hoptrain's loaders give each rank its own seeds
        callbacks=[RankWatch()],  # if a rank fails, all ranks end, and the cause is printed
        enable_progress_bar=False,
        logger=False,
        default_root_dir=config["folder"],
    )
    prepare_trainer(trainer).fit(task, data)
    trainer.save_checkpoint(Path(config["folder"]) / "last.ckpt", weights_only=True)


if __name__ == "__main__":
    parts, workers = sys.argv[1:]
    folder = str(Path("runs").absolute())  # a folder that all machines can access
    options = {"dataset": "digits-knn", "parts": str(Path(parts).absolute()), "folder": folder}
    run = RunConfig(storage_path=folder)
    TorchTrainer(
        learn, train_loop_config=options, scaling_config=ScalingConfig(num_workers=int(workers)), run_config=run
    ).fit()
