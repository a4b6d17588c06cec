"""At least once: send again until the broker answers. A lost answer stores a record twice.

The default of older clients, and of any client with acks=1. Readers must cope with duplicates, for
example by the record's key. Progress is noted after the answer, so that a restart never skips a
payment. Run it with `python at_least_once.py BOOTSTRAP [TOPIC [PROGRESS_FILE]]`.
"""

from by_hand import Progress, Report, run, send_each

import penstock


def send_payments(bootstrap: str, topic: str, progress: Progress) -> Report:
    with penstock.Producer(
        bootstrap, acks="all", idempotent=False, retries=100, retry_interval_ms=50, linger_ms=0
    ) as producer:
        return send_each(producer, topic, progress, note_first=False)


if __name__ == "__main__":
    run(send_payments)
