"""Reads and writes Kafka's `partition.metadata`, `meta.properties` and `.kafka_cleanshutdown`.

The topic of a partition's folder, the broker of a log directory, and whether its last shutdown was
clean; the callers decide what to do when they do not match.
"""

import base64
import json
import os
import re
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from penstock.io.disk import Disk, read_file, replace_file
from penstock.model.ids import TopicId
from penstock.storage.checkpoints import MAX_INT, parse_number
from penstock.storage.errors import MalformedCheckpoint

PARTITION_METADATA_FILE = "partition.metadata"
META_PROPERTIES_FILE = "meta.properties"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"

UNKNOWN_BROKER_EPOCH = -1
_INCARNATION = "penstock.incarnation"
_ENGINE = "penstock.storage.engine"
_UUID_TEXT = re.compile(r"[A-Za-z0-9_-]{22}")
_SPECIAL = re.compile(r"([\\=:#! ])")  # what Java's properties put a backslash before
_ESCAPED = re.compile(r"\\(.)")
_SEPARATOR = re.compile(r"(?<!\\)\s*[=:]\s*")


def encode_uuid(value: UUID) -> str:
    """The id as Kafka prints it: URL-safe base64 of the 16 bytes, without padding."""
    return base64.urlsafe_b64encode(value.bytes).decode("ascii").rstrip("=")


def decode_uuid(text: str) -> UUID:
    if _UUID_TEXT.fullmatch(text) is None:
        raise ValueError(f"{text[:40]!r} is not an id of 22 base64 characters")
    return UUID(bytes=base64.urlsafe_b64decode(text + "=="))


# partition.metadata: the topic id, which distinguishes the topic from another of the same name.


def read_topic_id(disk: Disk, directory: str) -> TopicId | None:
    path = os.path.join(directory, PARTITION_METADATA_FILE)
    content = read_file(disk, path)
    return None if content is None else decode_topic_id(content, path)


def write_topic_id(disk: Disk, directory: str, topic_id: TopicId) -> None:
    path = os.path.join(directory, PARTITION_METADATA_FILE)
    replace_file(disk, path, encode_topic_id(topic_id))


def encode_topic_id(topic_id: TopicId) -> bytes:
    return f"version: 0\ntopic_id: {encode_uuid(topic_id)}".encode("ascii")


def decode_topic_id(content: bytes, path: str) -> TopicId:
    lines = content.decode("ascii", "replace").splitlines()
    # A higher version only adds lines: Kafka guarantees that for downgrades.
    parse_number(_value_of(lines, 0, "version", path), MAX_INT, path, 1)
    try:
        topic_id = decode_uuid(_value_of(lines, 1, "topic_id", path))
    except ValueError as error:
        raise MalformedCheckpoint(path, 2, str(error)) from None
    if topic_id.int == 0:
        raise MalformedCheckpoint(path, 2, "the topic id is all zeros, which no topic has")
    return TopicId(topic_id)


def _value_of(lines: list[str], index: int, key: str, path: str) -> str:
    text = lines[index] if index < len(lines) else ""
    prefix = f"{key}: "
    if not text.startswith(prefix):
        raise MalformedCheckpoint(path, index + 1, f"{prefix!r} expected, {text[:80]!r} found")
    return text.removeprefix(prefix).strip()


# meta.properties: the broker and cluster of a log directory.


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    version: int = 0  # 0 names broker.id, 1 (Kafka without ZooKeeper) node.id
    node_id: int | None = None
    cluster_id: str | None = None
    directory_id: UUID | None = None
    incarnation: int | None = None  # of its broker, at its latest registration; not Kafka's
    engine: str | None = None  # None: segmented, which is Kafka's layout; not Kafka's either


def read_meta_properties(disk: Disk, directory: str) -> MetaProperties | None:
    path = os.path.join(directory, META_PROPERTIES_FILE)
    content = read_file(disk, path)
    return None if content is None else decode_meta_properties(content, path)


def write_meta_properties(disk: Disk, directory: str, properties: MetaProperties) -> None:
    replace_file(
        disk, os.path.join(directory, META_PROPERTIES_FILE), encode_meta_properties(properties)
    )


def encode_meta_properties(properties: MetaProperties) -> bytes:
    lines = ["#", f"version={properties.version}"]
    if properties.node_id is not None:
        lines.append(f"{_node_id_key(properties.version)}={properties.node_id}")
    if properties.cluster_id is not None:
        lines.append(f"cluster.id={_escape(properties.cluster_id)}")
    if properties.directory_id is not None:
        lines.append(f"directory.id={encode_uuid(properties.directory_id)}")
    if properties.incarnation is not None:
        lines.append(f"{_INCARNATION}={properties.incarnation}")
    if properties.engine is not None:
        lines.append(f"{_ENGINE}={_escape(properties.engine)}")
    return "\n".join([*lines, ""]).encode("ascii")


def decode_meta_properties(content: bytes, path: str) -> MetaProperties:
    properties = _decode_properties(content, path)
    version = _number_of(properties, "version", path) or 0
    if version > 1:
        line = properties["version"][1]
        raise MalformedCheckpoint(path, line, f"version {version} is unknown, 0 or 1 expected")
    meta = MetaProperties(
        version=version,
        node_id=_number_of(properties, _node_id_key(version), path),
        cluster_id=properties.get("cluster.id", (None, 0))[0],
        directory_id=_directory_id_of(properties, path),
        incarnation=_number_of(properties, _INCARNATION, path),
        engine=properties.get(_ENGINE, (None, 0))[0],
    )
    if version == 1 and (meta.node_id is None or meta.cluster_id is None):
        raise MalformedCheckpoint(path, 1, "version 1 needs both node.id and cluster.id")
    return meta


def _node_id_key(version: int) -> str:
    return "broker.id" if version == 0 else "node.id"


def _escape(value: str) -> str:
    if not (value.isascii() and value.isprintable()):
        raise ValueError(f"cluster id {value!r} must be printable ASCII")
    return _SPECIAL.sub(r"\\\1", value)


def _decode_properties(content: bytes, path: str) -> dict[str, tuple[str, int]]:
    """Each key's value and line; supports the part of Java's format that its writer uses here."""
    properties: dict[str, tuple[str, int]] = {}
    for line, raw in enumerate(content.decode("utf-8", "replace").splitlines(), start=1):
        text = raw.strip()
        if not text or text[0] in "#!":
            continue
        key, *value = _SEPARATOR.split(text, maxsplit=1)
        if not value:
            raise MalformedCheckpoint(path, line, f"key=value expected, {text[:80]!r} found")
        properties[_ESCAPED.sub(r"\1", key)] = (_ESCAPED.sub(r"\1", value[0]), line)
    return properties


def _number_of(properties: dict[str, tuple[str, int]], key: str, path: str) -> int | None:
    if key not in properties:
        return None
    text, line = properties[key]
    return parse_number(text, MAX_INT, path, line)


def _directory_id_of(properties: dict[str, tuple[str, int]], path: str) -> UUID | None:
    if "directory.id" not in properties:
        return None
    text, line = properties["directory.id"]
    try:
        return decode_uuid(text)
    except ValueError as error:
        raise MalformedCheckpoint(path, line, str(error)) from None


# .kafka_cleanshutdown: everything was flushed before the broker stopped.


class CleanShutdown(NamedTuple):
    broker_epoch: int  # -1 if the file does not say


def take_clean_shutdown(disk: Disk, directory: str) -> CleanShutdown | None:
    """Read the marker and remove it durably.

    A crash from now on, also during recovery, must not look like a clean shutdown (KAFKA-10471).
    """
    path = os.path.join(directory, CLEAN_SHUTDOWN_FILE)
    content = read_file(disk, path)
    if content is None:
        return None
    disk.unlink(path)
    disk.sync_directory(directory)
    return decode_clean_shutdown(content)


def write_clean_shutdown(
    disk: Disk, directory: str, broker_epoch: int = UNKNOWN_BROKER_EPOCH
) -> None:
    path = os.path.join(directory, CLEAN_SHUTDOWN_FILE)
    replace_file(disk, path, encode_clean_shutdown(broker_epoch))


def encode_clean_shutdown(broker_epoch: int = UNKNOWN_BROKER_EPOCH) -> bytes:
    return b'{"version":0,"brokerEpoch":%d}' % broker_epoch


def decode_clean_shutdown(content: bytes) -> CleanShutdown:
    """Only the file's existence counts; older Kafka versions leave it empty."""
    try:
        broker_epoch = json.loads(content)["brokerEpoch"]
    except (ValueError, KeyError, TypeError):
        return CleanShutdown(UNKNOWN_BROKER_EPOCH)
    is_number = isinstance(broker_epoch, int) and not isinstance(broker_epoch, bool)
    return CleanShutdown(broker_epoch if is_number else UNKNOWN_BROKER_EPOCH)
