"""The client id and host of a request, as groups store and show them."""

from penstock.apis.api import Request


def client_id(request: Request) -> str:
    return request.client_id or ""


def client_host(request: Request) -> str:
    """The host with a leading slash, as in Kafka."""
    return f"/{request.caller.host}"
