"""The client's errors, one hierarchy. Each message names the address or operation and what to do
next.

No error codes here: see `model.errors`.
"""

from collections.abc import Mapping
from typing import Any, Self

from penstock.model.errors import ErrorCode

_SHOWN_ITEMS = 3


class ClientError(Exception):
    """The operation failed, or its result is unknown; the message says which."""

    is_retriable = False  # the same request may succeed later, perhaps at another broker


class InvalidAddress(ClientError, ValueError):
    """A malformed bootstrap address."""


class InvalidClientConfig(ClientError, ValueError):
    """A setting of the client is unknown, contradicts another, or would not be in effect."""


class ConnectFailed(ClientError):
    """No connection to this address: nothing was sent."""

    is_retriable = True

    def __init__(self, address: object, reason: str) -> None:
        super().__init__(address, reason)
        self.address = address
        self.reason = reason

    def __str__(self) -> str:
        return f"cannot reach a broker at {self.address}: {self.reason}"


class TlsFailed(ConnectFailed):
    """The broker did not accept this client in TLS, or this client not the broker."""

    is_retriable = False


class AuthenticationFailed(ClientError):
    """The login failed; no broker will accept the same credentials."""


class Disconnected(ClientError):
    """The connection closed before the response: the broker may or may not have done the
    request."""

    is_retriable = True


class RequestTimedOut(Disconnected):
    """No response in time; the connection was closed."""


class UnsupportedByBroker(ClientError):
    """Broker and client support no common version of a request."""


class RefusedByBroker(ClientError):
    """The cluster answered with an error code. Codes that programs often tell apart have a class of
    their own: `RefusedByBroker(what, code)` makes the right one."""

    def __new__(cls, what: str, code: ErrorCode, message: str | None = None) -> Self:
        of_code = _REFUSALS.get(code)
        return super().__new__(of_code if of_code and issubclass(of_code, cls) else cls)

    def __init__(self, what: str, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(f"{what}: {message or code.message or code.name} ({code.name})")
        self.what = what
        self.code = code
        self.message = message  # the broker's own, if it sent one

    def __reduce__(self) -> tuple[Any, ...]:
        return RefusedByBroker, (self.what, self.code, self.message)

    @property
    def is_retriable(self) -> bool:  # type: ignore[override] # follows from the code
        return self.code.is_retriable


class TopicAlreadyExists(RefusedByBroker):
    """A topic with this name exists already."""


class UnknownTopicOrPartition(RefusedByBroker):
    """There is no such topic, or it has no partition with this number."""


class GroupNotFound(RefusedByBroker):
    """There is no group with this id."""


class GroupNotEmpty(RefusedByBroker):
    """The group has members: stop its consumers first."""


class InvalidConfig(RefusedByBroker):
    """A setting does not exist, or does not take this value."""


_REFUSALS: Mapping[ErrorCode, type[RefusedByBroker]] = {
    ErrorCode.TOPIC_ALREADY_EXISTS: TopicAlreadyExists,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: UnknownTopicOrPartition,
    ErrorCode.GROUP_ID_NOT_FOUND: GroupNotFound,
    ErrorCode.NON_EMPTY_GROUP: GroupNotEmpty,
    ErrorCode.INVALID_CONFIG: InvalidConfig,
}


class ItemsFailed(ClientError):
    """Some of several items (topics, groups, partitions, resources) failed; the others are done.

    A request for a single item raises that item's own error instead.
    """

    def __init__(self, errors: Mapping[Any, ClientError], results: Mapping[Any, Any]) -> None:
        texts = [str(error) for error in errors.values()]
        more = [f"and {len(texts) - _SHOWN_ITEMS} more"] if len(texts) > _SHOWN_ITEMS else []
        count = len(errors) + len(results)
        listed = "; ".join(texts[:_SHOWN_ITEMS] + more)
        super().__init__(f"{len(errors)} of {count} failed: {listed}")
        self.errors = dict(errors)
        self.results = dict(results)  # of the others

    def __reduce__(self) -> tuple[Any, ...]:
        return ItemsFailed, (self.errors, self.results)


class OutOfTime(ClientError):
    """Every attempt until the deadline failed; the last error is the cause."""


class ClientClosed(ClientError):
    """The client was closed by its owner; open a new one."""


class SendFailed(ClientError):
    """A record was not stored, as far as is known."""

    def __init__(self, text: str, *, code: ErrorCode | None = None) -> None:
        super().__init__(text)
        self.code = code  # the broker's; None: the request never reached it


class SendTimedOut(SendFailed, TimeoutError):
    """A record was not acknowledged within the time that the caller waits; it may be stored yet."""


class QueueFull(SendFailed):
    """The producer's queue stayed full for max_block_ms: the broker is too slow."""


class FlushTimedOut(ClientError):
    """Records were still in flight when the flush timed out."""


class TransactionAbortable(ClientError):
    """An operation of the transaction failed: abort it and repeat the work in a new one."""


class TransactionOver(ClientError):
    """The transaction was committed, aborted or prepared already: begin another one."""


class ProducerFenced(ClientError):
    """A newer producer with the same transactional id has taken over: close this one."""


class ConsumeFailed(ClientError):
    """Records cannot be read; the message says why and which."""

    def __init__(self, text: str, *, code: ErrorCode | None = None) -> None:
        super().__init__(text)
        self.code = code


class BrokersUnreachable(ConsumeFailed):
    """No broker answers, so that nobody can say whether everything was read; try again later."""

    is_retriable = True


class ZooKeeperUnavailable(ConsumeFailed):
    """No ZooKeeper answers, so that the group's members and offsets are unknown; or kazoo, which
    knows its formats, is not installed."""

    is_retriable = True


class RebalanceFailed(ConsumeFailed):
    """Other members still owned partitions of this one after all retries; it has left the group."""


class MixedAssignments(ConsumeFailed):
    """Another member of the group assigns partitions by another rule."""
