"""Prediction of a training step's time on several machines, from the step on one machine and the counted bytes.

* A step takes the time of a step with all ranks on one machine, and the time of the gradients' all-reduce.
* Rows and samples are sent ahead of the steps that use them. While a step computes, they have the network for themselves and cost nothing. During the
  all-reduce, gradients and rows get half of the network each, and the step waits for the rows that are sent in this time.
* If the network is always busy, a step takes the time to send all bytes of a machine.
* The all-reduce is a ring over all ranks; one of its links leaves each machine, and its messages have headers.

The prediction ignores headers of rows, network latency, other users of the network, queueing of messages, and the overlap of gradients with the next step.
"""

from __future__ import annotations

OF_MESSAGE = 420
"""Overhead in bytes per message of gloo's ring all-reduce: headers and acknowledgements, as measured on network interfaces with 2, 4 and 8 ranks."""


def gradients_sent(gradient_bytes: int, ranks: int) -> float:
    """Return the bytes that a machine sends for the gradients of a step: a rank sends four messages for each other rank."""
    return 2 * (ranks - 1) / ranks * gradient_bytes + 4 * (ranks - 1) * OF_MESSAGE


def predict(alone_s: float, *, sent: float, gradients: float, mbit: float) -> float:
    """Return the predicted seconds of a step on several machines.

    Args:
        alone_s: seconds of a step with as many ranks on one machine.
        sent: bytes that a machine sends for rows and samples of a step.
        gradients: bytes that a machine sends for the gradients of a step.
        mbit: megabits a second that a machine can send.
    """
    rate = mbit * 1e6 / 8
    rows_s, gradients_s = sent / rate, gradients / rate
    with_gradients = gradients_s / (alone_s + gradients_s)  # share of the rows that is sent during the all-reduce
    return max(alone_s + gradients_s + with_gradients * rows_s, rows_s + gradients_s)
