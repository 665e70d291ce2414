"""One start of sampler processes for many loaders. Imported by the processes too, so it is light."""

PER_TASK = 1000
"""Steps that a task has, at most."""


class Several:
    """Many tasks as one: step k is step ``k % PER_TASK`` of task ``k // PER_TASK``."""

    def __init__(self, tasks):
        self.tasks = tasks

    def make_batch(self, epoch, step, allocate):
        return self.tasks[step // PER_TASK].make_batch(epoch, step % PER_TASK, allocate)


class Share:
    """One task's part of a pool of ``Several``, for its loader."""

    def __init__(self, pool, number):
        self.pool, self.begin = pool, number * PER_TASK

    def run(self, epoch, steps):
        return self.pool.run(epoch, range(self.begin + steps.start, self.begin + steps.stop))
