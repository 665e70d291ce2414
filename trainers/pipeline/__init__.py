"""Models divided into stages, of which each process has one: a pipeline that loses no edge.

A batch is cut along its *seeds* into chunks, each with its own blocks. So nothing is cut that belongs together, the gradients of the chunks add up
to those of the whole batch, and no process rebuilds a graph: the blocks of a stage's layers wait in it, only activations travel.

With Lightning: ``trainer.strategy`` is a ``PipelineStrategy`` (see ``strategy.py``). Without it, in processes that torch.distributed has
joined (``torchrun``, or ``run_ranks`` for this machine)::

    plan = Plan(stages=2, data=1, chunks=5, schedule="1f1b", balance=(4, 4))  # rank r is stage r % stages of copy r // stages
    pipeline = Pipeline(model, plan, loss)   # all take rank 0's weights, then each rank's model keeps its own layers' only
    optimizer = torch.optim.Adam(model.parameters())
    for chunks in batches:                   # list[Chunk], at most plan.chunks; the same ones on every stage of a copy
        optimizer.zero_grad()                # gradients have to be None or zero before a step
        step = pipeline.step(chunks)         # forward, backward, gradients added up over the copies
        optimizer.step()                     # step.loss, step.seconds, step.busy_s; pipeline.capacities.waste
    with pipeline.whole.united():            # all stages at once: every rank's model has all weights meanwhile, in the same names
        torch.save(model.state_dict(), path)

* ``model`` is an ``nn.Module`` with ``num_layers``, ``layer(i, x, *inputs)``, ``shape(i)`` (of one row of what enters layer i; rows come first) and
  ``modules_of(i)`` (names of the submodules that layer i alone uses): the protocol ``PipelineModule``. For images a row is an image.
* ``loss(output, target)`` is a chunk's share of the batch's loss; the shares of all chunks and copies add up. Where the batch's loss is a mean, a
  chunk's is the sum over its rows, divided by the number of all the batch's rows (over all copies).
* ``Chunk(rows=..., inputs=..., x=..., target=..., seed=...)``: rows that enter each layer and leave the last (L + 1 numbers; for images all are the
  number of images), what each layer takes beside the activation (L tuples; for images empty), the first layer's input, and what the loss needs.
* ``run_ranks(function, world_size, *arguments)`` starts processes with one thread each and returns what ``function`` returned in each.
* Bubble: ``1 - step.busy_s / step.seconds`` of a rank; padding: ``pipeline.capacities.waste``, 0 where all chunks have the same rows.
* ``plan.balanced(seconds)`` cuts by the layers' times, ``layer_seconds(model, chunk, loss)`` measures them.
* ``BatchNorm`` cannot be exact in chunks, since its statistics are those of a whole batch: ``Pipeline`` refuses it, unless ``chunks`` and ``data`` are 1.
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
    if name == "PipelineStrategy":  # the processes of a study need no Lightning, whose import takes seconds
        from hoptrain.trainers.pipeline.strategy import PipelineStrategy

        return PipelineStrategy
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
