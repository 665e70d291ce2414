"""What goes wrong, in two kinds: the caller's mistake and a worker's failure."""


class InputError(ValueError):
    """A mistake that the user can mend. The message is one line: the value, the rule, the remedy. The command line exits with 2."""


class WorkerError(RuntimeError):
    """A sampler process failed, died or went silent. The message names the worker, the batch and what is known."""
