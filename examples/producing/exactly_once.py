"""Exactly once: send again until the broker answers, with numbers by which it knows what it has.

The default of `penstock.Producer`. It holds for one producer while it runs: one that is killed and
started again has new numbers, so that the payment that it was sending may be stored twice. To go on
exactly where it was, it needs a transaction: `examples/delivery/exactly_once.py`.
Run it with `python exactly_once.py BOOTSTRAP [TOPIC [PROGRESS_FILE]]`.
"""

from by_hand import Progress, Report, run, send_each

import penstock


def send_payments(bootstrap: str, topic: str, progress: Progress) -> Report:
    with penstock.Producer(
        bootstrap, acks="all", idempotent=True, retry_interval_ms=50, linger_ms=0
    ) as producer:
        return send_each(producer, topic, progress, note_first=False)


if __name__ == "__main__":
    run(send_payments)
