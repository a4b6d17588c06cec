"""The table of message schemas against kio's classes, which come from Kafka's own definitions."""

import pytest
from tests.unit.protocol.message_samples import all_schemas, our_class, title
from tests.unit.protocol.schema_table_from_kio import TABLE, write_table

from penstock.model.errors import ErrorCode
from penstock.protocol.schema_table import find_message_schema
from penstock.protocol.schemas import (
    REQUIRED,
    WireMessage,
    describe_fields,
    get_request_schema,
    get_response_schema,
)


def test_the_table_equals_the_one_generated_from_kio() -> None:
    assert TABLE.read_text() == write_table()


def test_every_request_and_response_of_kio_has_a_message_class() -> None:
    for schema in all_schemas():
        assert title(our_class(schema)) == title(schema)


def test_an_unknown_message_has_no_schema() -> None:
    assert find_message_schema("NoSuchRequest") is None


def test_defaults_are_typed_values() -> None:
    joined = {field.name: field.default for field in describe_fields(get_response_schema(68, 0))}
    assert joined["error_message"] is None
    assert joined["member_epoch"] is REQUIRED
    (partitions,) = [
        field.entity.__fields__
        for field in describe_fields(get_response_schema(1, 12))[-1:]
        if field.entity is not None
    ]
    (data,) = [field.entity for field in partitions if field.name == "partitions"]
    assert data is not None
    (diverging,) = [field.default for field in data.__fields__ if field.name == "diverging_epoch"]
    assert isinstance(diverging, WireMessage)
    assert (diverging.epoch, diverging.end_offset) == (-1, -1)


def heartbeat(**values: object) -> WireMessage:
    return get_response_schema(12, 0)(error_code=ErrorCode.NONE, **values)


def test_messages_with_equal_fields_of_one_class_are_equal() -> None:
    assert heartbeat() == heartbeat()
    assert hash(heartbeat()) == hash(heartbeat())
    assert heartbeat() != get_response_schema(13, 0)(error_code=ErrorCode.NONE)
    other: object = ErrorCode.NONE
    assert heartbeat() != other


def test_a_message_is_immutable() -> None:
    message = heartbeat()
    with pytest.raises(AttributeError, match="error_code"):
        message.error_code = ErrorCode.NOT_COORDINATOR
    with pytest.raises(AttributeError, match="error_code"):
        del message.error_code
    with pytest.raises(AttributeError):
        assert message.no_such_field


def test_replace_leaves_the_original_message_unchanged() -> None:
    message = heartbeat()
    changed = message.__replace__(error_code=ErrorCode.NOT_COORDINATOR)
    assert (changed.error_code, message.error_code) == (ErrorCode.NOT_COORDINATOR, ErrorCode.NONE)


def test_a_message_shows_its_fields() -> None:
    assert repr(get_request_schema(12, 0)(group_id="g", generation_id=1, member_id="m")) == (
        "HeartbeatRequest(group_id='g', generation_id=1, member_id='m')"
    )


@pytest.mark.parametrize("values", [{}, {"error_code": ErrorCode.NONE, "other": 1}])
def test_missing_and_unknown_fields_are_named(values: dict[str, object]) -> None:
    with pytest.raises(TypeError, match=r"HeartbeatResponse: missing fields .*unknown fields"):
        get_response_schema(12, 0)(**values)
