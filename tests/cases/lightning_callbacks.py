"""Lightning's own callbacks for randomly drawn trainings."""

from pytorch_lightning.callbacks import (
    EMAWeightAveraging,
    GradientAccumulationScheduler,
    LambdaCallback,
    LearningRateMonitor,
    Timer,
    WeightAveraging,
)

EXTRAS = {
    "GradientAccumulationScheduler": lambda _: GradientAccumulationScheduler({0: 2, 1: 3, 2: 1}),
    "EMAWeightAveraging": lambda case: EMAWeightAveraging(decay=0.5, use_buffers=case["task"] != "events"),
    "WeightAveraging": lambda case: WeightAveraging(use_buffers=case["task"] != "events"),
    "LearningRateMonitor": lambda _: LearningRateMonitor(),
    "Timer": lambda _: Timer("00:01:00:00"),
    "LambdaCallback": lambda _: LambdaCallback(on_train_epoch_start=lambda trainer, _: setattr(trainer, "accumulate_grad_batches", 2)),
}
"""Lightning's callbacks other than checkpoints and stopping rules.

Missing are callbacks that plain Lightning does not resume exactly either (ModelPruning writes weights without masks, LearningRateFinder and
BatchSizeFinder search again), and BackboneFinetuning, which needs a ``backbone``.
"""


def with_extras(case, *names):
    """Add some of ``EXTRAS`` to a case, and remove the case's options that Lightning does not permit together with them."""
    averages = [name for name in names if "Averaging" in name][:1]  # at most one averaging callback
    setters = (
        [] if case["task"] == "pipeline" else [name for name in names if name in ("GradientAccumulationScheduler", "LambdaCallback")][:1]
    )
    others = [name for name in names if name in ("LearningRateMonitor", "Timer")]
    case["extras"] = [*averages, *setters, *others]
    case["swa"] = case["swa"] and not averages
    case["accumulate"] = 1 if setters else case["accumulate"]
    return case
