"""Failure detection for ranks: the first failure of a rank ends all ranks, and every rank reports its cause.

Without it, a failed rank leaves the others in a collective that cannot finish, which they notice late (by a broken connection) or never. So each rank
has a watchdog, a small process that starts with the rank and ends after it. This package uses the standard library only, so that a watchdog starts before
its rank has imported any other package.

``launcher.py``       in the rank: ends the rank when torchrun has ended.
``rank_agent.py``     in the rank: starts the watchdog, reports progress and failures to it, and ends the rank at its request.
``process.py``        the watchdog: observes the rank (``process_probe.py``), reports to the coordinator, ends the rank and prints why.
``coordinator.py``    in the watchdog of rank 0: collects the reports of all watchdogs and decides which failure was the first.
``server.py``         in the watchdog of rank 0: the connections of the coordinator to all watchdogs.
``channel.py``        messages between rank, watchdog and coordinator.
"""
