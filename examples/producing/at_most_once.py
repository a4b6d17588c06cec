"""At most once: send, and never again. What is lost stays lost; nothing is stored twice.

For records that are worthless when late: readings, pings, "is typing". With acks=0 the producer
would not even learn what was lost. Progress is noted before sending, so that a restart never
repeats a payment. Run it with `python at_most_once.py BOOTSTRAP [TOPIC [PROGRESS_FILE]]`.
"""

from by_hand import Progress, Report, run, send_each

import penstock


def send_payments(bootstrap: str, topic: str, progress: Progress) -> Report:
    with penstock.Producer(bootstrap, acks=1, retries=0, linger_ms=0) as producer:
        return send_each(producer, topic, progress, note_first=True)


if __name__ == "__main__":
    run(send_payments)
