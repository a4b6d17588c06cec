"""One broker from start to stop: serves until it is asked to stop, or until a part of it fails.

`broker_server` has the parts. Invariant: an unexpected failure of any part ends the whole broker
without the marker of a clean shutdown, and `run` raises it (docs/failures.md).
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from penstock.config.raw_config import ConfigError, RawConfig
from penstock.io.disk import Disk, RealDisk
from penstock.logs.broker_loggers import BrokerLoggers
from penstock.metadata_store.errors import ConnectionLoss, DamagedZnode
from penstock.purgatory.loop_timers import monotonic_ms
from penstock.server.broker_server import BrokerServer
from penstock.server.errors import StartRefused
from penstock.server.pause_log import PauseLog
from penstock.server.stall_log import StallLog
from penstock.server.warm_up import everything, warm_up
from penstock.server.watchdog import Watchdog
from penstock.storage.errors import DirectoryFailed

__all__ = ["BrokerFailed", "BrokerLifecycle", "BrokerStranded", "StartRefused"]


class BrokerFailed(Exception):
    """A part failed unexpectedly. Its error is the cause."""


class BrokerStranded(BrokerFailed):
    """All log directories or the metadata store have failed, or the controller found a damaged
    znode; the message says which."""


class BrokerLifecycle:
    """Run once. `bootstrap_servers` is available once it is ready."""

    def __init__(
        self, raw_config: RawConfig, *, loggers: BrokerLoggers, disk: Disk | None = None
    ) -> None:
        self._logger = loggers.get("server")
        stalls = StallLog(self._logger, monotonic_ms)
        pauses = PauseLog(self._logger, monotonic_ms)
        self._watchdog = Watchdog(on_stall=stalls.add, on_pause=pauses.add)
        self._server = BrokerServer(
            raw_config,
            loggers=loggers,
            disk=RealDisk() if disk is None else disk,
            watchdog=self._watchdog,
            stalls=stalls,
            pauses=pauses,
        )
        self._is_serving = False
        self._failure: asyncio.Future[None] | None = None  # made by `run`

    @property
    def bootstrap_servers(self) -> str:
        return self._server.addresses.bootstrap_servers

    async def run(
        self, *, on_ready: "Callable[[BrokerLifecycle], None]", stop: asyncio.Event
    ) -> None:
        """Serve until `stop`. StartRefused or ConfigError if it cannot start, BrokerFailed
        later."""
        loop = asyncio.get_running_loop()
        self._failure = loop.create_future()
        loop.set_exception_handler(self._on_loop_error)
        self._watchdog.start(loop)
        try:
            await self._serve(on_ready, stop)
        except BaseExceptionGroup as group:
            raise _single(group, is_serving=self._is_serving) from group
        finally:
            self._watchdog.stop()
            self._server.abandon()  # does nothing after a clean stop

    async def _serve(
        self, on_ready: "Callable[[BrokerLifecycle], None]", stop: asyncio.Event
    ) -> None:
        async with asyncio.TaskGroup() as tasks:
            await self._server.open(tasks)
            self._is_serving = True
            on_ready(self)
            warming = tasks.create_task(warm_up(everything()), name="warm-up")
            await self._wait_for_end(stop)
            warming.cancel()
            await self._server.close()

    async def _wait_for_end(self, stop: asyncio.Event) -> None:
        """Raises the failure of a callback. A task that fails ends the task group instead."""
        assert self._failure is not None
        stopping = asyncio.create_task(stop.wait(), name="wait-stop")
        try:
            await asyncio.wait((stopping, self._failure), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            with suppress(asyncio.CancelledError):
                await stopping
        if self._failure.done():
            await self._failure

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A callback raised; the event loop alone would log it and go on."""
        assert self._failure is not None
        error = context.get("exception") or RuntimeError(str(context.get("message")))
        if self._failure.done():
            self._logger.error(
                "failure_while_stopping", f"another failure while the broker stops: {error!r}"
            )
        else:
            self._failure.set_exception(error)


def _single(group: BaseExceptionGroup[BaseException], *, is_serving: bool) -> Exception:
    """The one error for the caller: a refused start, a stranded broker, or a failure."""
    refused, _ = group.split((StartRefused, ConfigError))
    if refused is not None:
        return _first(refused)
    stranded, others = group.split((DirectoryFailed, ConnectionLoss, DamagedZnode))
    if stranded is not None and others is None:
        error = _first(stranded)
        if isinstance(error, DamagedZnode) and not is_serving:
            return StartRefused(str(error))  # found by the controller of this start
        return BrokerStranded(str(error))
    return BrokerFailed(str(group))


def _first(group: BaseExceptionGroup[BaseException]) -> Exception:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, Exception)
    return error
