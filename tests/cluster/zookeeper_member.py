"""A member of a group in ZooKeeper as a process: writes a line for every message it has processed.

`python zookeeper_member.py ZOOKEEPER GROUP TOPIC JOURNAL`. A line is the time on this machine's
clock, partition, offset and value; SIGTERM closes the member in order. JOURNAL.expired has the
times at which it noticed that a session was over, as on a machine that is too slow.
"""

import signal
import sys
import threading
import time

import penstock

SESSION_S = 3.0


def main(zookeeper: str, group: str, topic: str, journal: str) -> None:
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    with (
        open(journal, "a", buffering=1) as lines,
        open(f"{journal}.expired", "a", buffering=1) as expired,
        penstock.ZooKeeperConsumer(
            topic,
            zookeeper=zookeeper,
            group=group,
            from_beginning=True,
            auto_commit_interval_s=1.0,
            session_timeout_s=SESSION_S,
            rebalance_max_retries=120,  # the machine may be slow
            rebalance_backoff_s=0.5,
        ) as consumer,
    ):
        sessions = 1
        while not stopping.is_set():
            if (opened := consumer.statistics().sessions) > sessions:
                sessions = opened
                expired.write(f"{time.monotonic()}\n")
            for message in consumer.poll_batch(1, 0.2):
                value = (message.value or b"").decode()
                lines.write(f"{time.monotonic()} {message.partition} {message.offset} {value}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
