"""The client's errors, one hierarchy. Each message names the address or operation and what to do
next.

No error codes here: see `model.errors`.
"""

from penstock.model.errors import ErrorCode


class ClientError(Exception):
    """The operation failed, or its result is unknown; the message says which."""

    is_retriable = False  # the same request may succeed later, perhaps at another broker


class InvalidAddress(ClientError, ValueError):
    """A malformed bootstrap address."""


class ConnectFailed(ClientError):
    """No connection to this address: nothing was sent."""

    is_retriable = True

    def __init__(self, address: object, reason: str) -> None:
        super().__init__(f"cannot reach a broker at {address}: {reason}")
        self.address = address
        self.reason = reason


class Disconnected(ClientError):
    """The connection closed before the response: the broker may or may not have done the
    request."""

    is_retriable = True


class RequestTimedOut(Disconnected):
    """No response in time; the connection was closed."""


class UnsupportedByBroker(ClientError):
    """Broker and client support no common version of a request."""


class RefusedByBroker(ClientError):
    """The cluster answered with an error code."""

    def __init__(self, what: str, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(f"{what}: {message or code.message or code.name} ({code.name})")
        self.what = what
        self.code = code

    @property
    def is_retriable(self) -> bool:  # type: ignore[override] # follows from the code
        return self.code.is_retriable


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
