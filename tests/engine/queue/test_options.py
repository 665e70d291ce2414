"""The options of the queue: what cannot be is refused, what is not given stays at its default."""

from cases.mistakes import Mistake, each_of

from hoptrain.engine.queue.options import QueueOptions

MISTAKES = {
    "no batch in advance": Mistake(lambda: QueueOptions(prefetch=0), value="prefetch is 0", rule="at least 1", remedy="correct"),
    "a timeout of nothing": Mistake(
        lambda: QueueOptions(stall_timeout=0), value="stall_timeout is 0", rule="at least 0.1", remedy="correct"
    ),
    "fewer restarts than none": Mistake(
        lambda: QueueOptions(max_restarts=-1), value="-1", rule="max_restarts at least 0", remedy="correct"
    ),
    "a missing folder": Mistake(
        lambda: QueueOptions(slots_dir="/no/such"),
        value="/no/such",
        rule="slots_dir cannot hold queue's files",
        remedy="folder exists written",
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
