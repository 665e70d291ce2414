"""What comes in some rounds, the same by every way to exchange."""

import numpy as np

from hoptrain.engine.queue.message_slot import Written


def exchanged(own):
    """What comes in three rounds, of messages of unequal sizes, some of them written where they are sent from."""

    def message(size, first, is_written):
        content = np.arange(first, first + size).astype(np.uint8)
        return Written(size, lambda out: np.copyto(out, content)) if is_written else content

    def sent(turn):
        sizes = [0 if part == own.rank else 7 * turn * (own.rank + 2 * part) for part in range(own.size)]
        return [message(size, 50 * own.rank + 9 * part, part % 2) for part, size in enumerate(sizes)]

    return [[part.tolist() for part in own.exchange(sent(turn))] for turn in range(3)]
