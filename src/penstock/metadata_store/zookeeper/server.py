"""ZooKeeper servers on this machine: one to five processes, started from PySpark's jars.

For a cluster on one machine and for tests; not needed with an existing ZooKeeper. The servers
listen on the loopback interface only, and end with the process that started them, even if it is
killed.
"""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

from penstock.config.java import find_java
from penstock.metadata_store.errors import ZooKeeperMissing
from penstock.metadata_store.zookeeper.jars import find_jars

MAX_SERVERS = 5
HEAP_MB = 64
START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 10.0
_HOST = "127.0.0.1"
_POLL_S = 0.02
_LOG_TAIL_BYTES = 2_000
_START_TRIES = 3  # a port that was free may be taken before the server has it

# Without this a server would outlive a parent that is killed: the shell waits for the end of its
# input, which the kernel closes when the parent ends.
_GUARD = """
exec 3<&0
"$@" </dev/null 3<&- &
server=$!
(while read -r line <&3; do :; done; kill -TERM "$server" 2>/dev/null) &
exec 3<&-
wait "$server"
"""

_JAVA_OPTIONS = (
    "-Xms8m",
    "-Xss512k",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:ReservedCodeCacheSize=16m",
    "-XX:-UsePerfData",
    "-Xshare:auto",
    "-Djava.awt.headless=true",
    "-Dzookeeper.jmx.log4j.disable=true",
    "-Dzookeeper.preAllocSize=1024",  # KiB of a transaction log at once, in place of 64 MiB
)

_SETTINGS = {
    "tickTime": "500",  # sessions expire up to a tick late
    "initLimit": "40",  # ticks
    "syncLimit": "20",
    "minSessionTimeout": "1000",
    "maxSessionTimeout": "60000",
    "clientPortAddress": _HOST,
    "maxClientCnxns": "0",
    "admin.enableServer": "false",
    "4lw.commands.whitelist": "srvr",  # ZooKeeper obeys this one in any case, and no other
    "snapCount": "10000",
    "autopurge.snapRetainCount": "3",
    "autopurge.purgeInterval": "1",  # hours
    "quorumListenOnAllIPs": "false",
}

_LOG_SETTINGS = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %-5p %c{1} %m%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
"""


class ServerPorts(NamedTuple):
    client: int
    quorum: int
    election: int


class ZooKeeperServer:
    """One process of an ensemble. It can be started and stopped repeatedly; its data stays."""

    def __init__(
        self,
        number: int,
        *,
        folder: Path,
        ensemble: Sequence[ServerPorts],
        heap_mb: int = HEAP_MB,
        settings: Mapping[str, str] | None = None,
        java_options: Sequence[str] = (),
    ) -> None:
        self.number = number  # from 1
        self.log_path = folder / "zookeeper.log"
        self._folder = folder
        self._ensemble = ensemble
        self._heap_mb = heap_mb
        self._settings = dict(settings or {})
        self._java_options = tuple(java_options)
        self._process: subprocess.Popen[bytes] | None = None
        self._write_files()

    @property
    def address(self) -> str:
        return f"{_HOST}:{self._port}"

    @property
    def _port(self) -> int:
        return self._ensemble[self.number - 1].client

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def has_ended(self) -> bool:
        """True if it ended without `stop` or `kill`."""
        return self._process is not None and self._process.poll() is not None

    @property
    def process_group(self) -> int:
        """The process group of the server and its guard shell."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Returns at once; the server is ready when `find_mode` is not None."""
        if self.is_running:
            return
        java = find_java()
        command = [
            java.command,
            *_JAVA_OPTIONS,
            *self._java_options,
            f"-Xmx{self._heap_mb}m",
            f"-Dlog4j2.configurationFile={self._folder / 'log4j2.properties'}",
            "-cp",
            os.pathsep.join(find_jars()),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(self._folder / "zoo.cfg"),
        ]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _GUARD, "zookeeper", *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                process_group=0,  # Ctrl-C goes to the parent only, because brokers stop first
            )

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGCONT)  # if it was paused
        process.stdin.close()  # makes the guard shell stop the server
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            _kill(process)

    def kill(self) -> None:
        """Simulate a crash; returns when its port is free again."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        _kill(process)
        process.stdin.close()
        _wait_until(lambda: not _is_listening(self._port), lambda is_late: None)

    def pause(self) -> None:
        os.killpg(self.process_group, signal.SIGSTOP)

    def resume(self) -> None:
        os.killpg(self.process_group, signal.SIGCONT)

    def find_mode(self) -> str | None:
        """standalone, leader or follower; None while it does not serve."""
        for line in _ask_four_letters(self._port, b"srvr").splitlines():
            if line.startswith("Mode: "):
                return line.removeprefix("Mode: ")
        return None

    def read_log_end(self) -> str:
        with suppress(OSError):
            return self.log_path.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace")
        return ""

    def _write_files(self) -> None:
        data = self._folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        settings = {**_SETTINGS, "dataDir": str(data), "clientPort": str(self._port)}
        if len(self._ensemble) > 1:
            for number, ports in enumerate(self._ensemble, 1):
                settings[f"server.{number}"] = f"{_HOST}:{ports.quorum}:{ports.election}"
            (data / "myid").write_text(f"{self.number}\n")
        settings |= self._settings
        lines = [f"{name}={value}\n" for name, value in settings.items()]
        (self._folder / "zoo.cfg").write_text("".join(lines))
        (self._folder / "log4j2.properties").write_text(_LOG_SETTINGS)


class ZooKeeperEnsemble:
    """An ensemble as a context manager; each of `servers` can be killed separately. `settings` and
    `java_options` are added to those of every server, such as TLS."""

    def __init__(
        self,
        folder: str | Path,
        servers: int = 1,
        *,
        heap_mb: int = HEAP_MB,
        settings: Mapping[str, str] | None = None,
        java_options: Sequence[str] = (),
    ) -> None:
        if not 1 <= servers <= MAX_SERVERS:
            raise ValueError(f"an ensemble has 1 to {MAX_SERVERS} servers, not {servers}")
        self._folder = Path(folder)
        self._count = servers
        self._heap_mb = heap_mb
        self._settings = settings
        self._java_options = java_options
        self.servers: list[ZooKeeperServer] = []

    @property
    def connect(self) -> str:
        """The connect string; known once started."""
        return ",".join(server.address for server in self.servers)

    @property
    def folders(self) -> list[Path]:
        """The data directories, one per server."""
        return [self._folder / f"zookeeper{number}" for number in range(1, self._count + 1)]

    def start(self) -> None:
        """Returns when all serve. ZooKeeperMissing with the end of the log if one does not."""
        for tries_left in reversed(range(_START_TRIES)):
            self.servers = self._make_servers()
            try:
                for server in self.servers:
                    server.start()
                self.wait_serving()
                return
            except ZooKeeperMissing as missing:
                self.kill()
                if not tries_left or "Address already in use" not in str(missing):
                    raise

    def wait_serving(self, *, at_least: int | None = None) -> None:
        """Wait until this many servers serve; by default all."""
        wanted = self._count if at_least is None else at_least
        _wait_until(lambda: self._count_serving() >= wanted, self._refuse_if_ended)

    def stop(self) -> None:
        for server in self.servers:
            server.stop()

    def kill(self) -> None:
        for server in self.servers:
            server.kill()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop()

    def _make_servers(self) -> list[ZooKeeperServer]:
        ports = find_free_ports(3 * self._count)
        ensemble = [ServerPorts(*ports[at : at + 3]) for at in range(0, len(ports), 3)]
        return [
            ZooKeeperServer(
                number,
                folder=folder,
                ensemble=ensemble,
                heap_mb=self._heap_mb,
                settings=self._settings,
                java_options=self._java_options,
            )
            for number, folder in enumerate(self.folders, 1)
        ]

    def _count_serving(self) -> int:
        return sum(server.is_running and server.find_mode() is not None for server in self.servers)

    def _refuse_if_ended(self, is_late: bool) -> None:
        for server in self.servers:
            if server.has_ended or (is_late and server.find_mode() is None):
                why = "ended" if server.has_ended else "does not serve"
                raise ZooKeeperMissing(
                    f"ZooKeeper server {server.number} {why}; the end of {server.log_path}:\n"
                    f"{server.read_log_end()}"
                )


def _wait_until(is_so: Callable[[], bool], refuse: Callable[[bool], None]) -> None:
    """Poll; in between, `refuse` is called with whether the timeout is over, and may raise."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while not is_so():
        is_late = time.monotonic() > deadline
        refuse(is_late)
        if is_late:
            return
        time.sleep(_POLL_S)


def _kill(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((_HOST, port)) == 0


def _ask_four_letters(port: int, word: bytes) -> str:
    """Empty if the server does not answer."""
    try:
        with socket.create_connection((_HOST, port), timeout=2) as connection:
            connection.sendall(word)
            answer = b""
            while chunk := connection.recv(4096):
                answer += chunk
            return answer.decode(errors="replace")
    except OSError:
        return ""


def find_free_ports(count: int) -> list[int]:
    """All are bound at the same time, so that they differ."""
    held = [socket.socket() for _ in range(count)]
    try:
        for bound in held:
            bound.bind((_HOST, 0))
        return [int(bound.getsockname()[1]) for bound in held]
    finally:
        for bound in held:
            bound.close()
