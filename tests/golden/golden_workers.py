"""A pool of sampler processes that many loaders share. The processes import this module, so it is small."""

PER_TASK = 1000
"""Maximum number of steps of a task."""


class Several:
    """Several tasks in one: step k is step ``k % PER_TASK`` of the task with index ``k // PER_TASK``."""

    def __init__(self, tasks):
        self.tasks = tasks

    def make_batch(self, epoch, step, allocate):
        return self.tasks[step // PER_TASK].make_batch(epoch, step % PER_TASK, allocate)


class Share:
    """A pool for one of the tasks of ``Several``, as that task's loader uses it."""

    def __init__(self, pool, number):
        self.pool, self.begin = pool, number * PER_TASK

    def run(self, epoch, steps):
        return self.pool.run(epoch, range(self.begin + steps.start, self.begin + steps.stop))
