"""The first failure of a rank ends all ranks, with its cause. Standard library only: a rank is watched before it has imported anything else.

A rank that fails leaves the others in a collective that cannot finish, and they learn of it late or never, by a broken connection, not by the
cause. So every rank has a small process beside it, its watch, which is there from its first second and still there after its last:

``launcher.py``  in the rank: ends it with torchrun.
``member.py``    in the rank: starts the watch, tells it how the rank fares and how it fails, ends the rank at its word.
``process.py``   the watch: looks at the rank (``sight.py``), tells the hub, ends its rank and says why.
``hub.py``       in the watch of rank 0, not in rank 0: hears all watches and decides which failure was the first.
``channel.py``   how they talk.
"""
