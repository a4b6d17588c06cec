"""`penstock.Broker`: a real broker in one line, for tests, notebooks and scripts.

It is a child process by default, so that a busy program does not slow it down, and it ends with
its parent.
"""

import asyncio
import atexit
import os
import shutil
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from penstock.config.text_values import as_text
from penstock.server.broker_process import (
    START_TIMEOUT_S,
    STOP_TIMEOUT_S,
    BrokerNotStarted,
    BrokerProcess,
)
from penstock.server.development_defaults import DEVELOPMENT_SETTINGS
from penstock.testing.admin_calls import new_topic
from penstock.testing.default_config import read_default_config
from penstock.testing.security_kit import Security, SecurityKit

__all__ = ["Broker", "BrokerNotStarted"]


class _Serving(Protocol):
    bootstrap_servers: str

    def stop(self) -> None: ...


class Broker:
    """`with penstock.Broker() as broker:` or `broker = penstock.Broker().start()`.

    Without `data` the records are deleted at `stop`. `listen` is HOST:PORT; port 0 picks a free
    one, and a restart after `stop` or `kill` uses the same port. `config` has Kafka's names.
    `security`: "tls" (clients show certificates) or "sasl_ssl" (they log in), with certificates and
    a user made on the spot: `client_config` is what clients need.
    """

    def __init__(
        self,
        *,
        data: str | os.PathLike[str] | None = None,
        listen: str = "127.0.0.1:0",
        config: Mapping[str, object] | None = None,
        in_process: bool = False,
        security: Security | None = None,
    ) -> None:
        self._security = None if security is None else SecurityKit(security, hosts=_hosts(listen))
        self._user_data = None if data is None else Path(data)
        self._listen = listen
        self._config = dict(config or {})
        self._in_process = in_process
        self._serving: _Serving | None = None
        self._data: Path | None = self._user_data

    # -- start and stop --------------------------------------------------------------------

    def start(self) -> Self:
        """Returns when the broker serves; BrokerNotStarted says why it cannot."""
        if self._serving is not None:
            raise BrokerNotStarted(f"this broker is running already, at {self.bootstrap_servers}")
        is_first = self._data is None
        config = self._full_config()
        try:
            self._serving = _Thread(config) if self._in_process else _start_child(config)
        except BaseException:
            if is_first:  # else keep the records of the previous run for another attempt
                self._remove_temporary_data()
            raise
        host, _, _ = self._listen.rpartition(":")
        self._listen = f"{host}:{self.bootstrap_servers.rpartition(':')[2]}"
        atexit.register(self.stop)
        return self

    def stop(self) -> None:
        """A clean shutdown; temporary data is deleted. Stopping twice is fine."""
        serving, self._serving = self._serving, None
        atexit.unregister(self.stop)
        try:
            if serving is not None:
                serving.stop()
        finally:
            self._remove_temporary_data()

    def _remove_temporary_data(self) -> None:
        if self._user_data is None and self._data is not None:
            shutil.rmtree(self._data, ignore_errors=True)
            self._data = None

    def kill(self) -> None:
        """Simulate a crash (kill -9). The data stays, temporary or not, for the next `start`."""
        if not isinstance(self._serving, BrokerProcess):
            raise BrokerNotStarted("only a running child process can be killed")
        self._serving.kill()
        self._serving = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _full_config(self) -> dict[str, str]:
        if self._data is None:
            self._data = Path(tempfile.mkdtemp(prefix="penstock-"))
        config = {
            **DEVELOPMENT_SETTINGS,
            "log.dirs": str(self._data),
            "listeners": f"PLAINTEXT://{self._listen}",
            **read_default_config(),
        }
        if self._security is not None:
            config["listeners"] = f"{self._security.protocol}://{self._listen}"
            config.update(self._security.broker_config)
        config.update((name, as_text(value)) for name, value in self._config.items())
        return config

    # -- use -------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT for any Kafka client."""
        return self._get_serving().bootstrap_servers

    @property
    def client_config(self) -> dict[str, str]:
        """What a client needs, by librdkafka's names; with secrets, if there is security."""
        if self._security is None:
            return {"bootstrap.servers": self.bootstrap_servers}
        return self._security.client_config(self.bootstrap_servers)

    @property
    def client_config_file(self) -> Path:
        """The same as a file, for `--client-config`. Only with `security`."""
        if self._security is None:
            raise ValueError("this broker has no security: clients need only bootstrap_servers")
        return self._security.write_client_config(self.bootstrap_servers)

    @property
    def data(self) -> Path:
        """The log directory."""
        if self._data is None:
            raise BrokerNotStarted("the data directory is created by start() and deleted by stop()")
        return self._data

    @property
    def pid(self) -> int:
        serving = self._get_serving()
        return serving.pid if isinstance(serving, BrokerProcess) else os.getpid()

    def logs(self) -> str:
        """The broker's log so far: warnings, closed connections, failures."""
        serving = self._get_serving()
        if not isinstance(serving, BrokerProcess):
            raise BrokerNotStarted("a broker in this process logs to its stderr")
        return serving.read_logs()

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = 1,
        config: Mapping[str, object] | None = None,
    ) -> None:
        from penstock.client.blocking_admin import Admin

        with Admin(self.bootstrap_servers, config=self.client_config) as admin:
            admin.create_topics(new_topic(name, partitions, replication_factor, config))

    def _get_serving(self) -> _Serving:
        if self._serving is None:
            raise BrokerNotStarted("start() the broker first, or use it in a `with` statement")
        return self._serving


def _hosts(listen: str) -> tuple[str, ...]:
    host = listen.rpartition(":")[0].strip("[]")
    return (host,) if host else ()


def _start_child(config: Mapping[str, str]) -> BrokerProcess:
    child = BrokerProcess(config)
    child.wait_ready()
    return child


class _Thread:
    """A broker in a thread of this process, for debuggers."""

    def __init__(self, config: Mapping[str, str]) -> None:
        from penstock.config.raw_config import RawConfig
        from penstock.server.run import find_loop_factory

        self._raw_config = RawConfig.from_mapping(config, where="penstock.Broker(config=...)")
        self._factory = find_loop_factory()
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self.bootstrap_servers = ""
        self._thread = threading.Thread(target=self._run, name="penstock-broker", daemon=True)
        self._thread.start()
        self._ready.wait(START_TIMEOUT_S)
        if not self.bootstrap_servers:
            reason = self._error or f"not ready in {START_TIMEOUT_S} s"
            raise BrokerNotStarted(f"the broker did not start: {reason}") from self._error

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=self._factory) as runner:
                runner.run(self._serve())
        except BaseException as error:  # raised again in the thread that stops it
            self._error = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        from penstock.logs.broker_loggers import BrokerLoggers, write_to_stderr_by_default
        from penstock.server.lifecycle import BrokerLifecycle
        from penstock.server.run import log_settings

        write_to_stderr_by_default(*log_settings(self._raw_config))

        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        broker = BrokerLifecycle(self._raw_config, loggers=BrokerLoggers())
        await broker.run(on_ready=self._on_ready, stop=self._stop)

    def _on_ready(self, broker: object) -> None:
        self.bootstrap_servers = str(getattr(broker, "bootstrap_servers", ""))
        self._ready.set()

    def stop(self) -> None:
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(STOP_TIMEOUT_S)
        if self._error is not None:
            raise RuntimeError("the broker failed") from self._error
