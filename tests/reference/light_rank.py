"""A rank without torch: ``light_rank.py ACTION [SIZE]``. Rank 0 of SIZE prints the coordinator's address; others read it from their environment."""

import ctypes
import os
import signal
import sys
import time

from hoptrain.trainers.watchdog.rank_agent import RankAgent, current, watched


def act(action):
    if action == "raise":
        raise RuntimeError("worker 3 failed at batch 7:\n  deep\nValueError: too deep")
    if action == "raise-lost":
        raise ConnectionResetError("a connection broke")
    if action.startswith("leave"):
        sys.exit(int(action[5:]))
    if action == "exit":
        os._exit(3)
    if action == "crash":
        ctypes.string_at(0)
    if action in ("KILL", "STOP", "TERM", "INT"):
        os.kill(os.getpid(), signal.Signals[f"SIG{action}"])
    if action == "hold":
        ctypes.PyDLL(None).sleep(100)  # holds the interpreter's lock
    if action != "finish":
        time.sleep(100)  # like a collective that never returns


def main():
    if sys.argv[2:]:
        agent = RankAgent(0, int(sys.argv[2]))
        agent.join(agent.address)
        print(agent.address, flush=True)
    with watched():
        if sys.argv[1] != "late":
            current().arrive()
        current().works_at(lambda: "epoch 2, step 31")
        sys.stdin.readline()
        act(sys.argv[1])


if __name__ == "__main__":
    main()
