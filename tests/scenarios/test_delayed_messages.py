"""A broker is killed while messages wait: each comes once, when it is due, and cancelled ones never
do."""

import time
from pathlib import Path

from tests.profile import scaled

import penstock

COUNT = scaled(test=300, verify=5_000, release=20_000)
HANG_S = 120.0
TOPIC = "reminders"


def test_kills_neither_lose_nor_repeat_delayed_messages(tmp_path: Path) -> None:
    due_ms: dict[int, int] = {}
    with penstock.Broker(data=tmp_path / "data") as broker:
        broker.create_topic(TOPIC, partitions=2, config={"penstock.delayed.messages": "true"})
        with penstock.Producer(broker.bootstrap_servers) as producer:
            began_ms = int(time.time() * 1000)
            for number in range(COUNT):
                # Some are due before the first kill, some while the broker is down, some later.
                delay_ms = 4_000 * number // COUNT
                due_ms[number] = began_ms + delay_ms
                headers = [("penstock-deliver-at", b"%d" % due_ms[number])]
                producer.send(TOPIC, b"%d" % number, headers=headers)
            producer.send(TOPIC, b"cancelled", delay_s=3600, delay_id="x")
            producer.send(TOPIC, b"last", delay_s=3600, delay_id="last")
            assert producer.cancel(TOPIC, "x") == "cancelled"
        broker.kill()
    with penstock.Broker(data=tmp_path / "data") as broker:
        _await_values(broker, COUNT // 2)
        broker.kill()
    with penstock.Broker(data=tmp_path / "data") as broker:
        _await_values(broker, COUNT)
        with penstock.Producer(broker.bootstrap_servers) as producer:
            assert producer.cancel(TOPIC, "x") == "cancelled"
            producer.send(TOPIC, b"last", delay_s=0.1, delay_id="last")
        messages = _await_values(broker, COUNT + 1)
        # One partition is read before the other: what was delivered last may be read in between.
        numbered = [message for message in messages if message.value != b"last"]
        assert len(numbered) == COUNT
        assert sorted(int(message.value or b"") for message in numbered) == list(range(COUNT))
        for message in numbered:
            assert message.timestamp_ms == due_ms[int(message.value or b"")]


def _await_values(broker: penstock.Broker, count: int) -> list[penstock.Message]:
    """The topic's records, from the beginning."""
    messages: list[penstock.Message] = []
    with penstock.Consumer(
        TOPIC, bootstrap_servers=broker.bootstrap_servers, from_beginning=True, timeout_s=HANG_S
    ) as consumer:
        for message in consumer:
            messages.append(message)
            if len(messages) >= count:
                break
    return messages
