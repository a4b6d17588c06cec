"""At least once: process, then commit. A crash in between repeats a message; none is lost.

The usual choice if processing a message twice does no harm or is detected later. Run it with
`python at_least_once.py BOOTSTRAP OUTPUT`.
"""

from by_hand import run
from worst_moment import worst_moment

import penstock


def main(bootstrap: str, output: str) -> None:
    with (
        penstock.Consumer(
            "payments",
            bootstrap_servers=bootstrap,
            group="at-least-once",
            from_beginning=True,
            auto_commit=False,
            timeout_s=5,
            config={"group.instance.id": "worker-1"},  # rejoins at once after a restart
        ) as consumer,
        open(output, "ab", buffering=0) as ledger,
    ):
        for message in consumer:
            ledger.write((message.value or b"") + b"\n")
            worst_moment(message)
            consumer.commit()


if __name__ == "__main__":
    run(main)
