"""Pipeline parallelism: a model is divided into stages, one per process, without losing edges.

There may be several replicas of the model, called copies, each divided into stages. A batch is divided by its *seeds* into chunks, each with its own
blocks. So no edge is lost, and the chunks' gradients add up to those of the whole batch. Each stage has the blocks of its own layers, so only activations
are sent.

With Lightning, ``trainer.strategy`` is a ``PipelineStrategy`` (see ``strategy.py``). Without Lightning, in processes that torch.distributed connects
(``torchrun``, or ``run_ranks`` on this machine)::

    plan = Plan(stages=2, data=1, chunks=5, schedule="1f1b", balance=(4, 4))  # rank r is stage r % stages of copy r // stages
    pipeline = Pipeline(model, plan, loss)   # all ranks receive rank 0's weights, then each keeps only its own layers'
    optimizer = torch.optim.Adam(model.parameters())
    for chunks in batches:                   # list[Chunk], at most plan.chunks; the same on every stage of a copy
        optimizer.zero_grad()                # gradients must be None or zero before a step
        step = pipeline.step(chunks)         # forward, backward, gradients summed over the copies
        optimizer.step()                     # step.loss, step.seconds, step.busy_s; pipeline.capacities.waste
    with pipeline.whole.united():            # on all stages: every rank's model temporarily has all weights
        torch.save(model.state_dict(), path)

* ``model`` implements the protocol ``PipelineModule``: ``num_layers``, ``layer(i, x, *inputs)``, ``shape(i)`` (shape of an input row of layer i) and
  ``modules_of(i)`` (names of the submodules that only layer i uses). For images, a row is an image.
* ``loss(output, target)`` returns a chunk's contribution to the batch's loss; the values of all chunks and copies are summed. If the batch's loss is a mean, a
  chunk's value is the sum over its rows, divided by the number of rows of the batch over all copies.
* ``Chunk(rows=..., inputs=..., x=..., target=..., seed=...)``: input rows of each layer and output rows of the last (L + 1 numbers; for images, all are
  the number of images), further inputs of each layer (L tuples; empty for images), the first layer's input, and the second argument of the loss.
* ``run_ranks(function, world_size, *arguments)`` starts processes with one thread each, and returns the results of ``function``.
* Idle fraction of a rank (bubble): ``1 - step.busy_s / step.seconds``. Fraction of sent rows that is padding: ``pipeline.capacities.waste``, 0 if all
  chunks have equally many rows.
* ``plan.balanced(seconds)`` balances stages by the layers' times, which ``layer_seconds(model, chunk, loss)`` measures.
* ``BatchNorm`` needs statistics of a whole batch, so it cannot be exact in chunks: ``Pipeline`` accepts it only if ``chunks`` and ``data`` are 1.
"""

from typing import Any

from hoptrain.trainers.models.batches import chunk_of
from hoptrain.trainers.models.layered import Chunk, PipelineModule, apply_layers
from hoptrain.trainers.pipeline.balance import layer_seconds
from hoptrain.trainers.pipeline.capacities import Capacities
from hoptrain.trainers.pipeline.launch import RankError, run_ranks
from hoptrain.trainers.pipeline.pipeline import Pipeline, StepResult
from hoptrain.trainers.pipeline.plan import Plan
from hoptrain.trainers.pipeline.seeds import ChunkedBatch, ChunkLoader, cut_by_index
from hoptrain.trainers.pipeline.stage import StageError

__all__ = [
    "Capacities",
    "Chunk",
    "ChunkLoader",
    "ChunkedBatch",
    "Pipeline",
    "PipelineModule",
    "PipelineStrategy",
    "Plan",
    "RankError",
    "StageError",
    "StepResult",
    "apply_layers",
    "chunk_of",
    "cut_by_index",
    "layer_seconds",
    "run_ranks",
]


def __getattr__(name: str) -> Any:
    if name == "PipelineStrategy":  # imported on first use, since Lightning takes seconds to import
        from hoptrain.trainers.pipeline.strategy import PipelineStrategy

        return PipelineStrategy
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
