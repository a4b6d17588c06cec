"""One connection to one broker: requests are pipelined, responses are matched in order.

It knows no cluster and retries nothing. Invariant: after a late, malformed or unexpected response
the connection is closed and every in-flight request fails, because later responses can no longer be
matched.
"""

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, cast

from penstock.client.address import Address
from penstock.client.call import Call, LeanCall, PrivateCall
from penstock.client.deadline import CHANCE
from penstock.client.errors import (
    ClientError,
    ConnectFailed,
    Disconnected,
    RequestTimedOut,
    TlsFailed,
    UnsupportedByBroker,
)
from penstock.client.receiver import FrameReceiver
from penstock.client.security.authenticator import Authenticator
from penstock.client.versions import (
    API_VERSIONS,
    VersionRange,
    decode_api_versions,
    pick_version,
    read_ranges,
)
from penstock.model.errors import ErrorCode
from penstock.protocol.encoder import encode_parts
from penstock.protocol.frames import FrameSizeRefused, frame_parts, join_bytes
from penstock.protocol.headers import (
    encode_request_header,
    peek_correlation_id,
    read_response_header,
)
from penstock.protocol.malformed import MalformedMessage, MalformedResponse
from penstock.protocol.messages import decode_response
from penstock.protocol.private_keys import FIRST_FLEXIBLE_OF_ALL, find_private_key
from penstock.protocol.private_response import decode_private_response

_MAX_CORRELATION_ID = 2**31 - 1
_LOG_IN_AGAIN_AT = 0.85, 0.95  # of a session's lifetime, as Java's clients (KIP-368)

AnyCall = Call | LeanCall | PrivateCall


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    connect_timeout_ms: int = 10_000  # also covers version negotiation
    max_in_flight: int = 16  # in-flight requests; further ones are queued
    max_response_bytes: int = 512 * 1024 * 1024


class _Pending(NamedTuple):
    """A request that was sent and awaits its response."""

    correlation_id: int
    api_key: int
    version: int
    reply: "asyncio.Future[Any]"
    alarm: asyncio.TimerHandle
    decode: Callable[[int, memoryview], Any] | None  # a special decoder, if there is one


class BrokerConnection(asyncio.BufferedProtocol):
    """`await BrokerConnection.open(...)`, then `call`. Owned by the loop it was opened on.

    The methods that asyncio calls are at the end.
    """

    def __init__(
        self,
        address: Address,
        client_id: str,
        limits: ConnectionLimits,
        authenticator: Authenticator | None = None,
    ) -> None:
        self.address = address
        self._client_id = client_id
        self._limits = limits
        self._authenticator = authenticator
        self._loop = asyncio.get_running_loop()
        self._receiver = FrameReceiver(self._on_frame, max_bytes=limits.max_response_bytes)
        self._slots = asyncio.Semaphore(limits.max_in_flight)
        self._pending: deque[_Pending] = deque()  # in the order they were sent
        self._ranges: Mapping[int, VersionRange] = {API_VERSIONS.api_key: VersionRange(0, 3)}
        self._last_correlation_id = 0
        self._transport: asyncio.Transport | None = None
        self._failure: ClientError | None = None  # set once: why the connection is closed
        self._closed = asyncio.Event()
        self._writable = asyncio.Event()  # neither of the two below, or closed
        self._writable.set()
        self._is_congested = False
        self._is_logging_in = False  # again: then no other request may be sent
        self._drained: asyncio.Future[None] | None = None  # awaited by the next login
        self._next_login: asyncio.TimerHandle | None = None
        self._login: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        address: Address,
        *,
        client_id: str = "penstock",
        limits: ConnectionLimits | None = None,
        authenticator: Authenticator | None = None,
    ) -> Self:
        """Connect, negotiate versions and log in; ConnectFailed or AuthenticationFailed says what
        went wrong."""
        limits = limits or ConnectionLimits()
        loop = asyncio.get_running_loop()
        connection: Self | None = None
        tls = None if authenticator is None else authenticator.tls_context()
        try:
            async with asyncio.timeout(limits.connect_timeout_ms / 1000):
                _, connection = await loop.create_connection(
                    lambda: cls(address, client_id, limits, authenticator),
                    address.host,
                    address.port,
                    ssl=tls,
                    server_hostname=None if tls is None else address.host,
                )
                await connection.agree_on_versions()
                await connection.log_in()
        except BaseException as error:
            if connection is not None:
                connection.abort()
            if isinstance(error, ssl.SSLError):
                raise TlsFailed(address, _tls_reason(error)) from error
            if isinstance(error, OSError | Disconnected):
                raise ConnectFailed(address, _reason(error, limits)) from error
            raise
        return connection

    @property
    def is_open(self) -> bool:
        return self._failure is None

    @property
    def in_flight(self) -> int:
        """Number of requests that were sent and not answered."""
        return len(self._pending)

    def find_range(self, api_key: int) -> VersionRange | None:
        """The versions of a request that the broker serves."""
        return self._ranges.get(api_key)

    async def call(self, call: AnyCall, *, timeout_ms: int) -> Any:
        """Send a request and return its response. Cancelling stops the wait, not the broker."""
        deadline = self._loop.time() + timeout_ms / 1000
        await self._wait_slot(call, deadline, timeout_ms)
        return await self._exchange(call, deadline, timeout_ms)

    async def _exchange(self, call: AnyCall, deadline: float, timeout_ms: int) -> Any:
        """With a slot, which is released with the response."""
        try:
            version = self._pick_version(call)
            parts, correlation_id = self._encode(call, version)
            reply: asyncio.Future[Any] = self._loop.create_future()
            alarm = self._loop.call_at(deadline, self._on_overdue, call, timeout_ms)
        except BaseException:
            self._slots.release()
            raise
        decode = call.decode if isinstance(call, LeanCall) else None
        self._pending.append(_Pending(correlation_id, call.api_key, version, reply, alarm, decode))
        self._write(parts)
        return await reply

    async def send(self, call: Call, *, timeout_ms: int) -> None:
        """Send a request that has no response (Produce with acks=0); returns when the socket has
        taken it."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._wait_writable()
                self._check_open()
                parts, _ = self._encode(call, self._pick_version(call))
                self._write(parts)
                await self._writable.wait()
        except TimeoutError:
            raise self._overdue(call, timeout_ms) from None
        self._check_open()

    def abort(self, reason: ClientError | None = None) -> None:
        """Close now; in-flight requests fail with `reason`."""
        self._give_up(reason or Disconnected(f"the connection to {self.address} was closed"))

    async def close(self) -> None:
        self.abort()
        if self._login is not None:
            await self._login
        if self._transport is not None:
            await self._closed.wait()

    async def agree_on_versions(self) -> None:
        """Negotiate versions. A broker that does not support our version of ApiVersions answers in
        version 0 and lists those that it does (KIP-511)."""
        timeout_ms = self._limits.connect_timeout_ms
        answer = await self.call(API_VERSIONS, timeout_ms=timeout_ms)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            served = read_ranges(answer).get(API_VERSIONS.api_key, VersionRange(0, 0))
            self._ranges = {API_VERSIONS.api_key: served}
            answer = await self.call(API_VERSIONS, timeout_ms=timeout_ms)
        if answer.error_code != ErrorCode.NONE:
            raise Disconnected(f"it refuses ApiVersions ({answer.error_code.name})")
        self._ranges = read_ranges(answer)

    # The login.

    async def log_in(self) -> None:
        """Log in with SASL, where that is configured, and once more before the session ends."""
        if self._authenticator is None or not self._authenticator.uses_sasl:
            return
        lifetime_ms = await self._authenticator.log_in(self._send_login)
        if lifetime_ms and self.is_open:
            share = CHANCE.uniform(*_LOG_IN_AGAIN_AT)
            self._next_login = self._loop.call_later(lifetime_ms * share / 1000, self._renew)

    async def _send_login(self, call: Call) -> Any:
        self._check_open()
        timeout_ms = self._limits.connect_timeout_ms
        await self._slots.acquire()  # one is free: nothing else is in flight
        return await self._exchange(call, self._loop.time() + timeout_ms / 1000, timeout_ms)

    def _renew(self) -> None:
        self._next_login = None
        if self.is_open:
            self._login = self._loop.create_task(self._log_in_again(), name="log in again")

    async def _log_in_again(self) -> None:
        """Between two requests, because a broker accepts no others meanwhile."""
        self._is_logging_in = True
        self._update_writable()
        try:
            if self._pending:
                self._drained = self._loop.create_future()
                await self._drained
            await self.log_in()
        except ClientError as error:
            self._give_up(error)
        finally:
            self._is_logging_in = False
            self._update_writable()

    def _update_writable(self) -> None:
        if self._failure is None and (self._is_congested or self._is_logging_in):
            self._writable.clear()
        else:
            self._writable.set()

    async def _wait_writable(self) -> None:
        while not self._writable.is_set():
            await self._writable.wait()

    async def _wait_slot(self, call: AnyCall, deadline: float, timeout_ms: int) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                await self._acquire_slot()
        except TimeoutError:
            raise self._overdue(call, timeout_ms) from None
        if self._failure is not None:
            self._slots.release()  # wakes the next waiter, which fails alike
            self._check_open()

    async def _acquire_slot(self) -> None:
        while True:
            await self._writable.wait()
            await self._slots.acquire()
            if self._writable.is_set():
                return
            self._slots.release()  # a login needs one, and nobody may hold one meanwhile

    def _check_open(self) -> None:
        if self._failure is not None:
            raise _again(self._failure)

    def _pick_version(self, call: AnyCall) -> int:
        if isinstance(call, PrivateCall):
            return call.version
        version = pick_version(call.versions, self.find_range(call.api_key))
        if version is None:
            served = self.find_range(call.api_key) or "no version"
            raise UnsupportedByBroker(
                f"the broker at {self.address} serves {call.api_key.title} in {served}, "
                f"this client needs one of {call.versions[0]} to {call.versions[-1]}: "
                "upgrade the older of the two"
            )
        return version

    def _encode(self, call: AnyCall, version: int) -> tuple[list[Any], int]:
        correlation_id = (self._last_correlation_id + 1) & _MAX_CORRELATION_ID
        self._last_correlation_id = correlation_id
        header = encode_request_header(
            call.api_key, version, correlation_id, self._client_id, FIRST_FLEXIBLE_OF_ALL
        )
        if isinstance(call, PrivateCall):
            body = [call.body]
        elif isinstance(call, LeanCall):
            body = [call.encode(version)]
        else:
            body = encode_parts(call.compose(version))
        parts = frame_parts([header, *body])
        return join_bytes(parts), correlation_id

    def _write(self, parts: list[Any]) -> None:
        assert self._transport is not None
        for part in parts:
            self._transport.write(part)

    def _on_frame(self, frame: memoryview) -> None:
        if self._failure is not None:
            return
        correlation_id = peek_correlation_id(frame)
        if not self._pending or self._pending[0].correlation_id != correlation_id:
            raise MalformedResponse(f"a response to request {correlation_id} arrived out of order")
        request = self._pending[0]
        message = None if request.reply.done() else _decode(request, frame)
        self._pending.popleft()
        request.alarm.cancel()
        self._slots.release()
        if not request.reply.done():
            request.reply.set_result(message)
        if self._drained is not None and not self._pending:
            self._end_drain()

    def _end_drain(self) -> None:
        if self._drained is not None:
            self._drained.set_result(None)
            self._drained = None

    def _on_overdue(self, call: AnyCall, timeout_ms: int) -> None:
        # Responses come in order, so nothing can arrive behind a late one.
        self._give_up(self._overdue(call, timeout_ms))

    def _overdue(self, call: AnyCall, timeout_ms: int) -> RequestTimedOut:
        return RequestTimedOut(
            f"{self.address} did not answer {call.api_key.title} within {timeout_ms / 1000:g} s"
        )

    def _give_up(self, failure: ClientError) -> None:
        if self._failure is not None:
            return
        self._failure = failure
        self._writable.set()
        if self._next_login is not None:
            self._next_login.cancel()
        pending, self._pending = self._pending, deque()
        for request in pending:
            request.alarm.cancel()
            self._slots.release()
            if not request.reply.done():
                request.reply.set_exception(_again(failure))
        self._end_drain()
        if self._transport is not None:
            self._transport.abort()

    # asyncio's callbacks.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        raw = transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._receiver.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            self._receiver.take(nbytes)
        except FrameSizeRefused:
            self._give_up(
                Disconnected(
                    f"{self.address} does not answer in Kafka's protocol; does that listener use "
                    "TLS, and security.protocol not?"
                )
            )
        except MalformedMessage as error:
            self._give_up(Disconnected(f"{self.address} sent a malformed response: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        reason = f": {exc}" if exc else ""
        failure: ClientError = Disconnected(
            f"the broker at {self.address} closed the connection{reason}{self._closed_hint()}"
        )
        if isinstance(exc, ssl.SSLError):  # TLS 1.3 refuses a client only after its handshake
            failure = TlsFailed(self.address, _tls_reason(exc))
        self._give_up(failure)
        self._closed.set()

    def _closed_hint(self) -> str:
        """A listener with TLS closes the connection of a client that begins without it."""
        is_first = bool(self._pending) and self._pending[0].correlation_id == 1
        is_plain = self._transport is not None and not self._transport.get_extra_info("ssl_object")
        if not (is_first and is_plain):
            return ""
        return (
            " before it answered; if that listener uses TLS, set security.protocol to SSL or "
            "SASL_SSL (of the command line: in the file of --client-config)"
        )

    def pause_writing(self) -> None:
        self._is_congested = True
        self._update_writable()

    def resume_writing(self) -> None:
        self._is_congested = False
        self._update_writable()


def _decode(request: _Pending, frame: memoryview) -> Any:
    _, body = read_response_header(frame, request.api_key, request.version, FIRST_FLEXIBLE_OF_ALL)
    if request.decode is not None:
        return request.decode(request.version, body)
    if find_private_key(request.api_key) is not None:
        return decode_private_response(body)
    if request.api_key == API_VERSIONS.api_key:
        return decode_api_versions(request.version, body)
    return decode_response(request.api_key, request.version, body)


def _again(failure: ClientError) -> ClientError:
    """A copy of the error, because each waiter needs its own traceback."""
    copy = type(failure)(*failure.args)
    copy.__cause__ = failure.__cause__
    return copy


def _tls_reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not accepted ({error.verify_message}); is ssl.ca.location that "
            "of its authority, and the host one of the certificate's names?"
        )
    reason = (error.reason or str(error)).replace("_", " ").lower()
    if "wrong version" in reason or "record layer" in reason:
        return f"TLS fails ({reason}); does that listener use TLS?"
    if "certificate" in reason or "unknown ca" in reason:
        return f"it does not accept this client's certificate ({reason})"
    return f"TLS fails ({reason})"


def _reason(error: BaseException, limits: ConnectionLimits) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {limits.connect_timeout_ms / 1000:g} s"
    if isinstance(error, ConnectionRefusedError) or "Connect call failed" in str(error):
        return (
            "nothing listens there (connection refused); is the broker up, and is the port right?"
        )
    if isinstance(error, socket.gaierror):
        return f"the host name cannot be resolved ({error.strerror})"
    return str(error)
