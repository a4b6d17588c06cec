"""Pushes the broker's metrics to an OpenTelemetry collector, over HTTP and on a thread.

A push that fails is not repeated: counters are cumulative, and the next one has all of them. The
first failure in a row is logged, and the end of it. Headers, for keys, come from the environment
variable OTEL_EXPORTER_OTLP_HEADERS, as with every exporter.
"""

import asyncio
import gzip
import os
from collections.abc import Awaitable, Callable
from http.client import HTTPException
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit
from urllib.request import Request, urlopen

from penstock.logs.event_logger import EventLogger
from penstock.metrics.committed_times import CommittedTimes, GroupTimes
from penstock.metrics.families import Dialect
from penstock.metrics.scrape import families_of
from penstock.metrics.statistics import BrokerStatistics
from penstock.metrics.windows import RecentRequests
from penstock.server.errors import StartRefused

if TYPE_CHECKING:
    from types import ModuleType

TIMEOUT_S = 5.0
MAX_RESPONSE_BYTES = 64 * 1024  # it is not used
HEADERS_VARIABLE = "OTEL_EXPORTER_OTLP_HEADERS"


class OtlpPush:
    """`start`, then `stop`. Only `_push` runs on a thread, one at a time."""

    def __init__(
        self,
        url: str,
        *,
        collect: Callable[[], Awaitable[BrokerStatistics]],
        committed_times: CommittedTimes,
        dialect: Dialect,
        partition_limit: Callable[[], int],
        interval_ms: Callable[[], int],
        started_s: float,
        logger: EventLogger,
    ) -> None:
        self._url = url
        self._target = without_secrets(url)
        self._collect = collect
        self._committed_times = committed_times
        self._dialect = dialect
        self._partition_limit = partition_limit
        self._interval_ms = interval_ms
        self._logger = logger
        self._recent = RecentRequests(started_s)  # of the thread
        self._encoder = _load_encoder()
        self._headers = read_headers(os.environ.get(HEADERS_VARIABLE, ""))
        self._is_failing = False
        self._is_stopped = False  # the thread reads it
        self._task: asyncio.Task[None] | None = None

    def start(self, tasks: asyncio.TaskGroup) -> None:
        self._task = tasks.create_task(self._run(), name="otlp-push")

    def describe(self) -> str:
        return f"{self._target} every {self._interval_ms() / 1000:g} s"

    def stop(self) -> None:
        """A request under way is the last one."""
        self._is_stopped = True
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_ms() / 1000)
            await self.push()

    async def push(self) -> None:
        statistics, limit = await self._collect(), self._partition_limit()
        times = await self._committed_times.find(statistics, limit)
        try:
            await asyncio.to_thread(self._push, statistics, limit, times)
        except OSError as error:
            if not self._is_failing:
                self._logger.warning(
                    "push_failed",
                    f"metrics cannot be pushed to {self._target}: {error}; it goes on trying",
                )
            self._is_failing = True
        else:
            if self._is_failing:
                self._logger.info("push_resumed", f"metrics are pushed to {self._target} again")
            self._is_failing = False

    def _push(self, statistics: BrokerStatistics, partition_limit: int, times: GroupTimes) -> None:
        """Raises OSError if the collector does not take them."""
        resource = {
            "service.name": "penstock",
            "service.version": statistics.version,
            "service.instance.id": str(statistics.broker_id),
            "penstock.cluster.id": statistics.cluster_id,
        }
        times = self._encoder.Times(
            int(statistics.process.start_time_s * 1e9), statistics.wall_ms * 1_000_000
        )
        families = families_of(statistics, self._recent, partition_limit, times)
        for body in self._encoder.encode_requests(families, self._dialect, resource, times):
            if self._is_stopped:
                return
            self._send(body)

    def _send(self, body: bytes) -> None:
        request = Request(  # noqa: S310 (http or https: the setting is checked)
            self._url,
            data=gzip.compress(body, compresslevel=1),
            headers={
                **self._headers,
                "Content-Type": "application/x-protobuf",
                "Content-Encoding": "gzip",
                "User-Agent": "penstock",
            },
            method="POST",
        )
        try:
            with urlopen(request, timeout=TIMEOUT_S) as response:  # noqa: S310 (likewise)
                response.read(MAX_RESPONSE_BYTES)
        except (HTTPException, ValueError) as error:
            # Its text may have a part of the URL, and with it a password.
            name = type(error).__name__
            raise OSError(f"no response in HTTP ({name}); gRPC is not spoken here") from None


def _load_encoder() -> "ModuleType":
    try:
        from penstock.metrics import otlp
    except ImportError as error:
        raise StartRefused(
            f"metrics.otlp.endpoint needs the extra otlp ({error}): pip install 'penstock[otlp]'"
        ) from error
    return otlp


def without_secrets(url: str) -> str:
    """The URL for the log: without its user and password, and without its query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def read_headers(text: str) -> dict[str, str]:
    """`name=value,...`, with values as in URLs."""
    pairs = (part.partition("=") for part in text.split(",") if "=" in part)
    return {name.strip(): unquote(value.strip()) for name, _, value in pairs}
