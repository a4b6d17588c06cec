"""The moment between processing a message and committing its offset. Normally nothing happens
there; `kill_at_the_worst_moment.py` names a message in WORST_MOMENT, and kills the program at it.
"""

import os
import signal

import penstock


def worst_moment(message: penstock.Message) -> None:
    if (message.value or b"").decode() == os.environ.get("WORST_MOMENT"):
        print("now", flush=True)
        signal.pause()  # waits for the kill, so that its moment does not depend on chance
