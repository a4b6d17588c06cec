"""The search for a damaged batch: no poll waits for it, and it uses the consumer's settings."""

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Place
from tests.unit.client.conftest import Run
from tests.unit.client.scripted_broker import (
    Answer,
    Cluster,
    ReceivedRequest,
    ScriptedBroker,
    fetched,
)
from tests.unit.storage.engine.cases import claiming

from penstock.client.damaged_batches import DamagedBatches
from penstock.client.errors import ConsumeFailed
from penstock.protocol.api_keys import ApiKey
from penstock.testing.certificates import CertificateAuthority

DAMAGED = bytes(claiming(1, b"\xff" * 20))


class StuckConsumer:
    """A fake of librdkafka's consumer, as far as it reports its position: it never advances."""

    def __init__(self) -> None:
        self.offset = 0

    def assignment(self) -> list[Place]:
        return [Place("orders", 0)]

    def position(self, assigned: list[Place]) -> list[Place]:
        return [Place(tp.topic, tp.partition, self.offset) for tp in assigned]

    def get_watermark_offsets(self, tp: Place, cached: bool) -> tuple[int, int]:
        return 0, 9


def damaged_batches(address: object, consumer: StuckConsumer, **security: str) -> DamagedBatches:
    settings: dict[str, Any] = {
        "bootstrap.servers": str(address),
        "client.id": "billing",
        "group.id": "unused",
        "isolation.level": "read_committed",
        **{name.replace("_", "."): value for name, value in security.items()},
    }
    return DamagedBatches(cast("Consumer", consumer), settings, lambda tp: 0, has_group=False)


class BlockedBroker(ScriptedBroker):
    """A broker with a damaged batch, which it returns only when a test lets it."""

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls=tls)
        self.is_requested, self.may_respond = asyncio.Event(), asyncio.Event()
        Cluster(self).leaders["orders"] = [self.id]
        self.handlers[ApiKey.FETCH] = self._fetch

    async def _fetch(self, request: ReceivedRequest) -> Answer:
        self.is_requested.set()
        await self.may_respond.wait()
        return fetched(request, records=DAMAGED)


async def poll_until(damaged: DamagedBatches, event: asyncio.Event) -> None:
    """Poll on the broker's own event loop: a poll that waited for the broker would never return."""
    while not event.is_set():
        damaged.look_if_due()
        await asyncio.sleep(0)


def test_no_poll_waits_for_the_broker_and_a_later_one_raises(run: Run) -> None:
    async def scenario() -> None:
        async with BlockedBroker() as broker:
            damaged = damaged_batches(broker.address, StuckConsumer())
            await poll_until(damaged, broker.is_requested)
            broker.may_respond.set()
            with pytest.raises(ConsumeFailed, match="orders-0: the batch at offset 0 is damaged"):
                await poll_until(damaged, asyncio.Event())
            assert {request.client_id for request in broker.requests} == {"billing"}
            [fetch] = [item for item in broker.requests if item.api_key is ApiKey.FETCH]
            assert fetch.message.isolation_level == 1

    run(scenario)


def test_damage_is_no_error_for_a_consumer_past_it(run: Run) -> None:
    async def scenario() -> None:
        async with BlockedBroker() as broker:
            consumer = StuckConsumer()
            damaged = damaged_batches(broker.address, consumer)
            await poll_until(damaged, broker.is_requested)
            consumer.offset = 9
            broker.may_respond.set()
            await asyncio.to_thread(damaged.look, 30.0)
            damaged.look(0.0)
            assert broker.count(ApiKey.FETCH) == 1

    run(scenario)


def test_a_secured_consumer_looks_through_tls(run: Run, tmp_path: Path) -> None:
    authority = CertificateAuthority()
    files = authority.issue("broker").write(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)

    async def scenario() -> None:
        async with BlockedBroker(tls=context) as broker:
            broker.may_respond.set()
            trust = {"security_protocol": "SSL", "ssl_ca_location": str(files.authority)}
            damaged = damaged_batches(broker.address, StuckConsumer(), **trust)
            with pytest.raises(ConsumeFailed, match="orders-0: the batch at offset 0 is damaged"):
                await poll_until(damaged, asyncio.Event())

    run(scenario)


@pytest.mark.parametrize("protocol", ["sasl_plaintext", "SASL_SSL"])
def test_nothing_is_sent_for_a_login_that_only_librdkafka_has(protocol: str) -> None:
    """Without a mechanism, librdkafka's is Kerberos."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
        damaged = damaged_batches(f"{host}:{port}", StuckConsumer(), security_protocol=protocol)
        damaged.look(1.0)
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()
