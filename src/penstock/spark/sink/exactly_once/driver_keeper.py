"""Renews the leases of a driver's queries in the middle of their micro-batches, also while none of
their tasks runs: the driver is slow to commit, or an earlier stage is computed again.

A small process beside the driver, forked from the Python worker that plans its first batch. It ends
with the driver, and renews nothing for a query that was stopped or a driver that a signal has
stopped. `planned_batches` decides who is alive; decision 0041 says why it is done this way.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import socket

from penstock.client.cluster import ClusterClient
from penstock.client.errors import ClientError
from penstock.spark.connect.connections import shared_client
from penstock.spark.errors import SparkSourceError
from penstock.spark.sink.exactly_once import driver_messages
from penstock.spark.sink.exactly_once.driver_messages import Ended, KeeperAddress, Planned
from penstock.spark.sink.exactly_once.lease import renewal_interval_ms
from penstock.spark.sink.exactly_once.lease_keeper import is_stopped
from penstock.spark.sink.exactly_once.lease_log import IntroductionReader, renew_lease
from penstock.spark.sink.exactly_once.planned_batches import PlannedBatches, QueryRun
from penstock.spark.sink.exactly_once.stream_threads import find_driver
from penstock.spark.sink.options import SinkOptions

_CHECKS = 2  # within an interval
_FIRST_INHERITED = 3  # the streams below are replaced
_FAILURES = (ClientError, SparkSourceError, TimeoutError, OSError)
_log = logging.getLogger(__name__)


def new_plan() -> str:
    """The name of one planned micro-batch."""
    return secrets.token_hex(8)


def note_planned(options: SinkOptions, plan: str) -> None:
    """Called on the driver before the tasks of a micro-batch run. Starts the keeper if there is
    none. Without it, a batch lives as long as its tasks give signs of life."""
    driver = find_driver()
    if driver is None:
        return
    address = KeeperAddress(driver, options.client, options.abandoned_after_ms)
    message = Planned(plan, driver.stream_threads())
    try:
        if not driver_messages.send(address, message):
            _start(address)
            driver_messages.send(address, message)
    except OSError as error:
        _log.warning("cannot keep the leases of this driver's queries: %s", error)


def note_ended(options: SinkOptions, plan: str, run: QueryRun) -> None:
    """Called on the driver after a commit or an abort."""
    driver = find_driver()
    if driver is not None:
        address = KeeperAddress(driver, options.client, options.abandoned_after_ms)
        with contextlib.suppress(OSError):
            driver_messages.send(address, Ended(plan, run))


def _start(address: KeeperAddress) -> None:
    receiver = driver_messages.listen(address)
    if receiver is None:
        return  # another worker has just started it
    with receiver:
        child = os.fork()
        if child == 0:
            _detach(address, receiver)
        os.waitpid(child, 0)


def _detach(address: KeeperAddress, receiver: socket.socket) -> None:
    """In the forked process, which never returns to Spark's code. It is forked once more, so that
    nobody has to wait for it, and stays in the group of Spark's daemon, to end with Spark."""
    try:
        if os.fork() == 0:
            _close_inherited(receiver.fileno())
            client = shared_client(address.settings)
            keeper = DriverKeeper(address, receiver)
            client.start(keeper.run).result()
    finally:
        os._exit(0)


def _close_inherited(kept: int) -> None:
    """Spark must see that its worker has ended, and nobody reads what is printed here."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(_FIRST_INHERITED):
        os.dup2(nothing, stream)
    os.closerange(_FIRST_INHERITED, kept)
    os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))


class DriverKeeper:
    """`run` it until the driver has ended. Owned by one event loop."""

    def __init__(self, address: KeeperAddress, receiver: socket.socket) -> None:
        self._driver = address.driver
        self._receiver = receiver
        self._interval_ms = renewal_interval_ms(address.abandoned_after_ms)
        self._batches = PlannedBatches()

    async def run(self, client: ClusterClient) -> None:
        asyncio.get_running_loop().add_reader(self._receiver, self._receive)
        introductions = IntroductionReader(client, timeout_ms=self._interval_ms)
        while self._driver.is_running():
            await asyncio.sleep(self._interval_ms / _CHECKS / 1000)
            if self._batches.has_due:
                await self._read_introductions(introductions)
            queries = self._batches.check(self._driver.stream_threads())
            if not is_stopped(self._driver.pid):
                await self._renew(client, queries)

    def _receive(self) -> None:
        for message in driver_messages.receive(self._receiver):
            if isinstance(message, Planned):
                self._batches.plan(message.plan, message.threads)
            else:
                self._batches.end(message.plan, message.run)

    async def _read_introductions(self, reader: IntroductionReader) -> None:
        with contextlib.suppress(*_FAILURES):  # read at the next check
            for introduction in await reader.read():
                run = QueryRun(introduction.query, introduction.run)
                self._batches.introduce(introduction.plan, run)

    async def _renew(self, client: ClusterClient, queries: list[str]) -> None:
        for query in queries:
            with contextlib.suppress(*_FAILURES):  # tried again at the next check
                await renew_lease(client, query, timeout_ms=self._interval_ms)
