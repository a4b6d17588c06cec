"""Topics of a request, by name or, in newer versions, by id."""

from typing import TYPE_CHECKING, Any

from penstock.apis.access import allows_topic
from penstock.apis.api import Request
from penstock.model.errors import ErrorCode
from penstock.security.authorizer import AclOperation

if TYPE_CHECKING:
    from penstock.apis.services import Services


def find_requested_name(services: "Services", topic: Any) -> str | None:
    """None if no topic in the metadata has the id."""
    if hasattr(topic, "name"):
        name: str = topic.name
        return name
    return None if topic.topic_id is None else services.metadata.find_name(topic.topic_id)


def refuse_topic(
    request: Request, services: "Services", operation: AclOperation, name: str | None
) -> ErrorCode:
    """The error with which the topic is refused, or NONE. Does not check whether it exists."""
    if name is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not allows_topic(request, services, operation, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.NONE
