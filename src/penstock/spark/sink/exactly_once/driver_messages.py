"""What processes of a Spark driver tell its lease keeper: datagrams to an abstract Unix socket.

The address exists exactly as long as the keeper, so that a failed send says that there is none.
Nobody waits for anything here, and nothing that goes wrong fails a query.
"""

import contextlib
import hashlib
import json
import os
import socket
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from penstock.spark.connect.connections import ClientSettings
from penstock.spark.sink.exactly_once.planned_batches import QueryRun, Threads
from penstock.spark.sink.exactly_once.stream_threads import Driver, StreamThread

_MAX_BYTES = 64 * 1024
_CREDENTIALS = struct.Struct("3i")  # process, user, group


class KeeperAddress(NamedTuple):
    """A keeper serves the queries of one driver that have the same bound on the same cluster."""

    driver: Driver
    settings: ClientSettings
    abandoned_after_ms: int

    @property
    def name(self) -> bytes:
        cluster = hashlib.sha256(repr((self.settings, self.abandoned_after_ms)).encode())
        parts = (os.getuid(), self.driver.pid, self.driver.started, cluster.hexdigest()[:16])
        return b"\0penstock-spark-" + "-".join(map(str, parts)).encode()


class Planned(NamedTuple):
    plan: str
    threads: Threads


class Ended(NamedTuple):
    plan: str
    run: QueryRun


def send(address: KeeperAddress, message: Planned | Ended) -> bool:
    """False: there is no keeper. One that is too busy to receive misses the message."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        try:
            sender.sendto(_encode(message), address.name)
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:  # full, or too many threads for a datagram
            return True
    return True


def listen(address: KeeperAddress) -> socket.socket | None:
    """None: somebody else listens there."""
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    receiver.setblocking(False)
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    try:
        receiver.bind(address.name)
    except OSError:
        receiver.close()
        return None
    return receiver


def receive(receiver: socket.socket) -> Iterator[Planned | Ended]:
    """All that has arrived from this user's processes; other users may send, too."""
    while True:
        try:
            data, ancillary, _, _ = receiver.recvmsg(
                _MAX_BYTES, socket.CMSG_SPACE(_CREDENTIALS.size)
            )
        except BlockingIOError:
            return
        users = [_CREDENTIALS.unpack(part)[1] for _, _, part in ancillary]
        if users == [os.getuid()]:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                yield _decode(json.loads(data))


def _encode(message: Planned | Ended) -> bytes:
    if isinstance(message, Planned):
        return json.dumps({"planned": message.plan, "threads": sorted(message.threads)}).encode()
    return json.dumps({"ended": message.plan, "run": message.run}).encode()


def _decode(fields: Any) -> Planned | Ended:
    if "planned" in fields:
        threads = frozenset(StreamThread(*thread) for thread in fields["threads"])
        return Planned(str(fields["planned"]), threads)
    return Ended(str(fields["ended"]), QueryRun(*fields["run"]))
