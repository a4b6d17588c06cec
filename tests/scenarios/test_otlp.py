"""A broker pushes its metrics to a collector, with the values that clients caused."""

import pytest

pytest.importorskip("opentelemetry.proto.metrics.v1.metrics_pb2", reason="needs the extra otlp")

from tests.otlp_receiver import OtlpReceiver, receive_otlp

import penstock

SENT = 3
MESSAGES_IN = "kafka_server_brokertopicmetrics_messagesin_total"


def find_messages_in(receiver: OtlpReceiver) -> int | None:
    """Of the topic, in the next push."""
    pushed = receiver.pushed.get(timeout=120)
    for point in pushed.metrics()[MESSAGES_IN].sum.data_points:
        if {pair.key: pair.value.string_value for pair in point.attributes} == {"topic": "orders"}:
            return int(point.as_int)
    return None


def test_a_broker_pushes_what_clients_did() -> None:
    with receive_otlp() as receiver:
        settings = {"metrics.otlp.endpoint": receiver.url, "metrics.otlp.interval.ms": 200}
        with penstock.Broker(config=settings) as broker:
            assert f"metrics will be pushed to {receiver.url} every 0.2 s" in broker.logs()
            with penstock.Producer(broker.bootstrap_servers) as producer:
                for _ in range(SENT):
                    producer.send_and_wait("orders", b"value")
            while find_messages_in(receiver) != SENT:
                pass
