"""The moment between the two halves of what a program does with a message. Usually it passes;
`kill_at_the_worst_moment.py` names a message in WORST_MOMENT, and kills the program there.
"""

import os
import signal

import penstock


def worst_moment(message: penstock.Message) -> None:
    if (message.value or b"").decode() == os.environ.get("WORST_MOMENT"):
        print("now", flush=True)
        signal.pause()  # for the kill to come; nothing in between is done by chance
