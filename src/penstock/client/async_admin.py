"""`penstock.AsyncAdmin`: administers a cluster from a program with an event loop.

`penstock.Admin` is the same for other programs. Invariant: an operation that returns was carried
out for every item; otherwise it raises, with what failed and what did not.
"""

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from penstock.client.admin_acls import AclOperations
from penstock.client.admin_cluster import ClusterOperations
from penstock.client.admin_configs import ConfigOperations
from penstock.client.admin_groups import GroupOperations
from penstock.client.admin_quotas import QuotaOperations
from penstock.client.admin_topics import TopicOperations
from penstock.client.admin_transactions import TransactionOperations
from penstock.client.admin_users import UserOperations

DEFAULT_CLIENT_ID = "penstock-admin"
DEFAULT_TIMEOUT_S = 30.0


class AsyncAdmin(
    TopicOperations,
    GroupOperations,
    ConfigOperations,
    ClusterOperations,
    TransactionOperations,
    AclOperations,
    UserOperations,
    QuotaOperations,
):
    """`async with penstock.AsyncAdmin("127.0.0.1:9092") as admin`. It connects on first use, and
    belongs to the event loop that uses it first.

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
        super().__init__(bootstrap_servers, client_id=client_id, timeout_s=timeout_s, config=config)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Pending operations fail with ClientClosed."""
        await self._client.close()
