"""Fetch sessions (KIP-227): what is cached, what is left out, and which session is evicted."""

from datetime import timedelta
from typing import Any

import pytest
from tests.unit.apis.harness import ApiHarness, Sent, batch, topic_id_of

from penstock.apis.fetch_sessions import (
    FINAL_EPOCH,
    FIRST_EPOCH,
    MAX_ID,
    MIN_AGE_MS,
    FetchSessions,
    RequestedPartition,
)
from penstock.model.errors import ErrorCode
from penstock.model.ids import Offset, TopicPartition
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.batch import iter_headers
from penstock.testing.manual_clock import ManualClock

KEY = ApiKey.FETCH
VERSIONS = range(7, 17)


def fetch(
    harness: ApiHarness,
    version: int,
    session_id: int,
    epoch: int,
    offsets: dict[int, int] | None = None,
    *,
    forgotten: tuple[int, ...] = (),
    max_bytes: int = 1 << 20,
    wait_ms: int = 0,
    topic: str = "orders",
) -> Sent:
    name = {"topic": topic, "topic_id": topic_id_of(topic)}
    request_entry = [
        {"partition": index, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        for index, offset in (offsets or {}).items()
    ]
    return harness.send(
        KEY,
        version,
        session_id=session_id,
        session_epoch=epoch,
        max_wait=timedelta(milliseconds=wait_ms),
        min_bytes=1,
        max_bytes=max_bytes,
        topics=[{**name, "partitions": request_entry}] if request_entry else [],
        forgotten_topics_data=[{**name, "partitions": forgotten}] if forgotten else [],
    )


def returned(sent: Sent) -> dict[int, Any]:
    assert sent.reply.error_code == 0
    return {
        partition.partition_index: partition
        for topic in sent.reply.responses
        for partition in topic.partitions
    }


def begin(harness: ApiHarness, version: int, offsets: dict[int, int]) -> int:
    sent = fetch(harness, version, 0, FIRST_EPOCH, offsets)
    assert sorted(returned(sent)) == sorted(offsets)
    session_id: int = sent.reply.session_id
    assert session_id > 0
    return session_id


# -- sessions of a broker ------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_gets_only_what_changed(harness: ApiHarness, version: int) -> None:
    harness.make_topic("orders", 3)
    session = begin(harness, version, {0: 0, 1: 0, 2: 0})
    assert returned(fetch(harness, version, session, 1)) == {}
    harness.fill("orders", batch(b"a"), partition=1)
    second = fetch(harness, version, session, 2)
    assert (list(returned(second)), second.reply.session_id) == ([1], session)
    assert len(returned(second)[1].records) == len(batch(b"a"))
    # The same offset again: nothing was consumed, so the same records are sent.
    assert list(returned(fetch(harness, version, session, 3))) == [1]
    assert returned(fetch(harness, version, session, 4, {1: 1})) == {}


@pytest.mark.parametrize("version", VERSIONS)
def test_new_high_watermarks_and_log_starts_are_sent(harness: ApiHarness, version: int) -> None:
    harness.make_topic("orders", 2)
    harness.fill("orders", batch(b"a"), batch(b"b"))
    session = begin(harness, version, {0: 2, 1: 0})
    harness.replicas.delete_records(TopicPartition("orders", 0), Offset(1))
    (answer,) = returned(fetch(harness, version, session, 1)).values()
    assert answer.log_start_offset == 1
    harness.fill("orders", batch(b"c"))
    (answer,) = returned(fetch(harness, version, session, 2, {0: 3})).values()
    assert (answer.high_watermark, bytes(answer.records)) == (3, b"")


@pytest.mark.parametrize("version", VERSIONS)
def test_partitions_are_added_and_forgotten(harness: ApiHarness, version: int) -> None:
    harness.make_topic("orders", 3)
    session = begin(harness, version, {0: 0})
    assert list(returned(fetch(harness, version, session, 1, {1: 0, 2: 0}))) == [1, 2]
    assert returned(fetch(harness, version, session, 2, forgotten=(0, 2, 9))) == {}
    for partition in range(3):
        harness.fill("orders", batch(b"a"), partition=partition)
    assert list(returned(fetch(harness, version, session, 3))) == [1]
    assert harness.sessions.partition_count == 1


def test_errors_are_sent_every_time_and_so_is_the_recovery(harness: ApiHarness) -> None:
    harness.make_topic("orders")
    harness.fill("orders", batch(b"a"))
    session = begin(harness, 12, {0: 9})
    for epoch in (1, 2):
        (answer,) = returned(fetch(harness, 12, session, epoch)).values()
        assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    (answer,) = returned(fetch(harness, 12, session, 3, {0: 1})).values()
    assert (answer.error_code, answer.high_watermark) == (0, 1)
    assert returned(fetch(harness, 12, session, 4)) == {}


def test_an_unknown_topic_id_is_found_once_it_exists(harness: ApiHarness) -> None:
    session = begin(harness, 13, {0: 0})
    harness.make_topic("orders")
    (answer,) = returned(fetch(harness, 13, session, 1)).values()
    assert (answer.error_code, answer.high_watermark) == (0, 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_partitions_take_turns_if_not_all_fit(harness: ApiHarness, version: int) -> None:
    harness.make_topic("orders", 4)
    for partition in range(4):
        harness.fill("orders", *[batch(b"x" * 100)] * 3, partition=partition)
    sent = fetch(harness, version, 0, FIRST_EPOCH, dict.fromkeys(range(4), 0), max_bytes=1)
    session = sent.reply.session_id
    served = []
    for epoch in range(1, 9):
        answers = returned(fetch(harness, version, session, epoch, max_bytes=1))
        served += [index for index, answer in answers.items() if answer.records]
    assert sorted(served) == sorted(list(range(4)) * 2)
    assert served[:4] == [1, 2, 3, 0]


def test_a_delayed_fetch_of_a_session_sends_only_what_changed(harness: ApiHarness) -> None:
    harness.make_topic("orders", 3)
    session = begin(harness, 12, {0: 0, 1: 0, 2: 0})
    sent = fetch(harness, 12, session, 1, wait_ms=1000)
    assert not sent.is_answered
    harness.fill("orders", batch(b"a"), partition=2)
    assert list(returned(sent)) == [2]


def test_a_delayed_fetch_is_refused_after_the_next_of_its_session(harness: ApiHarness) -> None:
    harness.make_topic("orders")
    session = begin(harness, 12, {0: 0})
    first = fetch(harness, 12, session, 1, wait_ms=1000)
    second = fetch(harness, 12, session, 2)
    harness.fill("orders", batch(b"a"))
    assert first.reply.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert second.reply.error_code == 0


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("session_change", "epoch", "code"),
    [
        (1, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (0, 2, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (0, -2, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (0, 2**31 - 1, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
    ],
)
def test_a_wrong_session_id_or_epoch_is_refused(
    harness: ApiHarness, version: int, session_change: int, epoch: int, code: ErrorCode
) -> None:
    harness.make_topic("orders")
    session = begin(harness, version, {0: 0})
    sent = fetch(harness, version, session + session_change, epoch, wait_ms=1000)
    assert (sent.reply.error_code, sent.reply.responses) == (code, ())
    assert returned(fetch(harness, version, session, 1)) == {}  # the session is unaffected


def test_a_session_uses_topic_names_or_ids_but_not_both(harness: ApiHarness) -> None:
    harness.make_topic("orders")
    by_name, by_id = begin(harness, 12, {0: 0}), begin(harness, 13, {0: 0})
    for version, session in ((13, by_name), (12, by_id)):
        reply = fetch(harness, version, session, 1).reply
        assert reply.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


@pytest.mark.parametrize("version", VERSIONS)
def test_the_final_epoch_ends_the_session(harness: ApiHarness, version: int) -> None:
    harness.make_topic("orders")
    session = begin(harness, version, {0: 0})
    last = fetch(harness, version, session, FINAL_EPOCH, {0: 0})
    assert (list(returned(last)), last.reply.session_id) == ([0], 0)
    assert len(harness.sessions) == 0
    reply = fetch(harness, version, session, 1).reply
    assert reply.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_new_session_replaces_the_one_it_names(harness: ApiHarness) -> None:
    harness.make_topic("orders")
    session = begin(harness, 12, {0: 0})
    again = fetch(harness, 12, session, FIRST_EPOCH, {0: 0}).reply.session_id
    assert again not in (0, session)
    assert len(harness.sessions) == 1


def test_a_session_without_partitions_ends(harness: ApiHarness) -> None:
    harness.make_topic("orders")
    session = begin(harness, 12, {0: 0})
    sent = fetch(harness, 12, session, 1, forgotten=(0,), wait_ms=1000)
    assert (sent.reply.session_id, sent.reply.responses) == (0, ())
    assert (len(harness.sessions), harness.sessions.partition_count) == (0, 0)


def test_all_batches_arrive_in_order_however_little_fits(harness: ApiHarness) -> None:
    harness.make_topic("orders", 2)
    for partition in (0, 1):
        harness.fill("orders", *[batch(b"x" * 50) for _ in range(20)], partition=partition)
    positions = {0: 0, 1: 0}
    session, epoch = 0, 0
    while any(position < 20 for position in positions.values()):
        sent = fetch(harness, 12, session, epoch, positions, max_bytes=300)
        session, epoch = sent.reply.session_id, epoch + 1
        for index, answer in returned(sent).items():
            for _, header in iter_headers(bytes(answer.records)):
                assert header.base_offset == positions[index]
                positions[index] = header.next_offset
        assert epoch < 50


# -- the cache -----------------------------------------------------------------------------


def partitions(count: int, topic: str = "t") -> list[RequestedPartition]:
    return [RequestedPartition(topic, index, offset=0, max_bytes=1) for index in range(count)]


def make(sessions: FetchSessions, count: int, topic: str = "t") -> int:
    context = sessions.begin(session_id=0, epoch=FIRST_EPOCH, requested=partitions(count, topic))
    chosen, _ = context.choose([])
    return chosen.session_id


def make_sessions(clock: ManualClock, **limits: int) -> FetchSessions:
    numbers = iter(range(1, 1000))
    return FetchSessions(now_ms=clock.now_ms, new_id=lambda: next(numbers), **limits)


def test_a_full_cache_creates_no_session_while_all_are_young() -> None:
    sessions = make_sessions(ManualClock(), max_sessions=2)
    assert [make(sessions, 1), make(sessions, 1), make(sessions, 100)] == [1, 2, 0]


def test_the_longest_idle_session_is_evicted() -> None:
    clock = ManualClock()
    sessions = make_sessions(clock, max_sessions=2)
    first, second = make(sessions, 5), make(sessions, 5)
    clock.advance_ms(MIN_AGE_MS)
    sessions.begin(session_id=first, epoch=1, requested=())
    clock.advance_ms(1)
    assert make(sessions, 1) == 3
    left = [sessions.begin(session_id=number, epoch=9, requested=()) for number in (first, second)]
    errors = [context.choose([])[0].error for context in left]
    assert errors == [
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ]


def test_a_smaller_session_is_evicted_for_a_larger_one_after_min_age() -> None:
    clock = ManualClock()
    sessions = make_sessions(clock, max_sessions=2)
    large, small = make(sessions, 9), make(sessions, 3)
    clock.advance_ms(MIN_AGE_MS + 1)
    for number in (large, small):
        sessions.begin(session_id=number, epoch=1, requested=())
    assert make(sessions, 3) == 0
    assert make(sessions, 4) == 3
    assert sessions.partition_count == 13


def test_partitions_of_all_sessions_are_bounded() -> None:
    sessions = make_sessions(ManualClock(), max_sessions=9, max_partitions=10)
    first = make(sessions, 6)
    assert make(sessions, 5) == 0
    assert make(sessions, 4) == 2
    grown = sessions.begin(session_id=first, epoch=1, requested=partitions(1, "other"))
    assert grown.choose([])[0].error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (len(sessions), sessions.partition_count) == (1, 4)


@pytest.mark.parametrize("limit", [0, 1])
def test_a_cache_of_size_0_or_1_works(limit: int) -> None:
    sessions = make_sessions(ManualClock(), max_sessions=limit)
    assert [make(sessions, 1), make(sessions, 1)] == [limit, 0]


def test_session_ids_in_use_are_not_reused() -> None:
    numbers = iter([7, 7, 7, 8])
    sessions = FetchSessions(max_sessions=9, new_id=lambda: next(numbers))
    assert [make(sessions, 1), make(sessions, 1)] == [7, 8]


def test_session_epochs_wrap_after_the_largest() -> None:
    sessions = make_sessions(ManualClock(), max_sessions=9)
    session = make(sessions, 1)
    sessions._sessions[session].epoch = MAX_ID
    for epoch in (MAX_ID, 1, 2):
        context = sessions.begin(session_id=session, epoch=epoch, requested=())
        assert context.choose([])[0].error == ErrorCode.NONE
