"""WriteTxnMarkers: which transactions end, which do not, and authorization."""

from datetime import timedelta
from typing import Any

import pytest
from tests.unit.apis.brokers_listener import let_brokers_in
from tests.unit.apis.harness import ME, OTHER, ApiHarness, batch

from penstock.apis.registry import APIS
from penstock.model.cluster import OFFSETS_TOPIC
from penstock.model.errors import ErrorCode, get_error
from penstock.model.ids import TopicPartition
from penstock.model.markers import TransactionMarker
from penstock.protocol.api_keys import ApiKey
from penstock.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType

KEY = ApiKey.WRITE_TXN_MARKERS
VERSIONS = APIS[KEY].versions
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
PRODUCER = 5
NONE = ErrorCode.NONE


@pytest.fixture(name="harness")
def _harness(harness: ApiHarness) -> ApiHarness:
    harness.make_topic("orders", 2)
    let_brokers_in(harness)
    return harness


def marker(
    topics: dict[str, list[int]] | None = None,
    *,
    producer: int = PRODUCER,
    epoch: int = 0,
    commit: bool = True,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
) -> dict[str, Any]:
    return {
        "producer_id": producer,
        "producer_epoch": epoch,
        "transaction_result": commit,
        "coordinator_epoch": coordinator_epoch,
        "transaction_version": transaction_version,
        "topics": [
            {"name": name, "partition_indexes": indexes}
            for name, indexes in (topics or {"orders": [0]}).items()
        ],
    }


def write(harness: ApiHarness, *markers: dict[str, Any], version: int = 2) -> list[list[ErrorCode]]:
    reply = harness.ask(KEY, version, markers=list(markers))
    assert [marker.producer_id for marker in reply.markers] == [
        marker["producer_id"] for marker in markers
    ]
    return [
        [get_error(one.error_code) for topic in marker.topics for one in topic.partitions]
        for marker in reply.markers
    ]


def produce(
    harness: ApiHarness, *, epoch: int = 0, sequence: int = 0, partition: int = 0, producer: int = 5
) -> ErrorCode:
    records = batch(
        b"v",
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=True,
    )
    reply = harness.ask(
        ApiKey.PRODUCE,
        12,
        acks=-1,
        timeout=timedelta(seconds=1),
        transactional_id="mine",
        topic_data=[
            {"name": "orders", "partition_data": [{"index": partition, "records": records}]}
        ],
    )
    (answer,) = reply.responses[0].partition_responses
    return get_error(answer.error_code)


def stable(harness: ApiHarness, name: TopicPartition = P0) -> tuple[int, int]:
    partition = harness.replicas.get(name)
    return partition.last_stable_offset, partition.log_end_offset


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_marker_ends_the_transaction_in_every_partition_it_names(
    harness: ApiHarness, version: int, commit: bool
) -> None:
    produce(harness)
    produce(harness, partition=1)
    assert stable(harness) == stable(harness, P1) == (0, 1)
    assert write(harness, marker({"orders": [1, 0]}, commit=commit), version=version) == [
        [NONE, NONE]
    ]
    assert stable(harness) == stable(harness, P1) == (2, 2)
    log = harness.replicas.get(P0).log
    assert len(log.aborted(log.log_start_offset, log.log_end_offset)) == (not commit)


def test_several_markers_of_a_request_have_results_in_order(harness: ApiHarness) -> None:
    produce(harness)
    produce(harness, producer=6)
    topics = {"orders": [0], "absent": [3]}
    assert write(harness, marker(topics), marker(producer=6, commit=False)) == [
        [NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
        [NONE],
    ]
    assert stable(harness) == (4, 4)


def test_a_partition_led_elsewhere_does_not_affect_the_others(
    harness: ApiHarness,
) -> None:
    harness.make_topic("others", 1, replicas=(ME, OTHER), leader=OTHER)
    assert write(harness, marker({"others": [0], "orders": [0]})) == [
        [ErrorCode.NOT_LEADER_OR_FOLLOWER, NONE]
    ]


# -- repeated and late markers -------------------------------------------------------------------


@pytest.mark.parametrize("transaction_version", [0, 1, 2])
def test_a_repeated_marker_gets_the_same_result(
    harness: ApiHarness, transaction_version: int
) -> None:
    """Also if a reloaded coordinator does not know the first result (KAFKA-19999)."""
    produce(harness)
    epoch = 1 if transaction_version == 2 else 0
    for coordinator_epoch in (0, 0, 1):
        sent = marker(
            epoch=epoch,
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction_version,
        )
        assert write(harness, sent) == [[NONE]]
    assert stable(harness) == (4, 4)


def test_a_late_v2_marker_changes_nothing_in_the_next_transaction(
    harness: ApiHarness,
) -> None:
    produce(harness, epoch=32765)
    first = marker(epoch=32766, transaction_version=2)
    assert write(harness, first) == [[NONE]]
    assert produce(harness, epoch=32766) is NONE
    assert write(harness, first) == [[ErrorCode.INVALID_PRODUCER_EPOCH]]
    assert stable(harness) == (2, 3)
    assert write(harness, marker(epoch=32767, transaction_version=2, commit=False)) == [[NONE]]
    assert stable(harness) == (4, 4)


def test_a_late_marker_does_not_invalidate_the_next_verification(harness: ApiHarness) -> None:
    produce(harness)
    first = marker(epoch=1, transaction_version=2)
    write(harness, first)
    harness.verifier.answers_at_once = False
    records = batch(
        b"v", producer_id=PRODUCER, producer_epoch=1, base_sequence=0, transactional=True
    )
    sent = harness.send(
        ApiKey.PRODUCE,
        12,
        acks=-1,
        timeout=timedelta(seconds=1),
        transactional_id="mine",
        topic_data=[{"name": "orders", "partition_data": [{"index": 0, "records": records}]}],
    )
    assert write(harness, first) == [[NONE]]
    harness.verifier.answer(-1)
    assert sent.reply.responses[0].partition_responses[0].error_code == 0


def test_a_marker_invalidates_the_verification_of_its_transaction(harness: ApiHarness) -> None:
    """KAFKA-14402: the late batch would open a hanging transaction."""
    harness.verifier.answers_at_once = False
    records = batch(
        b"v", producer_id=PRODUCER, producer_epoch=0, base_sequence=0, transactional=True
    )
    sent = harness.send(
        ApiKey.PRODUCE,
        12,
        acks=-1,
        timeout=timedelta(seconds=1),
        transactional_id="mine",
        topic_data=[{"name": "orders", "partition_data": [{"index": 0, "records": records}]}],
    )
    assert write(harness, marker(commit=False)) == [[NONE]]
    harness.verifier.answer(0)
    code = get_error(sent.reply.responses[0].partition_responses[0].error_code)
    assert code is ErrorCode.TRANSACTION_ABORTABLE
    assert stable(harness) == (1, 1)


def test_markers_with_a_stale_producer_or_coordinator_epoch_end_nothing(
    harness: ApiHarness,
) -> None:
    assert write(harness, marker(epoch=3, coordinator_epoch=7)) == [[NONE]]
    produce(harness, epoch=3)
    assert write(harness, marker(epoch=2, coordinator_epoch=7)) == [
        [ErrorCode.INVALID_PRODUCER_EPOCH]
    ]
    assert write(harness, marker(epoch=3, coordinator_epoch=6)) == [
        [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    ]
    assert stable(harness) == (1, 2)


@pytest.mark.parametrize("late", [{"epoch": 2, "coordinator_epoch": 8}, {"coordinator_epoch": 6}])
def test_a_marker_for_an_ended_transaction_gets_producer_fenced(
    harness: ApiHarness, late: dict[str, int]
) -> None:
    """Otherwise a coordinator that lost its newest state would retry forever."""
    produce(harness, epoch=3)
    write(harness, marker(epoch=3, coordinator_epoch=7))
    sent: Any = marker(**{"epoch": 3, **late})  # type: ignore[arg-type]
    assert write(harness, sent) == [[ErrorCode.PRODUCER_FENCED]]
    assert stable(harness) == (2, 2)  # nothing was written


# -- the offsets topic ---------------------------------------------------------------------------


def test_markers_for_offsets_go_to_the_group_coordinator(harness: ApiHarness) -> None:
    harness.make_topic(OFFSETS_TOPIC, 2)
    sent = marker({OFFSETS_TOPIC: [1], "orders": [0]}, epoch=4, coordinator_epoch=3)
    assert write(harness, sent) == [[NONE, NONE]]
    expected = TransactionMarker(PRODUCER, 4, commit=True, coordinator_epoch=3)
    assert harness.groups.requests == [(1, expected)]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    ],
)
def test_errors_of_the_group_coordinator_are_mapped_to_partition_errors(
    harness: ApiHarness, code: ErrorCode
) -> None:
    harness.groups.code = code
    assert write(harness, marker({OFFSETS_TOPIC: [0]})) == [[ErrorCode.NOT_LEADER_OR_FOLLOWER]]


# -- authorization -------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_on_a_client_listener_a_transaction_can_only_be_aborted(
    harness: ApiHarness, commit: bool
) -> None:
    let_brokers_in(harness, listener="INTERNAL")
    produce(harness)
    expected = ErrorCode.CLUSTER_AUTHORIZATION_FAILED if commit else NONE
    assert write(harness, marker(commit=commit)) == [[expected]]
    assert stable(harness) == ((0, 1) if commit else (2, 2))


def test_writing_markers_requires_alter_on_the_cluster(harness: ApiHarness) -> None:
    let_brokers_in(harness, listener="INTERNAL")
    harness.guard.deny(AclOperation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    produce(harness)
    assert write(harness, marker(commit=False)) == [[ErrorCode.CLUSTER_AUTHORIZATION_FAILED]]
    assert stable(harness) == (0, 1)


@pytest.mark.parametrize(
    "wrong", [{"producer": -1}, {"epoch": -1}, {"coordinator_epoch": -2}], ids=str
)
def test_invalid_markers_are_rejected(harness: ApiHarness, wrong: dict[str, int]) -> None:
    sent: Any = marker(**wrong)  # type: ignore[arg-type]
    assert write(harness, sent) == [[ErrorCode.INVALID_REQUEST]]
    assert stable(harness) == (0, 0)
