"""Exactly once: send again until the broker answers, with numbers by which it knows what it has.

The default of `penstock.Producer`. It holds for one producer while it runs: one that is started
again has forgotten what it sent, and needs a transaction to go on exactly where it was
(`examples/delivery/exactly_once.py`). Run it with `python exactly_once.py BOOTSTRAP [TOPIC]`.
"""

from by_hand import Report, run, send_all

import penstock


def send_payments(bootstrap: str, topic: str) -> Report:
    with penstock.Producer(
        bootstrap, acks="all", idempotent=True, retry_interval_ms=50, linger_ms=0
    ) as producer:
        return send_all(producer, topic)


if __name__ == "__main__":
    run(send_payments)
