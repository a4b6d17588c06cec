"""`penstock.Producer` and `Consumer` without a broker: the error names address and cause."""

import itertools
import socket
from collections.abc import Callable, Iterator

import pytest

import penstock
from penstock.cli.consume_command import read_batches

_SHORT_S = 0.2
_ATTEMPTS = 300  # librdkafka connects on a thread of its own, which a busy machine may delay


@pytest.fixture
def refusing() -> Iterator[str]:
    """An address where nobody listens and that nobody else can bind."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@pytest.fixture
def silent() -> Iterator[str]:
    """An address that accepts connections and never responds."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def group_consumer(address: str) -> penstock.Consumer:
    return penstock.Consumer(
        "orders",
        bootstrap_servers=address,
        group="billing",
        timeout_s=_SHORT_S,
        connect_timeout_s=_SHORT_S,
    )


def error_with(cause: str, attempt: Callable[[], object]) -> Exception:
    """Retry until the error has the cause; every attempt must fail."""
    for number in itertools.count(1):
        with pytest.raises(penstock.ClientError) as raised:
            attempt()
        if cause in str(raised.value) or number == _ATTEMPTS:
            return raised.value
    raise AssertionError


def test_iteration_raises_if_nobody_listens(refusing: str) -> None:
    with group_consumer(refusing) as consumer:
        error = error_with("Connection refused", lambda: list(consumer))
    assert isinstance(error, penstock.BrokersUnreachable)
    assert f"cannot read orders: no broker answers within {_SHORT_S} s" in str(error)
    assert f"(bootstrap {refusing}; last error: " in str(error)
    assert "Connection refused" in str(error)


def test_iteration_raises_if_nobody_responds(silent: str) -> None:
    with group_consumer(silent) as consumer, pytest.raises(penstock.BrokersUnreachable) as raised:
        list(consumer)
    assert f"(bootstrap {silent}" in str(raised.value)


def test_the_consume_command_fails_without_a_broker(refusing: str) -> None:
    with group_consumer(refusing) as consumer, pytest.raises(penstock.BrokersUnreachable):
        list(read_batches(consumer, None, _SHORT_S))


def test_a_consumer_without_a_group_cannot_be_created_without_a_broker(refusing: str) -> None:
    with pytest.raises(penstock.BrokersUnreachable, match=f"bootstrap {refusing}"):
        penstock.Consumer("orders", bootstrap_servers=refusing, connect_timeout_s=_SHORT_S)


def test_a_poll_without_a_broker_is_empty_so_that_a_loop_survives_a_restart(refusing: str) -> None:
    with group_consumer(refusing) as consumer:
        assert consumer.poll_batch(10, _SHORT_S) == []


def test_waiting_for_a_record_names_the_address_and_the_cause(refusing: str) -> None:
    producer = penstock.Producer(refusing)
    error = error_with(
        "Connection refused",
        lambda: producer.send_and_wait("orders", "one", timeout_s=_SHORT_S),
    )
    with pytest.raises(penstock.FlushTimedOut, match=f"bootstrap {refusing}"):
        producer.close(0)
    assert isinstance(error, penstock.SendTimedOut)
    assert isinstance(error, TimeoutError)  # so that callers of earlier versions still catch it
    assert f"'orders' is not acknowledged after {_SHORT_S} s" in str(error)
    assert f"(bootstrap {refusing}; last error: " in str(error)
    assert "Connection refused" in str(error)
