"""Formats a dump: lines for people, or one JSON object per line for programs.

Bytes are shown as text if they are printable UTF-8; otherwise they are marked as hex (text) or
base64 (JSON), so that no record can imitate other output or control a terminal.
"""

import base64
import json
from datetime import UTC, datetime
from typing import Any, TextIO

from penstock.cli.dump import Fields
from penstock.protocol.records import Record

_SHOWN_BYTES = 200  # of one key or value, for people; JSON holds everything


class TextView:
    def __init__(self, out: TextIO) -> None:
        self._out = out

    def file(self, path: str, kind: str, size_bytes: int) -> None:
        self._line(f"{path} ({kind}, {size_bytes:,} bytes)")

    def batch(self, fields: Fields) -> None:
        shown = dict(fields)
        crc, is_ok = shown.pop("crc"), shown.pop("crc_ok")
        if shown["producer_id"] < 0:
            for name in ("producer_id", "producer_epoch", "base_sequence"):
                del shown[name]
        self._line(f"  batch {_pairs(shown)} crc={'ok' if is_ok else f'BAD ({crc:#010x})'}")

    def record(self, record: Record, marker: str | None) -> None:
        line = f"    record offset={record.offset} timestamp={_time(record.timestamp_ms)}"
        if marker is not None:
            self._line(f"{line} {marker}")
            return
        line += f" key={_text(record.key)} value={_text(record.value)}"
        if record.headers:
            shown = ", ".join(f"{_text(_key(k))}: {_text(v)}" for k, v in record.headers)
            line += f" headers={{{shown}}}"
        self._line(line)

    def entry(self, kind: str, fields: Fields) -> None:
        self._line(f"  {kind} {_pairs(fields)}")

    def damage(self, path: str, position: int | None, problem: str) -> None:
        """The command prints damage to stderr at the end."""

    def _line(self, text: str) -> None:
        self._out.write(text + "\n")


class JsonView:
    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._path = ""

    def file(self, path: str, kind: str, size_bytes: int) -> None:
        self._path = path
        self._object("file", {"path": path, "kind": kind, "bytes": size_bytes})

    def batch(self, fields: Fields) -> None:
        self._object("batch", {"path": self._path, **fields})

    def record(self, record: Record, marker: str | None) -> None:
        fields: dict[str, Any] = {
            "path": self._path,
            "offset": record.offset,
            "timestamp_ms": record.timestamp_ms,
            **_json_bytes("key", record.key),
            **_json_bytes("value", record.value),
            "headers": [
                {**_json_bytes("key", _key(key)), **_json_bytes("value", value)}
                for key, value in record.headers
            ],
        }
        if marker is not None:
            fields["marker"] = marker
        self._object("record", fields)

    def entry(self, kind: str, fields: Fields) -> None:
        self._object(kind, {"path": self._path, **fields})

    def damage(self, path: str, position: int | None, problem: str) -> None:
        self._object("damage", {"path": path, "position": position, "problem": problem})

    def _object(self, kind: str, fields: Fields) -> None:
        self._out.write(json.dumps({"type": kind, **fields}) + "\n")


def _pairs(fields: Fields) -> str:
    """The fields that are set; flags by name only."""
    shown = []
    for name, value in fields.items():
        if value is True:
            shown.append(name)
        elif name.endswith("_ms") and value is not None:
            shown.append(f"{name.removesuffix('_ms')}={_time(value)}")
        elif value is not None and value is not False:
            shown.append(f"{name}={value}")
    return " ".join(shown)


def _time(timestamp_ms: int) -> str:
    if timestamp_ms < 0:
        return str(timestamp_ms)
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)  # beyond the calendar's range
    return f"{timestamp_ms} ({moment:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03d}Z)"


def _text(content: bytes | None) -> str:
    if content is None:
        return "null"
    more = f"... ({len(content)} bytes)" if len(content) > _SHOWN_BYTES else ""
    text = _find_printable(content)
    if text is not None:
        return json.dumps(text[:_SHOWN_BYTES], ensure_ascii=False) + more
    return f"hex:{content[:_SHOWN_BYTES].hex()}{more}"


def _json_bytes(name: str, content: bytes | None) -> dict[str, str | None]:
    text = None if content is None else _find_printable(content)
    if content is None or text is not None:
        return {name: text}
    return {f"{name}_base64": base64.b64encode(content).decode("ascii")}


def _find_printable(content: bytes) -> str | None:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() else None


def _key(key: str) -> bytes:
    """A header's key as stored in the log."""
    return key.encode("utf-8", "surrogateescape")
