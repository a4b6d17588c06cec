"""At most once: commit, then process. A crash in between loses a message; none is processed twice.

For messages that are worthless when late or repeated: readings, pings, "is typing".
Run it with `python at_most_once.py BOOTSTRAP OUTPUT`.
"""

from by_hand import run
from worst_moment import worst_moment

import penstock


def main(bootstrap: str, output: str) -> None:
    with (
        penstock.Consumer(
            "payments",
            bootstrap_servers=bootstrap,
            group="at-most-once",
            from_beginning=True,
            auto_commit=False,
            timeout_s=5,
            config={"group.instance.id": "worker-1"},  # rejoins at once after a restart
        ) as consumer,
        open(output, "ab", buffering=0) as ledger,
    ):
        for message in consumer:
            consumer.commit()
            worst_moment(message)
            ledger.write((message.value or b"") + b"\n")


if __name__ == "__main__":
    run(main)
