"""Config changes forwarded to the controller, to bytes and back, and their results."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profile import scaled

from penstock.controller.interface import (
    ApiError,
    ConfigEntryChange,
    ConfigResourceChange,
    ConfigScope,
)
from penstock.inter_broker.messages.forwarded_configs import (
    ForwardedConfigsRequest,
    decode_forwarded_configs,
    encode_forwarded_configs,
    read_results,
)
from penstock.model.admin import ConfigOperation
from penstock.model.errors import ErrorCode
from penstock.protocol.malformed import MalformedMessage
from penstock.protocol.private_response import (
    PrivateResponse,
    PrivateResult,
    decode_private_response,
    encode_private_response,
)

EXAMPLES = scaled(test=50, verify=1000, release=10_000)
text = st.text(max_size=10)
changes = st.builds(
    ConfigResourceChange,
    scope=st.sampled_from(ConfigScope),
    name=text,
    changes=st.lists(
        st.builds(ConfigEntryChange, text, st.sampled_from(ConfigOperation), st.none() | text),
        max_size=3,
    ).map(tuple),
    replace=st.booleans(),
)
requests = st.builds(
    ForwardedConfigsRequest, st.lists(changes, max_size=3).map(tuple), st.booleans()
)
CHANGE = ConfigResourceChange(
    scope=ConfigScope.TOPIC,
    name="t",
    changes=(ConfigEntryChange("retention.ms", ConfigOperation.SET, "5"),),
)


@given(requests)
@settings(max_examples=EXAMPLES, deadline=None)
def test_config_changes_survive_a_round_trip(request_: ForwardedConfigsRequest) -> None:
    assert decode_forwarded_configs(encode_forwarded_configs(request_)) == request_


def test_truncated_or_unknown_changes_are_malformed() -> None:
    encoded = encode_forwarded_configs(ForwardedConfigsRequest((CHANGE,), False))
    for length in range(len(encoded)):
        with pytest.raises(MalformedMessage):
            decode_forwarded_configs(encoded[:length])
    with pytest.raises(MalformedMessage, match="unknown config scope 7"):
        decode_forwarded_configs(encoded.replace(b"\x02\x00\x02t", b"\x02\x07\x02t"))
    with pytest.raises(MalformedMessage, match="unknown config operation 9"):
        decode_forwarded_configs(encoded.replace(b"ms\x00", b"ms\x09"))


def test_each_change_has_its_result() -> None:
    results = (
        PrivateResult(ErrorCode.NONE, None),
        PrivateResult(ErrorCode.INVALID_CONFIG, "not a number"),
    )
    sent = PrivateResponse(ErrorCode.NONE, None, 0, 0, results=results)
    received = decode_private_response(encode_private_response(sent))
    assert received == sent
    expected = [None, ApiError(ErrorCode.INVALID_CONFIG, "not a number")]
    assert read_results(received, [CHANGE, CHANGE]) == expected


@pytest.mark.parametrize(
    ("response", "code"),
    [
        (PrivateResponse(ErrorCode.NOT_CONTROLLER, "no", 0, 0), ErrorCode.NOT_CONTROLLER),
        (PrivateResponse(ErrorCode.NONE, None, 0, 0), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_response_without_results_fails_all_changes(
    response: PrivateResponse, code: ErrorCode
) -> None:
    results = read_results(response, [CHANGE, CHANGE])
    assert [error.code for error in results if error is not None] == [code, code]
