"""What can go wrong between a client and its cluster: one family, each error naming the address or
the thing asked for, and what to do next. No codes of our own: those are `model.errors`.
"""

from penstock.model.errors import ErrorCode


class ClientError(Exception):
    """The operation was not done, or its result is not known; the text says which."""

    is_retriable = False  # the same request may succeed later, perhaps at another broker


class InvalidAddress(ClientError, ValueError):
    """A bootstrap address that cannot be one."""


class ConnectFailed(ClientError):
    """Nobody could be spoken to at this address: nothing was sent."""

    is_retriable = True

    def __init__(self, address: object, reason: str) -> None:
        super().__init__(f"cannot reach a broker at {address}: {reason}")
        self.address = address
        self.reason = reason


class Disconnected(ClientError):
    """The connection ended before the reply: the broker may have done what was asked, or not."""

    is_retriable = True


class RequestTimedOut(Disconnected):
    """The broker did not answer in time; its connection was given up with it."""


class UnsupportedByBroker(ClientError):
    """The broker and this client know no common version of a request."""


class RefusedByBroker(ClientError):
    """The cluster answered, and the answer is no."""

    def __init__(self, what: str, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(f"{what}: {message or code.message or code.name} ({code.name})")
        self.what = what
        self.code = code

    @property
    def is_retriable(self) -> bool:  # type: ignore[override] # follows from the code
        return self.code.is_retriable


class OutOfTime(ClientError):
    """The time given was used up by attempts that failed; the last one's error is the cause."""


class ClientClosed(ClientError):
    """The client was closed by its owner; open a new one."""


class SendFailed(ClientError):
    """A record was not stored, as far as is known."""

    def __init__(self, text: str, *, code: ErrorCode | None = None) -> None:
        super().__init__(text)
        self.code = code  # the broker's; None: it never got there


class QueueFull(SendFailed):
    """The producer's queue stayed full for as long as `send` may wait: the broker is too slow."""


class FlushTimedOut(ClientError):
    """Records are still on their way when the time for flushing is over."""


class TransactionAbortable(ClientError):
    """Something of the transaction was not done: abort it, and do it again in the next one."""


class TransactionOver(ClientError):
    """The transaction is committed, aborted or prepared: begin another one."""


class ProducerFenced(ClientError):
    """A newer producer with the same transactional id has taken over: this one is done."""


class ConsumeFailed(ClientError):
    """Records cannot be read; the text says why and of what."""

    def __init__(self, text: str, *, code: ErrorCode | None = None) -> None:
        super().__init__(text)
        self.code = code
