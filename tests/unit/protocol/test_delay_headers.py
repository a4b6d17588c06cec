"""Headers of delayed records: what they ask for, and what is refused with its name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocol.delay_headers import (
    DELAY_CANCEL,
    DELAY_ID,
    DELAY_MS,
    DELIVER_AT,
    MAX_DELAY_ID_BYTES,
    REPLY_TOPIC,
    CancelRequest,
    DelayRequest,
    InvalidDelay,
    find_delay_request,
    without_delay_headers,
)
from penstock.protocol.records import RecordHeaders

NOW_MS = 1_700_000_000_000
AT = b"%d" % (NOW_MS + 5)


def find(*headers: tuple[str, bytes | None]) -> DelayRequest | CancelRequest | None:
    return find_delay_request(headers, now_ms=NOW_MS)


def test_a_time_or_a_delay_says_when_a_record_is_due() -> None:
    assert find((DELIVER_AT, AT)) == DelayRequest(NOW_MS + 5, None)
    assert find(("trace", b"1"), (DELAY_MS, b"060000")) == DelayRequest(
        NOW_MS + 60_000, None, delay_ms=60_000
    )
    assert find((DELAY_ID, "ü".encode()), (DELAY_MS, b"1")) == DelayRequest(
        NOW_MS + 1, "ü", delay_ms=1
    )


def test_a_time_that_has_passed_is_answered_as_before() -> None:
    """A repeat of the same batch must be divided in the same way."""
    assert find((DELIVER_AT, b"1"), (DELAY_ID, b"x")) == DelayRequest(1, "x")


def test_a_record_without_a_time_or_with_no_delay_does_not_wait() -> None:
    assert find() is None
    assert find(("trace", None), (REPLY_TOPIC, b"t")) is None
    assert find((DELAY_MS, b"0")) is None


def test_a_cancel_names_a_message_and_where_to_answer() -> None:
    assert find((DELAY_CANCEL, b"x")) == CancelRequest("x", None)
    assert find((DELAY_CANCEL, b"x"), (REPLY_TOPIC, b"t")) == CancelRequest("x", "t")


@pytest.mark.parametrize("name", [DELIVER_AT, DELAY_MS])
@pytest.mark.parametrize(
    "value", [None, b"", b"-1", b"+1", b"1.5", b"nan", b" 1", b"1_0", "٣".encode(), b"1" * 16]
)
def test_a_time_that_is_no_number_is_refused(name: str, value: bytes | None) -> None:
    with pytest.raises(InvalidDelay, match=name):
        find((name, value))


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        (((DELIVER_AT, AT), (DELAY_MS, b"1")), "not both"),
        (((DELAY_MS, b"1"), (DELAY_MS, b"1")), "twice"),
        (((DELAY_ID, b"x"),), "needs"),
        (((DELAY_MS, b"1"), (DELAY_ID, b"")), DELAY_ID),
        (((DELAY_MS, b"1"), (DELAY_ID, b"x" * (MAX_DELAY_ID_BYTES + 1))), "256 bytes"),
        (((DELAY_MS, b"1"), (DELAY_ID, b"\xff")), "UTF-8"),
        (((DELAY_CANCEL, None),), DELAY_CANCEL),
        (((DELAY_CANCEL, b"x"), (DELAY_MS, b"1")), "cannot wait itself"),
    ],
)
def test_headers_that_cannot_be_followed_are_refused(headers: RecordHeaders, reason: str) -> None:
    with pytest.raises(InvalidDelay, match=reason):
        find(*headers)


names = st.sampled_from([DELIVER_AT, DELAY_MS, DELAY_ID, DELAY_CANCEL, REPLY_TOPIC, "other"])
values = st.none() | st.binary(max_size=20) | st.integers(-5, 2**70).map(lambda n: b"%d" % n)


@given(st.lists(st.tuples(names, values), max_size=4).map(tuple))
def test_any_headers_are_understood_or_refused(headers: RecordHeaders) -> None:
    try:
        wanted = find(*headers)
    except InvalidDelay:
        return
    again = find_delay_request(headers, now_ms=NOW_MS + 10**9)
    assert type(again) is type(wanted)
    assert find(*without_delay_headers(headers)) is None
