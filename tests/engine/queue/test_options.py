"""Options of the queue: invalid values are rejected, and options that are not given have defaults."""

from cases.mistakes import Mistake, each_of

from hoptrain.engine.queue.options import WorkerOptions

MISTAKES = {
    "no batch in advance": Mistake(
        lambda: WorkerOptions(prefetch_factor=0), value="prefetch_factor is 0", rule="at least 1", remedy="give 1 more"
    ),
    "a timeout of nothing": Mistake(lambda: WorkerOptions(timeout=0), value="timeout is 0", rule="at least 0.1", remedy="give 0.1 more"),
    "fewer restarts than none": Mistake(
        lambda: WorkerOptions(max_restarts=-1), value="-1", rule="max_restarts at least 0", remedy="give 0 more"
    ),
    "a missing folder": Mistake(
        lambda: WorkerOptions(buffer_dir="/no/such"),
        value="/no/such",
        rule="buffer_dir cannot hold queue's files",
        remedy="folder exists written",
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
