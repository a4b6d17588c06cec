"""Audit events as JSON, in the shape of OCSF 1.3: Authentication (3002) and API Activity (6003).

An event has principals, addresses and the names of resources. Invariant: no value of a setting, no
record and no credential is ever in one; what it is built from has none.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from penstock.security.principal import Caller

OCSF_VERSION = "1.3.0"
MAX_RESOURCES = 100  # named in an event; the others are counted
MAX_TEXT = 300  # characters of a name that a client has chosen
MAX_EVENT_BYTES = 64 * 1024  # with details; without them no event has more than four times as many

_AUTHENTICATION, _API_ACTIVITY = 3002, 6003
_IAM, _APPLICATION = 3, 6  # categories
_LOGON = 1
_ACTIVITIES = {"Create": 1, "Read": 2, "Update": 3, "Delete": 4}
_OTHER = 99
_SUCCESS, _FAILURE = 1, 2
_INFORMATIONAL, _MEDIUM = 1, 3  # severities


class AuditedResource(NamedTuple):
    """`details` are words of our own and names of settings, never values of them."""

    type: str
    name: str
    details: tuple[str, ...] = ()


class AuditSource(NamedTuple):
    """The broker that has seen the event, for its metadata."""

    version: str
    cluster_id: str
    broker_id: int


class AuditStatus(NamedTuple):
    """`failed` of the parts of a request; a request of one part fails or not."""

    failed: int = 0
    parts: int = 1
    detail: str = ""


OK = AuditStatus()


def authentication(caller: Caller, mechanism: str, error: str | None) -> dict[str, Any]:
    event: dict[str, Any] = {
        **_class(_AUTHENTICATION, _IAM, _LOGON, "Logon"),
        "user": _user(caller),
        **_endpoints(caller),
        "auth_protocol": mechanism,
        "is_remote": True,
        **_status(OK if error is None else AuditStatus(1, 1, error)),
    }
    if error is not None:
        del event["user"]  # whoever it is has not shown to be somebody
    return event


def denial(
    caller: Caller, request: str, operation: str, resource: AuditedResource, rule: str
) -> dict[str, Any]:
    denied = AuditStatus(1, 1, f"needs {operation} on the {resource.type}")
    return {
        **_class(_API_ACTIVITY, _APPLICATION, _OTHER, operation),
        "actor": {"user": _user(caller)},
        **_endpoints(caller),
        "api": _api(request),
        "resources": [_resource(resource)],
        "authorizations": [{"decision": "denied", "policy": {"name": clip(rule)}}],
        **_status(denied),
    }


def change(
    caller: Caller,
    request: str,
    activity: str,
    resources: Sequence[AuditedResource],
    status: AuditStatus,
) -> dict[str, Any]:
    event = {
        **_class(_API_ACTIVITY, _APPLICATION, _ACTIVITIES[activity], activity),
        "actor": {"user": _user(caller)},
        **_endpoints(caller),
        "api": _api(request),
        "resources": [_resource(resource) for resource in resources[:MAX_RESOURCES]],
        **_status(status),
    }
    if len(resources) > MAX_RESOURCES:
        event["unmapped"] = {"resources_left_out": len(resources) - MAX_RESOURCES}
    return event


def encode_event(event: Mapping[str, Any], source: AuditSource, number: str, wall_ms: int) -> bytes:
    """`number`: tells this event from all others, also if it is written twice."""
    metadata = {
        "version": OCSF_VERSION,
        "product": {"name": "Penstock", "vendor_name": "Penstock", "version": source.version},
        "uid": number,
    }
    device = {"uid": str(source.broker_id), "type": "Server", "groups": [source.cluster_id]}
    whole = {"time": wall_ms, **event, "metadata": metadata, "device": device}
    return json.dumps(whole, separators=(",", ":"), ensure_ascii=False).encode(
        errors="backslashreplace"
    )


def without_details(event: Mapping[str, Any]) -> dict[str, Any]:
    """The event with the names of its resources alone, for one that would be too large."""
    named = [
        {name: value for name, value in resource.items() if name != "labels"}
        for resource in event["resources"]
    ]
    unmapped = {**event.get("unmapped", {}), "details_left_out": True}
    return {**event, "resources": named, "unmapped": unmapped}


def clip(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}..."


def _class(number: int, category: int, activity: int, name: str) -> dict[str, Any]:
    return {
        "class_uid": number,
        "category_uid": category,
        "activity_id": activity,
        "activity_name": name,
        "type_uid": number * 100 + activity,
    }


def _user(caller: Caller) -> dict[str, Any]:
    return {"name": clip(caller.principal.name), "type": caller.principal.kind}


def _endpoints(caller: Caller) -> dict[str, Any]:
    return {"src_endpoint": {"ip": caller.host}, "dst_endpoint": {"svc_name": caller.listener}}


def _api(request: str) -> dict[str, Any]:
    return {"operation": request, "service": {"name": "Kafka"}}


def _resource(resource: AuditedResource) -> dict[str, Any]:
    shown: dict[str, Any] = {"type": resource.type, "name": clip(resource.name)}
    if resource.details:
        shown["labels"] = [clip(detail) for detail in resource.details[:MAX_RESOURCES]]
    return shown


def _status(status: AuditStatus) -> dict[str, Any]:
    if not status.failed:
        return {"status_id": _SUCCESS, "status": "Success", "severity_id": _INFORMATIONAL}
    is_partial = status.failed < status.parts
    text = f"{status.failed} of {status.parts} failed: {status.detail}"
    return {
        "status_id": _OTHER if is_partial else _FAILURE,
        "status": "Partial" if is_partial else "Failure",
        "status_detail": clip(text if status.parts > 1 else status.detail),
        "severity_id": _MEDIUM,
    }
