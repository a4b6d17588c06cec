"""`penstock.Broker`: a real broker in one line, for tests, notebooks and scripts.

A child process by default, so that a busy program does not slow it down; it ends with its parent.
"""

import asyncio
import atexit
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from penstock.broker.development import DEVELOPMENT_SETTINGS

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
_MAX_TOLD_BYTES = 4000


class BrokerNotStarted(Exception):
    """The broker could not start, or was not asked to; the message holds what it said."""


class _Serving(Protocol):
    bootstrap_servers: str

    def stop(self) -> None: ...


class Broker:
    """`with penstock.Broker() as broker:` or `broker = penstock.Broker().start()`.

    Without `data` its records go with it. `listen` is HOST:PORT, port 0 a free one; started again
    after `stop` or `kill` it comes back on the same port. `config` has Kafka's names.
    """

    def __init__(
        self,
        *,
        data: str | os.PathLike[str] | None = None,
        listen: str = "127.0.0.1:0",
        config: Mapping[str, object] | None = None,
        in_process: bool = False,
    ) -> None:
        self._given_data = None if data is None else Path(data)
        self._listen = listen
        self._config = dict(config or {})
        self._in_process = in_process
        self._serving: _Serving | None = None
        self._data: Path | None = self._given_data

    # -- life ------------------------------------------------------------------------------

    def start(self) -> Self:
        """Returns when it serves; BrokerNotStarted says why it does not."""
        if self._serving is not None:
            raise BrokerNotStarted(f"this broker serves already, at {self.bootstrap_servers}")
        is_first = self._data is None
        settings = self._settings()
        try:
            self._serving = _Thread(settings) if self._in_process else _Child(settings)
        except BaseException:
            if is_first:  # else there are records of an earlier life, for another attempt
                self._remove_temporary_data()
            raise
        host, _, _ = self._listen.rpartition(":")
        self._listen = f"{host}:{self.bootstrap_servers.rpartition(':')[2]}"
        atexit.register(self.stop)
        return self

    def stop(self) -> None:
        """Cleanly; temporary data is removed. Stopping twice is fine."""
        serving, self._serving = self._serving, None
        atexit.unregister(self.stop)
        try:
            if serving is not None:
                serving.stop()
        finally:
            self._remove_temporary_data()

    def _remove_temporary_data(self) -> None:
        if self._given_data is None and self._data is not None:
            shutil.rmtree(self._data, ignore_errors=True)
            self._data = None

    def kill(self) -> None:
        """As a crash does (kill -9). Data stays, temporary or not, and `start` finds it."""
        if not isinstance(self._serving, _Child):
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

    def _settings(self) -> dict[str, str]:
        if self._data is None:
            self._data = Path(tempfile.mkdtemp(prefix="penstock-"))
        settings = {
            **DEVELOPMENT_SETTINGS,
            "log.dirs": str(self._data),
            "listeners": f"PLAINTEXT://{self._listen}",
        }
        settings.update((name, _as_text(value)) for name, value in self._config.items())
        return settings

    # -- use -------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT, for any Kafka client."""
        return self._get_serving().bootstrap_servers

    @property
    def data(self) -> Path:
        """Where its logs are."""
        if self._data is None:
            raise BrokerNotStarted("its data directory is made by start() and goes with stop()")
        return self._data

    @property
    def pid(self) -> int:
        serving = self._get_serving()
        return serving.pid if isinstance(serving, _Child) else os.getpid()

    def told(self) -> str:
        """What a child process has said so far: warnings, closed connections, failures."""
        serving = self._get_serving()
        if not isinstance(serving, _Child):
            raise BrokerNotStarted("a broker in this process says what it says on its stderr")
        return serving.read_told()

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = 1,
        config: Mapping[str, object] | None = None,
    ) -> None:
        from penstock.client.admin_values import NewTopic
        from penstock.client.cluster import ClusterClient

        topic = NewTopic(
            name=name,
            partitions=partitions,
            replication_factor=replication_factor,
            configs={key: _as_text(value) for key, value in (config or {}).items()},
        )
        servers = self.bootstrap_servers

        async def create() -> None:
            async with ClusterClient(servers) as client:
                await client.admin.create_topics([topic])

        _run_apart(create)

    def _get_serving(self) -> _Serving:
        if self._serving is None:
            raise BrokerNotStarted("start() it first, or use it in a `with` statement")
        return self._serving


class _Child:
    """A broker in a process of its own."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._told = tempfile.TemporaryFile()  # noqa: SIM115 (closed in stop or kill)
        # -c and not -m: saves the start-up time of runpy. -P: what lies in the directory that the
        # parent happens to be in (a queue.py, say) is not for the broker to import.
        command = [sys.executable, "-P", "-c", "from penstock.broker.child import main; main()"]
        self._process = subprocess.Popen(
            [*command, json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._told,
            process_group=0,  # Ctrl-C is for the parent, which may go on and use the broker
        )
        self.pid = self._process.pid
        try:
            self.bootstrap_servers = self._wait_ready()
        except BaseException:
            self._process.kill()
            self._process.wait()
            self._close()
            raise

    def _wait_ready(self) -> str:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], START_TIMEOUT_S)
        line = self._process.stdout.readline().decode() if ready else ""
        word, _, servers = line.strip().partition(" ")
        if word == "ready":
            return servers
        self._process.kill()
        code = self._process.wait()
        told = self.read_told(_MAX_TOLD_BYTES)
        why = f"it ended with exit code {code}" if ready else f"not ready in {START_TIMEOUT_S} s"
        raise BrokerNotStarted(f"the broker did not start: {why}. It said:\n{told}")

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            code = self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        told = self.read_told(_MAX_TOLD_BYTES)
        self._close()
        if code != 0:
            raise RuntimeError(f"the broker ended with exit code {code}. It said:\n{told}")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._close()

    def read_told(self, at_most_bytes: int | None = None) -> str:
        """Its end, or all of it. At a position of our own: the file's is where the child writes."""
        size = os.fstat(self._told.fileno()).st_size
        start = 0 if at_most_bytes is None else max(0, size - at_most_bytes)
        return os.pread(self._told.fileno(), size - start, start).decode(errors="replace")

    def _close(self) -> None:
        self._told.close()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


class _Thread:
    """A broker in a thread of this process, for debuggers: breakpoints and stacks are at hand."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        from penstock.broker.run import find_loop_factory
        from penstock.config.given import Given

        self._given = Given.from_mapping(settings, where="penstock.Broker(config=...)")
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
            why = self._error or f"not ready in {START_TIMEOUT_S} s"
            raise BrokerNotStarted(f"the broker did not start: {why}") from self._error

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=self._factory) as runner:
                runner.run(self._serve())
        except BaseException as error:  # raised again in the thread that stops it
            self._error = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        from penstock.broker.node import Node

        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        node = Node(self._given, report=lambda message: print(message, file=sys.stderr))
        await node.run(on_ready=self._on_ready, stop=self._stop)

    def _on_ready(self, node: object) -> None:
        self.bootstrap_servers = str(getattr(node, "bootstrap_servers", ""))
        self._ready.set()

    def stop(self) -> None:
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(STOP_TIMEOUT_S)
        if self._error is not None:
            raise RuntimeError("the broker failed") from self._error


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)


def _run_apart(work: Callable[[], Coroutine[None, None, None]]) -> None:
    """In a thread of its own: a notebook's has a running loop already."""
    with ThreadPoolExecutor(max_workers=1) as apart:
        apart.submit(lambda: asyncio.run(work())).result()
