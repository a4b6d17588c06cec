"""The error table against kio's, which is generated from Kafka's sources."""

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

from penstock.model.errors import (
    ErrorCode,
    UnknownErrorCode,
    find_error,
    get_error,
)


def test_codes_and_names_and_retriability_are_kafkas() -> None:
    ours = {error.name: (error.value, error.is_retriable) for error in ErrorCode}
    kafkas = {error.name.upper(): (error.value, error.retriable) for error in KioErrorCode}
    assert ours == kafkas


def test_every_error_has_a_message() -> None:
    silent = [error.name for error in ErrorCode if not error.message]
    assert silent == ["NONE"]


def test_messages_of_errors_are_unique() -> None:
    messages = [error.message for error in ErrorCode]
    assert len(set(messages)) == len(messages)


def test_an_error_is_encoded_as_its_code() -> None:
    assert int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) == 3
    assert ErrorCode.UNKNOWN_SERVER_ERROR.to_bytes(2, "big", signed=True) == b"\xff\xff"


def test_errors_are_found_by_code() -> None:
    for error in ErrorCode:
        assert find_error(error.value) is get_error(error.value) is error


def test_unknown_codes_are_not_found() -> None:
    assert find_error(9999) is None
    with pytest.raises(UnknownErrorCode, match="9999"):
        get_error(9999)
