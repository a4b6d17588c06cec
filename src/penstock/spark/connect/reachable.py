"""Connects to a cluster before Spark starts, so that a wrong address fails in half a second instead
of half a minute.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.client.errors import ClientError
from penstock.spark.connect.connections import BlockingClient, settings_of, shared_client
from penstock.spark.failures import ClusterNotReady

_TIMEOUT_MS = 15_000
_OPTION = "--bootstrap names"


def connect(bootstrap: str, address_source: str = _OPTION) -> BlockingClient:
    """Tries every address once. `address_source` is the part of the error that says which option
    names the address."""
    client = shared_client(settings_of(bootstrap, request_timeout_ms=_TIMEOUT_MS))
    with explaining_unreachable(address_source):
        client.run(lambda kafka: kafka.connect())
    return client


@contextmanager
def explaining_unreachable(address_source: str = _OPTION) -> Iterator[None]:
    """Raises the client's errors as ClusterNotReady, with what to check."""
    try:
        yield
    except ClientError as error:
        raise ClusterNotReady(
            f"{error}; is the broker running? `penstock up` starts one here, {address_source} its "
            "address"
        ) from None
