"""Which requests change the cluster, and what of them is audited: the names of what they change.

No values: a setting may be a secret. Invariant: a served API that needs a permission to create,
delete or alter has a row here, or is in NOT_AUDITED with a reason.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.model.acls import AclOperation, AclPermission, ResourceType, kafka_word
from penstock.model.admin import ConfigResourceType
from penstock.model.errors import get_error
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.frames import SIZE_BYTES
from penstock.protocol.headers import read_response_header
from penstock.protocol.messages import decode_response
from penstock.protocol.response_errors import find_errors
from penstock.security.audit.events import OK, AuditedResource, AuditStatus

if TYPE_CHECKING:
    from penstock.apis.api import Request
    from penstock.network.in_flight_request import InFlightRequest, RequestObserver
    from penstock.security.audit.trail import AuditTrail

_Resources = Iterable[AuditedResource]


class AuditedChange(NamedTuple):
    activity: str  # OCSF's
    find_resources: Callable[[Any], _Resources]  # of the request's message


def _topics(message: Any) -> _Resources:
    return (AuditedResource("topic", topic.name) for topic in message.topics)


def _deleted_topics(message: Any) -> _Resources:
    """By name, or by id."""
    for topic in getattr(message, "topics", ()):
        yield AuditedResource("topic", topic.name or f"id {topic.topic_id}")
    for name in getattr(message, "topic_names", ()):
        yield AuditedResource("topic", name)


def _elected(message: Any) -> _Resources:
    return (AuditedResource("topic", topic.topic) for topic in message.topic_partitions or ())


def _groups(message: Any) -> _Resources:
    return (AuditedResource("group", group) for group in message.groups_names)


def _group_offsets(message: Any) -> _Resources:
    topics = tuple(topic.name for topic in message.topics)
    return (AuditedResource("group", message.group_id, topics),)


def _configs(message: Any) -> _Resources:
    for resource in message.resources:
        names = tuple(config.name for config in resource.configs)
        kind = _word(ConfigResourceType, resource.resource_type)
        yield AuditedResource(kind, resource.resource_name, names)


def _created_acls(message: Any) -> _Resources:
    for acl in message.creations:
        rule = (
            f"{_word(AclPermission, acl.permission_type)} {_word(AclOperation, acl.operation)} to "
            f"{acl.principal} from {acl.host}"
        )
        yield AuditedResource(_word(ResourceType, acl.resource_type), acl.resource_name, (rule,))


def _deleted_acls(message: Any) -> _Resources:
    for wanted in message.filters:
        kind = _word(ResourceType, wanted.resource_type_filter)
        principal = (f"of {wanted.principal_filter}",) if wanted.principal_filter else ()
        yield AuditedResource(kind, wanted.resource_name_filter or "any", principal)


def _quotas(message: Any) -> _Resources:
    for entry in message.entries:
        for part in entry.entity:
            keys = tuple(operation.key for operation in entry.ops)
            yield AuditedResource(part.entity_type, part.entity_name or "<default>", keys)


def _credentials(message: Any) -> _Resources:
    """Names of users alone: neither salts nor hashes."""
    for change in message.upsertions:
        yield AuditedResource("user", change.name, ("set a SCRAM credential",))
    for change in message.deletions:
        yield AuditedResource("user", change.name, ("delete a SCRAM credential",))


AUDITED: Mapping[ApiKey, AuditedChange] = MappingProxyType(
    {
        ApiKey.CREATE_TOPICS: AuditedChange("Create", _topics),
        ApiKey.DELETE_TOPICS: AuditedChange("Delete", _deleted_topics),
        ApiKey.CREATE_PARTITIONS: AuditedChange("Update", _topics),
        ApiKey.DELETE_RECORDS: AuditedChange("Delete", _topics),
        ApiKey.ALTER_CONFIGS: AuditedChange("Update", _configs),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: AuditedChange("Update", _configs),
        ApiKey.CREATE_ACLS: AuditedChange("Create", _created_acls),
        ApiKey.DELETE_ACLS: AuditedChange("Delete", _deleted_acls),
        ApiKey.ALTER_CLIENT_QUOTAS: AuditedChange("Update", _quotas),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: AuditedChange("Update", _credentials),
        ApiKey.ELECT_LEADERS: AuditedChange("Update", _elected),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: AuditedChange("Update", _topics),
        ApiKey.DELETE_GROUPS: AuditedChange("Delete", _groups),
        ApiKey.OFFSET_DELETE: AuditedChange("Delete", _group_offsets),
    }
)
NOT_AUDITED: Mapping[ApiKey, str] = MappingProxyType(
    {
        ApiKey.METADATA: "creates a topic only where auto.create.topics.enable lets everybody",
        ApiKey.WRITE_TXN_MARKERS: "ends a transaction, which is data",
    }
)


class AuditedRequest:
    """Implements RequestObserver, in front of another: audits one request with its response."""

    __slots__ = ("_change", "_inner", "_request", "_resources", "_trail")

    def __init__(
        self,
        request: "Request",
        change: AuditedChange,
        inner: "RequestObserver",
        trail: "AuditTrail",
    ) -> None:
        self._request = request
        self._change = change
        self._inner = inner
        self._trail = trail
        # Now: the message is a view of the receive buffer in some requests.
        self._resources = tuple(change.find_resources(request.message))

    def on_answered(self, request: "InFlightRequest") -> None:
        if not getattr(self._request.message, "validate_only", False):
            self._trail.note_change(
                self._request.caller,
                self._request.key.title,
                self._change.activity,
                self._resources,
                self._find_status(request),
            )
        self._inner.on_answered(request)

    def on_sent(self, elapsed_s: float) -> None:
        self._inner.on_sent(elapsed_s)

    def count_error(self, code: int, request: "InFlightRequest") -> None:
        self._inner.count_error(code, request)

    def _find_status(self, request: "InFlightRequest") -> AuditStatus:
        """From the response as it is sent: some handlers encode theirs by hand."""
        key, version = self._request.key, self._request.version
        frame = b"".join(bytes(part) for part in request.parts if not hasattr(part, "slices"))
        _, body = read_response_header(memoryview(frame)[SIZE_BYTES:], key, version)
        codes = find_errors(decode_response(key, version, body))
        if not codes:
            return OK
        names = ", ".join(sorted({get_error(code).name for code in codes}))
        return AuditStatus(len(codes), max(len(self._resources), len(codes)), names)


def _word(kind: Any, code: int) -> str:
    """In lower case, or the number of one that does not exist."""
    try:
        return kafka_word(kind(code)).lower()
    except ValueError:
        return str(code)


def find_audited(key: Any) -> AuditedChange | None:
    return AUDITED.get(key) if isinstance(key, ApiKey) else None
