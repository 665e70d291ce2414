"""Predicts the seconds of an epoch on machines that are not there, of those that are and the bytes that are counted.

A step takes what it takes where all ranks are on one machine, and the gradients' exchange; rows and samples travel ahead of the steps, beside them. While a
step computes they have the network alone, and cost nothing; while gradients go, both have half of it, and the step waits for what was sent beside
them. Where the network never rests a step takes the time in which it takes all that a machine sends. Gradients go round in a ring of all ranks, of which
one link leaves each machine, and whose messages have heads. What it leaves out: heads of rows, the time on the way, links that others use, messages that
stand in a queue behind others, and gradients that go out while the next step computes.
"""

from __future__ import annotations

OF_MESSAGE = 420
"""Overhead in bytes of a message of gloo's ring all-reduce, with headers and acknowledgements. Measured on network interfaces with 2, 4 and 8 ranks."""


def gradients_sent(gradient_bytes: int, ranks: int) -> float:
    """Bytes that a machine sends for the gradients of a step; a rank sends two messages to a link for each of the others, there and back."""
    return 2 * (ranks - 1) / ranks * gradient_bytes + 4 * (ranks - 1) * OF_MESSAGE


def predict(alone_s: float, *, sent: float, gradients: float, mbit: float) -> float:
    """Seconds of a step on several machines.

    Args:
        alone_s: seconds of a step with as many ranks on one machine.
        sent: bytes that a machine sends for rows and samples of a step.
        gradients: bytes that it sends for its gradients.
        mbit: megabits a second that it can send.
    """
    rate = mbit * 1e6 / 8
    rows_s, gradients_s = sent / rate, gradients / rate
    with_gradients = gradients_s / (alone_s + gradients_s)  # the share of rows that travels beside them
    return max(alone_s + gradients_s + with_gradients * rows_s, rows_s + gradients_s)
