"""Penstock: a Kafka-compatible log in Python."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.client.consumer import Consumer
    from penstock.client.message import Message, RecordMetadata
    from penstock.client.producer import Producer
    from penstock.client.transactional_producer import TransactionalProducer
    from penstock.testing.embedded_broker import Broker

__version__ = "0.1.0"

__all__ = [
    "Broker",
    "Consumer",
    "Message",
    "Producer",
    "RecordMetadata",
    "TransactionalProducer",
    "__version__",
]

# Imported when first used, so that `import penstock` costs nothing.
_EXPORTS = {
    "Broker": "penstock.testing.embedded_broker",
    "Consumer": "penstock.client.consumer",
    "Message": "penstock.client.message",
    "Producer": "penstock.client.producer",
    "RecordMetadata": "penstock.client.message",
    "TransactionalProducer": "penstock.client.transactional_producer",
}


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_EXPORTS[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
