from confluent_kafka import KafkaError

from penstock.client.rdkafka import LocalCode


def test_librdkafkas_codes_are_what_confluent_kafka_calls_them() -> None:
    for code in LocalCode:
        assert getattr(KafkaError, f"_{code.name}") == code
