"""A client of schema registries with Confluent's REST API, and their framing of values.

Used on the driver and in Spark's Python workers, which keep what they have looked up. A value
begins with a zero byte and the id of its writer's schema, four bytes, big-endian.
"""

import base64
import json
from http.client import HTTPException
from typing import Any, NamedTuple, NoReturn
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from penstock.spark.errors import SparkSourceError

MAGIC = 0
PREFIX_BYTES = 5
_TIMEOUT_S = 10
_MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
_NOT_FOUND = 404
_KINDS = {"avro": "AVRO", "json": "JSON", "protobuf": "PROTOBUF"}


class SchemaNotRegistered(SparkSourceError):
    """The registry has no such subject or id."""


class SchemaRegistry(NamedTuple):
    url: str  # without a slash at the end
    auth: str | None  # user:password

    def __repr__(self) -> str:
        return f"SchemaRegistry({self.url!r})"


class _SameOrigin(HTTPRedirectHandler):
    """The login is for the registry, not for whomever it points to."""

    def redirect_request(
        self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Request | None:
        following = super().redirect_request(req, fp, code, msg, headers, newurl)
        old, new = urlsplit(req.full_url), urlsplit(newurl)
        if following is not None and (old.scheme, old.netloc) != (new.scheme, new.netloc):
            following.remove_header("Authorization")
        return following


_OPENER = build_opener(_SameOrigin)


class RegisteredSchema(NamedTuple):
    schema_id: int
    kind: str  # avro, json or protobuf
    text: str  # of protobuf: its descriptor in base64


_seen: dict[tuple[str, int], RegisteredSchema] = {}  # ids never change


def latest_schema(registry: SchemaRegistry, subject: str, kind: str) -> RegisteredSchema:
    """The newest schema of the subject. Raises SparkSourceError, also if it is of another kind."""
    what = f"subject {subject}"
    path = f"/subjects/{quote(subject, safe='')}/versions/latest{_form(kind)}"
    answer = _ask(registry, path, what)
    schema = _read(answer, _id_in(registry, what, answer))
    if schema.kind != kind:
        _fail(registry, what, f"it is {schema.kind}, but {kind} is expected")
    if answer.get("references"):
        _fail(registry, what, "it refers to other schemas, which is not supported: inline them")
    return schema


def schema_by_id(registry: SchemaRegistry, schema_id: int, kind: str) -> RegisteredSchema:
    """Asks once in each process. Raises SchemaNotRegistered if there is none."""
    key = (registry.url, schema_id)
    if key not in _seen:
        what = f"schema id {schema_id}"
        answer = _ask(registry, f"/schemas/ids/{schema_id}{_form(kind)}", what)
        _seen[key] = _read(answer, schema_id)
    return _seen[key]


def register_schema(registry: SchemaRegistry, subject: str, kind: str, text: str) -> int:
    """The id of this schema in the subject; registers it if it is not there."""
    body = {"schema": text, "schemaType": _KINDS[kind]}
    path = f"/subjects/{quote(subject, safe='')}/versions"
    what = f"subject {subject}"
    return _id_in(registry, what, _ask(registry, path, what, body))


def frame(schema_id: int) -> bytes:
    """What a value with this schema begins with."""
    return bytes([MAGIC]) + schema_id.to_bytes(4, "big")


def framed_id(value: bytes) -> int | None:
    """None if the value does not begin with an id."""
    if len(value) < PREFIX_BYTES or value[0] != MAGIC:
        return None
    return int.from_bytes(value[1:PREFIX_BYTES], "big")


def _id_in(registry: SchemaRegistry, what: str, answer: dict[str, Any]) -> int:
    schema_id = answer.get("id")
    if not isinstance(schema_id, int) or not 0 <= schema_id < 1 << 32:
        _fail(registry, what, "the answer has no id of a schema")
    return schema_id


def _form(kind: str) -> str:
    return "?format=serialized" if kind == "protobuf" else ""


def _read(answer: dict[str, Any], schema_id: int) -> RegisteredSchema:
    kind = str(answer.get("schemaType", "AVRO")).lower()
    return RegisteredSchema(schema_id, kind, str(answer.get("schema", "")))


def _ask(
    registry: SchemaRegistry, path: str, what: str, body: dict[str, Any] | None = None
) -> dict[str, Any]:
    if not registry.url.startswith(("http://", "https://")):
        _fail(registry, what, "the URL must begin with http:// or https://")
    headers = {"Accept": _MEDIA_TYPE, "Content-Type": _MEDIA_TYPE}
    if registry.auth is not None:
        headers["Authorization"] = f"Basic {base64.b64encode(registry.auth.encode()).decode()}"
    data = None if body is None else json.dumps(body).encode()
    request = Request(registry.url + path, data, headers)  # noqa: S310 (checked above)
    try:
        with _OPENER.open(request, timeout=_TIMEOUT_S) as response:
            answer = json.load(response)
    except HTTPError as error:
        reason = _reason_of(error)
        if error.code == _NOT_FOUND:
            raise SchemaNotRegistered(_message(registry, what, reason)) from None
        _fail(registry, what, reason)
    except URLError as error:
        _fail(registry, what, f"cannot be reached: {error.reason}")
    except (OSError, ValueError, HTTPException) as error:
        _fail(registry, what, f"no answer of a schema registry: {error}")
    if not isinstance(answer, dict):
        _fail(registry, what, "no answer of a schema registry")
    return answer


def _reason_of(error: HTTPError) -> str:
    try:
        answer = json.load(error)
        return f"HTTP {error.code}, {answer['message']}"
    except (ValueError, KeyError, TypeError, OSError):
        return f"HTTP {error.code}"


def _fail(registry: SchemaRegistry, what: str, reason: str) -> NoReturn:
    raise SparkSourceError(_message(registry, what, reason))


def _message(registry: SchemaRegistry, what: str, reason: str) -> str:
    return f"{what} of the schema registry {registry.url}: {' '.join(reason.split())}"
