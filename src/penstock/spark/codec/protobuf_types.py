"""Protobuf descriptors as Spark types. Reads no value; `protobuf_values` does.

A descriptor is what `protoc --descriptor_set_out` writes, or a schema registry serves in base64.
"""

import base64
from typing import Any

from penstock.spark.codec.ddl_columns import quoted

_TIMESTAMP = "google.protobuf.Timestamp"
_WELL_KNOWN = ("any", "duration", "empty", "struct", "timestamp", "wrappers")


class ProtobufUnsupported(ValueError):
    """An invalid descriptor, or one without a Spark type; the message says where."""


def load_message(descriptors: bytes, name: str | None) -> Any:
    """The descriptor of a message in a set; if it is not named, the first of the last file."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import DecodeError

    try:
        files = list(FileDescriptorSet.FromString(descriptors).file)
    except DecodeError:
        files = []
    if not files or not files[-1].name:
        raise ProtobufUnsupported(
            "not a descriptor set: make one with protoc --include_imports --descriptor_set_out"
        )
    known_files = _well_known()
    own = [file for file in files if file.name not in {given.name for given in known_files}]
    pool = DescriptorPool()
    try:
        for file in [*known_files, *own]:
            pool.Add(file)
        return pool.FindMessageTypeByName(name or _first_message(own))
    except KeyError:
        raise ProtobufUnsupported(f"there is no message {name!r} in the descriptor") from None
    except TypeError as error:
        reason = " ".join(str(error).split())
        raise ProtobufUnsupported(f"the descriptor is not whole: {reason}") from None


def _first_message(files: list[Any]) -> str:
    if not files or not files[-1].message_type:
        raise ProtobufUnsupported("the descriptor has no message")
    package = f"{files[-1].package}." if files[-1].package else ""
    return f"{package}{files[-1].message_type[0].name}"


def set_of_one(text: str) -> bytes:
    """A descriptor set with the file that a registry serves, in base64."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
    from google.protobuf.message import DecodeError

    try:
        file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (ValueError, DecodeError):
        raise ProtobufUnsupported("the registry's answer is no descriptor in base64") from None
    whole = FileDescriptorSet(file=[file])
    serialized: bytes = whole.SerializeToString()
    return serialized


def one_of_set(descriptors: bytes) -> str:
    """The last file of a descriptor set in base64, as a registry takes it."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    file = FileDescriptorSet.FromString(descriptors).file[-1]
    return base64.b64encode(file.SerializeToString()).decode()


def _well_known() -> list[Any]:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    files = []
    for name in _WELL_KNOWN:
        module = __import__(f"google.protobuf.{name}_pb2", fromlist=["DESCRIPTOR"])
        file = FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        files.append(file)
    return files


def protobuf_columns(message: Any) -> dict[str, str]:
    """The columns of a message, with their types in Spark's DDL."""
    return _fields(message, message.full_name, ())


def _fields(message: Any, where: str, above: tuple[str, ...]) -> dict[str, str]:
    if message.full_name in above:
        raise ProtobufUnsupported(
            f"{where}: {message.full_name} contains itself, which Spark cannot represent"
        )
    inside = (*above, message.full_name)
    return {
        field.name: _type_of(field, f"{where}.{field.name}", inside) for field in message.fields
    }


def is_map(field: Any) -> bool:
    entry = field.message_type
    return bool(field.is_repeated and entry is not None and entry.GetOptions().map_entry)


def _type_of(field: Any, where: str, above: tuple[str, ...]) -> str:
    if is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return f"MAP<{_single(key, where, above)}, {_single(value, where, above)}>"
    single = _single(field, where, above)
    return f"ARRAY<{single}>" if field.is_repeated else single


def _single(field: Any, where: str, above: tuple[str, ...]) -> str:
    types = {
        field.CPPTYPE_INT32: "INT",
        field.CPPTYPE_INT64: "BIGINT",
        field.CPPTYPE_UINT32: "BIGINT",
        field.CPPTYPE_UINT64: "DECIMAL(20, 0)",
        field.CPPTYPE_DOUBLE: "DOUBLE",
        field.CPPTYPE_FLOAT: "FLOAT",
        field.CPPTYPE_BOOL: "BOOLEAN",
        field.CPPTYPE_ENUM: "STRING",
        field.CPPTYPE_STRING: "BINARY" if field.type == field.TYPE_BYTES else "STRING",
    }
    if field.cpp_type != field.CPPTYPE_MESSAGE:
        return types[field.cpp_type]
    if field.message_type.full_name == _TIMESTAMP:
        return "TIMESTAMP"
    inner = _fields(field.message_type, where, above)
    return "STRUCT<" + ", ".join(f"{quoted(name)}: {kind}" for name, kind in inner.items()) + ">"
