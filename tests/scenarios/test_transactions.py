"""Transactions on a real broker: atomic, fenced, with offsets, and prepared across a restart."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app
from penstock.client.cluster import ClusterClient
from penstock.client.data_calls import LATEST, IsolationLevel
from penstock.client.errors import ProducerFenced, RefusedByBroker
from penstock.client.raw_transaction import RawTransaction
from penstock.client.transaction_values import PreparedState
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.protocol.batch import stamp_producer
from penstock.protocol.records import Record, build_batch

pytestmark = pytest.mark.xdist_group("transactions")

QUIET_S = 1.0


@pytest.fixture(scope="module", name="broker")
def _broker() -> Iterator[penstock.Broker]:
    with penstock.Broker() as broker:
        for topic in ("orders", "invoices", "ledger"):
            broker.create_topic(topic, partitions=2)
        yield broker


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 60))


def read(broker: penstock.Broker, topic: str, expected: int) -> list[bytes]:
    """All committed values; waits for `expected` of them, and a while for more."""
    with penstock.Consumer(
        topic,
        bootstrap_servers=broker.bootstrap_servers,
        from_beginning=True,
        isolation="read_committed",
        timeout_s=180.0 if expected else QUIET_S,
    ) as consumer:
        messages = [next(consumer) for _ in range(expected)]
        messages += consumer.poll_batch(100, QUIET_S)
        return [message.value or b"" for message in messages]


def batch(*values: bytes) -> bytearray:
    return build_batch(
        [
            Record(offset=number, timestamp_ms=1_700_000_000_000, key=None, value=value)
            for number, value in enumerate(values)
        ]
    )


def test_read_committed_sees_a_whole_transaction_or_nothing(broker: penstock.Broker) -> None:
    with penstock.TransactionalProducer(
        broker.bootstrap_servers, transactional_id="atomic"
    ) as producer:
        with producer.transaction():
            for number in range(10):
                producer.send("orders", f"kept {number}", partition=number % 2)
            producer.send("invoices", "kept")
        with pytest.raises(ZeroDivisionError):
            fail_in_transaction(producer)
        with producer.transaction():
            producer.send("invoices", "kept too")
    kept = [f"kept {number}".encode() for number in range(10)]
    assert sorted(read(broker, "orders", 10)) == kept
    assert sorted(read(broker, "invoices", 2)) == [b"kept", b"kept too"]


def fail_in_transaction(producer: penstock.TransactionalProducer) -> None:
    with producer.transaction():
        producer.send("orders", "dropped", partition=0)
        producer.send("invoices", "dropped")
        raise ZeroDivisionError


def test_a_zombie_is_fenced_and_its_open_transaction_aborted(broker: penstock.Broker) -> None:
    broker.create_topic("fenced", partitions=1)
    zombie = penstock.TransactionalProducer(broker.bootstrap_servers, transactional_id="twice")
    zombie.begin()
    zombie.send("fenced", "of the zombie")
    zombie.flush(180)
    with penstock.TransactionalProducer(
        broker.bootstrap_servers, transactional_id="twice"
    ) as successor:
        with pytest.raises(ProducerFenced):
            zombie.commit()
        with successor.transaction():
            successor.send("fenced", "of the successor")
    zombie.close(1)
    assert read(broker, "fenced", 1) == [b"of the successor"]


def test_offsets_are_committed_with_the_transaction(broker: penstock.Broker) -> None:
    broker.create_topic("in", partitions=1)
    broker.create_topic("out", partitions=1)
    servers = broker.bootstrap_servers
    with penstock.Producer(servers) as plain:
        for number in range(6):
            plain.send("in", str(number))
    with penstock.TransactionalProducer(servers, transactional_id="copy") as producer:
        copy_three(producer, servers, abort=False)
        copy_three(producer, servers, abort=True)
        copy_three(producer, servers, abort=False)
    assert read(broker, "out", 6) == [str(number).encode() for number in range(6)]


def copy_three(producer: penstock.TransactionalProducer, servers: str, *, abort: bool) -> None:
    with penstock.Consumer(
        "in", bootstrap_servers=servers, group="copiers", from_beginning=True, auto_commit=False
    ) as consumer:
        producer.begin()
        for _ in range(3):
            producer.send("out", next(consumer).value)
        producer.send_offsets(consumer)
        producer.abort() if abort else producer.commit()


@pytest.mark.parametrize("commit", [True, False])
def test_a_prepared_transaction_survives_its_producer_and_its_broker(
    tmp_path: Path, commit: bool
) -> None:
    """The same decision may come twice, the opposite one is rejected."""
    broker = penstock.Broker(data=tmp_path).start()
    try:
        broker.create_topic("t", partitions=2)
        names = TopicPartition("t", 0), TopicPartition("t", 1)

        async def prepare() -> PreparedState:
            async with ClusterClient(broker.bootstrap_servers) as client:
                transaction = await RawTransaction.begin(
                    client, "sink", two_phase=True, transaction_timeout_ms=1
                )
                for name in names:
                    await transaction.write(name, batch(b"a", b"b"))
                prepared = await transaction.prepare()
                assert prepared is not None
                return prepared

        state = asyncio.run(prepare())
        broker.kill()
        broker.start()

        async def decide() -> None:
            async with ClusterClient(broker.bootstrap_servers) as client:
                undecided = await client.list_offsets(
                    dict.fromkeys(names, LATEST), isolation=IsolationLevel.READ_COMMITTED
                )
                assert [offset.offset for offset in undecided.values()] == [0, 0]
                for _ in range(2):
                    await client.transactions.end(state, commit=commit)
                with pytest.raises(RefusedByBroker) as refused:
                    await client.transactions.end(state, commit=not commit)
                assert refused.value.code is ErrorCode.INVALID_TXN_STATE

        run(decide())
        kept = [b"a", b"a", b"b", b"b"] if commit else []
        assert sorted(read(broker, "t", len(kept))) == kept
    finally:
        broker.stop()


def test_a_prepared_transaction_can_be_recovered_by_a_new_producer(broker: penstock.Broker) -> None:
    broker.create_topic("taken", partitions=1)

    async def scenario() -> None:
        async with ClusterClient(broker.bootstrap_servers) as client:
            transaction = await RawTransaction.begin(client, "taken", two_phase=True)
            await transaction.write(TopicPartition("taken", 0), batch(b"x"))
            state = await transaction.prepare()
            assert state is not None
            successor = await client.transactions.init_producer(
                "taken", two_phase=True, keep_prepared=True
            )
            assert successor.prepared == state
            with pytest.raises(
                RefusedByBroker
            ) as refused:  # the fenced producer cannot decide any more
                await client.transactions.end(state, commit=False)
            assert refused.value.code is ErrorCode.PRODUCER_FENCED
            await client.transactions.end(successor.producer, commit=True)

    run(scenario())
    assert read(broker, "taken", 1) == [b"x"]


# -- the command ---------------------------------------------------------------------------

Command = Callable[..., Any]


def commands_to(broker: penstock.Broker) -> Command:
    def ask(*arguments: str) -> Any:
        environment = {"PENSTOCK_BOOTSTRAP": broker.bootstrap_servers}
        done = CliRunner().invoke(app, ("transaction", *arguments, "--json"), env=environment)
        assert done.exit_code == 0, done.stderr
        return json.loads(done.stdout)

    return ask


def test_an_operator_can_describe_and_abort_a_prepared_transaction(broker: penstock.Broker) -> None:
    command = commands_to(broker)
    broker.create_topic("stuck", partitions=1)

    async def prepare() -> None:
        async with ClusterClient(broker.bootstrap_servers) as client:
            transaction = await RawTransaction.begin(client, "stuck", two_phase=True)
            await transaction.write(TopicPartition("stuck", 0), batch(b"x"))
            await transaction.prepare()

    run(prepare())
    (listed,) = command("list", "--state", "Ongoing", "--pattern", "stu.*")
    assert (listed["transactional_id"], listed["state"]) == ("stuck", "Ongoing")
    described = command("describe", "stuck")
    assert described["two_phase"] is True
    assert described["age_ms"] >= 0
    assert described["partitions"] == [{"topic": "stuck", "partition": 0}]
    assert command("find-hanging", "--topic", "stuck", "--older-than", "0s") == []
    assert command("abort", "stuck")["partitions"] == 1
    assert command("describe", "stuck")["state"] in ("PrepareAbort", "CompleteAbort")
    assert command("list", "--state", "Ongoing", "--pattern", "stu.*") == []
    assert read(broker, "stuck", 0) == []


def test_a_hanging_transaction_is_found_and_aborted() -> None:
    """Brokers without transaction verification let a late batch open one."""
    careless = {"transaction.partition.verification.enable": "false"}
    with penstock.Broker(config=careless) as broker:
        broker.create_topic("t", partitions=1)
        command, name = commands_to(broker), TopicPartition("t", 0)
        late = batch(b"late")
        stamp_producer(late, producer_id=99, producer_epoch=0, base_sequence=0, transactional=True)

        async def write() -> None:
            async with ClusterClient(broker.bootstrap_servers) as client:
                await client.produce(name, batch(b"before"))
                await client.produce(name, late, transactional_id="ghost")
                await client.produce(name, batch(b"after"))

        run(write())
        assert read(broker, "t", 1) == [b"before"]
        (hanging,) = command("find-hanging")
        assert (hanging["producer_id"], hanging["start_offset"]) == (99, 1)
        location = ("--topic", "t", "--partition", "0", "--start-offset", "1")
        assert command("abort", *location)["producer_id"] == 99
        assert command("find-hanging") == []
        assert read(broker, "t", 2) == [b"before", b"after"]
