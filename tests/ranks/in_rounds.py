"""Three rounds of an exchange, which must give the same results with every transport."""

import numpy as np

from hoptrain.engine.queue.message_slot import Written


def exchanged(own):
    """Return the messages received in three rounds, with unequal sizes; some messages are written directly into the send buffer."""

    def message(size, first, is_written):
        content = np.arange(first, first + size).astype(np.uint8)
        return Written(size, lambda out: np.copyto(out, content)) if is_written else content

    def sent(turn):
        sizes = [0 if part == own.rank else 7 * turn * (own.rank + 2 * part) for part in range(own.size)]
        return [message(size, 50 * own.rank + 9 * part, part % 2) for part, size in enumerate(sizes)]

    return [[part.tolist() for part in own.exchange(sent(turn))] for turn in range(3)]
