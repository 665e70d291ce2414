"""Whether a loader that samples in this process may have its next batch made by a thread, while the consumer has this one."""

from __future__ import annotations

from hoptrain.samplers.loader.epochs import threads_for

_KNOWN = ("hoptrain", "torch", "torch_geometric", "dgl")
_ASKED = ("sampler", "batch_sampler", "node_sampler", "link_sampler", "neg_sampling", "negative_sampler", "exclude")
"""Where loaders and samplers keep those that they ask."""


def runs_ahead(*asked: object) -> bool:
    """Whether a thread is to make the next batch, by default: it has a core, and asking these a step early changes nothing."""
    return cores_are_free() and is_known(*asked)


def cores_are_free() -> bool:
    """Whether a training leaves cores alone: it computes on a GPU, or by fewer threads of torch's than there are cores for it.

    Else a thread takes from the training what it gives: the threads of one operation wait for the last of them.
    """
    import torch

    is_on_gpu: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return is_on_gpu or torch.get_num_threads() < threads_for(None, 0, "cpu")


def is_known(*objects: object) -> bool:
    """Whether asking these, and those that they ask, a step early changes nothing.

    Their classes are those of the libraries, and they draw by torch's own generator, which starts at the batch's address. Of a user's class, function
    or generator nobody knows what else it reads.
    """
    for each in objects:
        if type(each).__module__.partition(".")[0] not in _KNOWN or getattr(each, "generator", None) is not None:
            return False
        asked = [getattr(each, name, None) for name in _ASKED]
        if not is_known(*(other for other in asked if other is not None and not isinstance(other, str))):
            return False
    return True
