"""`penstock.Admin`: `AsyncAdmin` for programs without an event loop, or beside one.

Its event loop runs on a thread of its own, so that any thread may call it, a notebook's too. Every
operation is AsyncAdmin's, said there. Invariant: a process never touches the event loop or the
sockets of the process that it was forked from.
"""

import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import CancelledError
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from penstock.client.address import parse_bootstrap
from penstock.client.async_admin import DEFAULT_CLIENT_ID, DEFAULT_TIMEOUT_S, AsyncAdmin
from penstock.client.errors import ClientClosed
from penstock.client.loop_thread import LoopThread

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


class _Connections:
    """An AsyncAdmin and its event loop, in one process, made by the first operation there."""

    def __init__(self, make: Callable[[], AsyncAdmin]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._loop: LoopThread | None = None
        self._admin: AsyncAdmin | None = None
        self._is_closed = False

    def run(self, work: Callable[[AsyncAdmin], Coroutine[Any, Any, _Result]]) -> _Result:
        with self._lock:
            if self._is_closed:
                raise ClientClosed("this Admin is closed; create a new one")
            self._loop = self._loop or LoopThread("penstock-admin")
            admin = self._admin = self._admin or self._make()
            future = self._loop.submit(lambda: work(admin))
        try:
            return future.result()
        except CancelledError:
            raise ClientClosed("this Admin was closed during the operation") from None
        finally:
            future.cancel()  # after Ctrl-C; no effect on a finished one

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            loop, self._loop = self._loop, None
            admin, self._admin = self._admin, None
        if loop is not None and admin is not None:
            loop.submit(admin.close).result()
            loop.stop()


def _blocking(
    operation: Callable[Concatenate[AsyncAdmin, _Given], Coroutine[Any, Any, _Result]],
) -> Callable[Concatenate["Admin", _Given], _Result]:
    """The same operation, which returns when it is done."""

    @wraps(operation)
    def blocking(self: "Admin", /, *args: _Given.args, **kwargs: _Given.kwargs) -> _Result:
        return self._run(lambda admin: operation(admin, *args, **kwargs))

    return blocking


class Admin:
    """Administers a cluster: `with penstock.Admin("127.0.0.1:9092") as admin`. It connects on first
    use; any thread may use it, and a forked child connects anew.

    An operation takes one item or several. If one of several fails it raises ItemsFailed, with
    the errors and with the results of the others; for a single item it raises that item's error.
    `timeout_s` bounds all attempts of an operation together. `config`: what it needs to connect, by
    librdkafka's names or Java's, such as security.protocol and sasl.username.
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        *,
        client_id: str = DEFAULT_CLIENT_ID,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        servers = [str(address) for address in parse_bootstrap(bootstrap_servers)]

        def make() -> AsyncAdmin:
            return AsyncAdmin(servers, client_id=client_id, timeout_s=timeout_s, config=config)

        make()  # checks the arguments
        self._make = make
        # By process id. Entries inherited through a fork stay here untouched: closing them, or
        # even garbage-collecting them, would affect the parent's event loop.
        self._by_process: dict[int, _Connections] = {}
        weakref.finalize(self, _close_own, self._by_process)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Operations in other threads fail with ClientClosed."""
        self._connections().close()

    def _run(self, work: Callable[[AsyncAdmin], Coroutine[Any, Any, _Result]]) -> _Result:
        return self._connections().run(work)

    def _connections(self) -> _Connections:
        # One atomic step, so that two threads that come first get the same ones.
        return self._by_process.setdefault(os.getpid(), _Connections(self._make))

    # Topics.
    create_topics = _blocking(AsyncAdmin.create_topics)
    delete_topics = _blocking(AsyncAdmin.delete_topics)
    list_topics = _blocking(AsyncAdmin.list_topics)
    describe_topics = _blocking(AsyncAdmin.describe_topics)
    create_partitions = _blocking(AsyncAdmin.create_partitions)
    delete_records = _blocking(AsyncAdmin.delete_records)
    list_offsets = _blocking(AsyncAdmin.list_offsets)

    # Consumer groups.
    list_groups = _blocking(AsyncAdmin.list_groups)
    describe_groups = _blocking(AsyncAdmin.describe_groups)
    delete_groups = _blocking(AsyncAdmin.delete_groups)
    list_group_offsets = _blocking(AsyncAdmin.list_group_offsets)
    alter_group_offsets = _blocking(AsyncAdmin.alter_group_offsets)
    reset_group_offsets = _blocking(AsyncAdmin.reset_group_offsets)
    delete_group_offsets = _blocking(AsyncAdmin.delete_group_offsets)
    remove_group_members = _blocking(AsyncAdmin.remove_group_members)

    # Configs.
    describe_configs = _blocking(AsyncAdmin.describe_configs)
    alter_configs = _blocking(AsyncAdmin.alter_configs)
    incremental_alter_configs = _blocking(AsyncAdmin.incremental_alter_configs)

    # Access control lists.
    create_acls = _blocking(AsyncAdmin.create_acls)
    describe_acls = _blocking(AsyncAdmin.describe_acls)
    delete_acls = _blocking(AsyncAdmin.delete_acls)

    # Users.
    create_user = _blocking(AsyncAdmin.create_user)
    list_users = _blocking(AsyncAdmin.list_users)
    delete_user = _blocking(AsyncAdmin.delete_user)
    # Client quotas.
    describe_client_quotas = _blocking(AsyncAdmin.describe_client_quotas)
    alter_client_quotas = _blocking(AsyncAdmin.alter_client_quotas)

    # The cluster.
    describe_cluster = _blocking(AsyncAdmin.describe_cluster)
    describe_log_dirs = _blocking(AsyncAdmin.describe_log_dirs)
    elect_leaders = _blocking(AsyncAdmin.elect_leaders)
    alter_reassignments = _blocking(AsyncAdmin.alter_reassignments)
    cancel_reassignments = _blocking(AsyncAdmin.cancel_reassignments)
    list_reassignments = _blocking(AsyncAdmin.list_reassignments)

    # Transactions.
    list_transactions = _blocking(AsyncAdmin.list_transactions)
    describe_transactions = _blocking(AsyncAdmin.describe_transactions)
    list_open_transactions = _blocking(AsyncAdmin.list_open_transactions)
    abort_transaction = _blocking(AsyncAdmin.abort_transaction)
    fence_producers = _blocking(AsyncAdmin.fence_producers)


# Connections of a process that this one was forked from, of an Admin that is gone here.
_inherited: list[dict[int, _Connections]] = []


def _close_own(by_process: dict[int, _Connections]) -> None:
    own = by_process.pop(os.getpid(), None)
    if by_process:
        _inherited.append(by_process)
    if own is not None:
        own.close()
