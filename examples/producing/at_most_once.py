"""At most once: send, and never again. What is lost stays lost; nothing is stored twice.

For records that are worthless when late: readings, pings, "is typing". With acks=0 the producer
would not even learn what was lost. Run it with `python at_most_once.py BOOTSTRAP [TOPIC]`.
"""

from by_hand import Report, run, send_all

import penstock


def send_payments(bootstrap: str, topic: str) -> Report:
    with penstock.Producer(bootstrap, acks=1, retries=0, linger_ms=0) as producer:
        return send_all(producer, topic)


if __name__ == "__main__":
    run(send_payments)
