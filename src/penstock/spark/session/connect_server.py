"""A session on a Spark Connect server that is there, or one line that says what is not.

PySpark retries every call for 10 to 20 minutes, also to an address where nothing listens. Here the
address is tried first, and retries are bounded: a server may restart, but a command must end.
"""

import socket
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from penstock.spark.session.default_save_mode import accept_default_mode_on_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REACHABLE_S = 5.0
_POLL_S = 0.1
_ANSWER_S = 60.0  # a session is created; a server that has just started is slow
# Waits of 50 ms, 200 ms, 800 ms, 3.2 s, then 5 s each: less than half a minute for one call.
_RETRIES, _MAX_BACKOFF_MS = 8, 5_000


class NoConnectServer(Exception):
    """The message says what is wrong with the address, or with the server there."""


class ConnectStopped(NoConnectServer):
    """Stopped while a server was asked. PySpark goes on asking on a thread of this process, which
    delays an orderly exit for a minute."""


class ServerEndpoint(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def connect_session(
    remote: str,
    settings: Mapping[str, str],
    *,
    stop: threading.Event | None = None,
    answer_s: float = _ANSWER_S,
) -> "SparkSession":
    """`stop`: set it, also in a signal's handler, and nobody waits for the server any longer."""
    endpoint = check_listening(remote)
    return _Opening(remote, settings).wait(endpoint, answer_s, stop or threading.Event())


def check_listening(remote: str) -> "ServerEndpoint":
    """Raises NoConnectServer if the URL is wrong, or nothing listens there."""
    endpoint = _parse(remote)
    try:
        socket.create_connection(endpoint, _REACHABLE_S).close()
    except OSError as error:
        reason = error.strerror or error
        raise NoConnectServer(
            f"no Spark Connect server listens at {endpoint} ({reason}): start one with Spark's "
            "sbin/start-connect-server.sh, or correct --remote"
        ) from None
    return endpoint


def _parse(remote: str) -> ServerEndpoint:
    from pyspark.errors import PySparkException
    from pyspark.sql.connect.client import DefaultChannelBuilder

    try:
        host, _, port = DefaultChannelBuilder(remote).endpoint.rpartition(":")
        return ServerEndpoint(host.strip("[]"), int(port))
    except (PySparkException, ValueError) as error:
        raise NoConnectServer(f"--remote {remote!r}: {error}") from None
    except ImportError as error:
        raise NoConnectServer(
            f"--remote needs Spark Connect's packages ({error}): pip install 'pyspark[connect]'"
        ) from None


class _Opening(threading.Thread):
    """Opens the session on a thread that is abandoned at the deadline: PySpark offers none."""

    def __init__(self, remote: str, settings: Mapping[str, str]) -> None:
        super().__init__(name="penstock-connect", daemon=True)
        self._remote = remote
        self._settings = settings
        self._session: SparkSession | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._session = _open(self._remote, self._settings)
        except BaseException as error:  # raised again by `wait`
            self._error = error

    def wait(
        self, endpoint: ServerEndpoint, answer_s: float, stop: threading.Event
    ) -> "SparkSession":
        self.start()
        deadline = time.monotonic() + answer_s
        while self.is_alive() and not stop.is_set() and time.monotonic() < deadline:
            self.join(_POLL_S)
        if self._error is not None:
            raise self._error
        if self._session is None and stop.is_set():
            raise ConnectStopped(
                f"stopped before the Spark Connect server at {endpoint} answered; nothing was run"
            )
        if self._session is None:
            raise NoConnectServer(
                f"{endpoint} accepts connections, but did not answer as a Spark Connect server "
                f"within {answer_s:.0f} s: correct --remote, or look at the server's log"
            )
        return self._session


def _open(remote: str, settings: Mapping[str, str]) -> "SparkSession":
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.client.retries import DefaultPolicy

    builder = SparkSession.builder.remote(remote)
    for name, value in settings.items():
        builder = builder.config(name, value)
    accept_default_mode_on_connect()
    spark = builder.getOrCreate()
    policy = DefaultPolicy(max_retries=_RETRIES, max_backoff=_MAX_BACKOFF_MS)
    spark.client.set_retry_policies([policy])
    _ = spark.version  # the first call, if there are no settings
    return spark
