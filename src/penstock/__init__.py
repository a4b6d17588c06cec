"""Penstock: a Kafka-compatible log in Python."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.client.consumer import Consumer
    from penstock.client.errors import (
        BrokersUnreachable,
        ClientClosed,
        ClientError,
        ConnectFailed,
        ConsumeFailed,
        Disconnected,
        FlushTimedOut,
        InvalidAddress,
        OutOfTime,
        ProducerFenced,
        QueueFull,
        RefusedByBroker,
        RequestTimedOut,
        SendFailed,
        SendTimedOut,
        TransactionAbortable,
        TransactionOver,
        UnsupportedByBroker,
    )
    from penstock.client.message import Message, RecordMetadata
    from penstock.client.producer import Producer
    from penstock.client.transactional_producer import TransactionalProducer
    from penstock.testing.embedded_broker import Broker

__version__ = "0.1.0"

__all__ = [
    "Broker",
    "BrokersUnreachable",
    "ClientClosed",
    "ClientError",
    "ConnectFailed",
    "ConsumeFailed",
    "Consumer",
    "Disconnected",
    "FlushTimedOut",
    "InvalidAddress",
    "Message",
    "OutOfTime",
    "Producer",
    "ProducerFenced",
    "QueueFull",
    "RecordMetadata",
    "RefusedByBroker",
    "RequestTimedOut",
    "SendFailed",
    "SendTimedOut",
    "TransactionAbortable",
    "TransactionOver",
    "TransactionalProducer",
    "UnsupportedByBroker",
    "__version__",
]

_ERRORS = "penstock.client.errors"
# Imported when first used, so that `import penstock` costs nothing.
_EXPORTS = {
    "Broker": "penstock.testing.embedded_broker",
    "BrokersUnreachable": _ERRORS,
    "ClientClosed": _ERRORS,
    "ClientError": _ERRORS,
    "ConnectFailed": _ERRORS,
    "ConsumeFailed": _ERRORS,
    "Consumer": "penstock.client.consumer",
    "Disconnected": _ERRORS,
    "FlushTimedOut": _ERRORS,
    "InvalidAddress": _ERRORS,
    "Message": "penstock.client.message",
    "OutOfTime": _ERRORS,
    "Producer": "penstock.client.producer",
    "ProducerFenced": _ERRORS,
    "QueueFull": _ERRORS,
    "RecordMetadata": "penstock.client.message",
    "RefusedByBroker": _ERRORS,
    "RequestTimedOut": _ERRORS,
    "SendFailed": _ERRORS,
    "SendTimedOut": _ERRORS,
    "TransactionAbortable": _ERRORS,
    "TransactionOver": _ERRORS,
    "TransactionalProducer": "penstock.client.transactional_producer",
    "UnsupportedByBroker": _ERRORS,
}


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_EXPORTS[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
