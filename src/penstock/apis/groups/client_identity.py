"""Who asks a group for something, in the words that the group keeps and shows. Decides nothing."""

from penstock.apis.api import Request


def client_id(request: Request) -> str:
    return request.client_id or ""


def client_host(request: Request) -> str:
    """With a slash in front, as Kafka's tools show it."""
    return f"/{request.caller.host}"
