"""A broker in its own process with healthy clients, which misbehaving clients must not disturb.

Invariant of every test that uses it: no healthy client sees an error or a long pause, no
acknowledged record is lost, and the broker logs no unexpected error.
"""

import os
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from tests.scenarios.raw_client import PATIENCE_S, RawClient

import penstock
from penstock.protocol.api_keys import ApiKey

MIB = 1024 * 1024
TOPIC = "healthy"
# How long the broker may work for others, without a break, while a client waits. In CPU time,
# because wall time depends on the load of the machine.
LONGEST_PAUSE_S = 2.0
_SEND_EVERY_S = 0.01
_FAILURE = re.compile(r"unexpectedly|unexpected failure|Traceback|and then:")


class WatchedBroker:
    def __init__(self, broker: penstock.Broker, healthy: "HealthyClients") -> None:
        self._broker = broker
        self.healthy = healthy
        self.servers = broker.bootstrap_servers
        self.create_topic = broker.create_topic
        self.logs = broker.logs
        self.data: Path = broker.data

    def connect(
        self, *, receive_buffer_bytes: int | None = None, source_host: str | None = None
    ) -> RawClient:
        return RawClient(
            self.servers, receive_buffer_bytes=receive_buffer_bytes, source_host=source_host
        )

    def check(self) -> None:
        """Checks that the clients were undisturbed until now, and make progress."""
        self.healthy.check()
        self.check_logs()

    def check_logs(self) -> None:
        logs = self.logs()
        match = _FAILURE.search(logs)
        assert match is None, logs[max(0, match.start() - 300) :][:6000]

    # -- resources of the process ----------------------------------------------------------

    def descriptor_count(self) -> int:
        return len(os.listdir(f"/proc/{self._broker.pid}/fd"))

    def wait_descriptors(self, at_most: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while (count := self.descriptor_count()) > at_most:
            assert time.monotonic() < deadline, f"{count} descriptors are open, not {at_most}"
            time.sleep(0.01)

    def resident_bytes(self) -> int:
        return self._status("VmRSS")

    @contextmanager
    def growing_less_than(self, limit_bytes: int) -> Iterator[None]:
        """Limits the peak memory, not only that at the end."""
        Path(f"/proc/{self._broker.pid}/clear_refs").write_text("5")  # resets the peak
        before = self.resident_bytes()
        yield
        grown = self._status("VmHWM") - before
        assert grown < limit_bytes, f"{grown / MIB:.1f} MiB more than before"

    def _status(self, name: str) -> int:
        status = Path(f"/proc/{self._broker.pid}/status").read_text()
        match = re.search(rf"^{name}:\s+(\d+) kB", status, re.MULTILINE)
        assert match is not None
        return int(match[1]) * 1024


@contextmanager
def watched_broker(config: Mapping[str, object]) -> Iterator[WatchedBroker]:
    with penstock.Broker(config=config) as broker:
        broker.create_topic(TOPIC)
        healthy = HealthyClients(broker.bootstrap_servers, broker.pid)
        watched = WatchedBroker(broker, healthy)
        try:
            yield watched
        finally:
            healthy.end()
        healthy.check_all_read()
        watched.check_logs()


class HealthyClients:
    """A librdkafka producer and consumer, and one connection in constant use.

    librdkafka reconnects but reports errors; the single connection must never be lost.
    """

    def __init__(self, servers: str, broker_pid: int) -> None:
        self._broker_pid = broker_pid
        self._errors: list[str] = []
        self._acknowledged: list[int] = []
        self._read: list[int] = []
        self._answers = 0
        self._longest_pause_s = 0.0
        self._stopping = threading.Event()
        settings = {"bootstrap.servers": servers, "error_cb": self._note_error}
        self._producer = Producer({**settings, "enable.idempotence": True, "linger.ms": 0})
        self._consumer = Consumer(
            {**settings, "group.id": "none", "enable.auto.commit": False, "fetch.wait.max.ms": 50}
        )
        self._consumer.assign([TopicPartition(TOPIC, 0, 0)])
        self._steady = RawClient(servers)
        work = (self._produce, self._consume, self._ask)
        self._threads = [
            threading.Thread(target=self._guard, args=(function,)) for function in work
        ]
        for thread in self._threads:
            thread.start()

    def check(self) -> None:
        """Waits until every client has made progress since this call."""
        marks = self._now
        deadline = time.monotonic() + PATIENCE_S
        while not self._errors and any(
            now <= mark for now, mark in zip(self._now, marks, strict=True)
        ):
            assert time.monotonic() < deadline, f"from {marks} only to {self._now}"
            time.sleep(0.002)
        assert not self._errors, self._errors
        assert self._longest_pause_s < LONGEST_PAUSE_S, f"a pause of {self._longest_pause_s:.1f} s"

    def end(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        del self._producer  # otherwise it would report a lost broker
        self._steady.socket.close()

    def check_all_read(self) -> None:
        assert not self._errors, self._errors
        assert self._acknowledged == list(range(len(self._acknowledged)))
        assert self._read == self._acknowledged

    @property
    def longest_pause_s(self) -> float:
        return self._longest_pause_s

    @property
    def _now(self) -> tuple[int, int, int]:
        return len(self._acknowledged), len(self._read), self._answers

    def _guard(self, work: object) -> None:
        assert callable(work)
        try:
            work()
        except Exception as error:  # raised by `check`, in the test's own thread
            self._errors.append(repr(error))

    def _note_error(self, error: KafkaError) -> None:
        self._errors.append(str(error))

    def _produce(self) -> None:
        number = 0
        while not self._stopping.wait(_SEND_EVERY_S):
            self._producer.produce(TOPIC, str(number).encode(), on_delivery=self._note_delivery)
            number += 1
            self._producer.poll(0)
        self._producer.flush(PATIENCE_S)

    def _note_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._note_error(error)
        else:
            self._acknowledged.append(int(message.value() or b""))

    def _consume(self) -> None:
        """Waits until the producer has ended and all numbers have arrived, or none arrives any
        more."""
        producing, silent_since_s = self._threads[0], time.monotonic()
        while producing.is_alive() or len(self._read) < len(self._acknowledged):
            message = self._consumer.poll(0.05)
            if message is not None:
                self._note_message(message)
                silent_since_s = time.monotonic()
            assert time.monotonic() < silent_since_s + PATIENCE_S, "nothing comes"
        self._consumer.close()

    def _note_message(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            self._note_error(error)
        else:
            self._read.append(int(message.value() or b""))

    def _ask(self) -> None:
        while not self._stopping.wait(_SEND_EVERY_S):
            began_s = self._worked_s()
            self._steady.ask(ApiKey.METADATA, 12, topics=[{"name": TOPIC}])
            self._longest_pause_s = max(self._longest_pause_s, self._worked_s() - began_s)
            self._answers += 1

    def _worked_s(self) -> float:
        """The CPU time of the broker's event loop."""
        times = Path(f"/proc/{self._broker_pid}/task/{self._broker_pid}/schedstat").read_text()
        return int(times.split()[0]) / 1e9
