"""The transaction APIs: authorization, decoded requests and encoded responses."""

from datetime import timedelta
from typing import Any

import pytest
from tests.unit.apis.brokers_listener import let_brokers_in
from tests.unit.apis.harness import NOW_MS, ApiHarness

from penstock.apis.registry import APIS
from penstock.coordinators.transaction.requests import (
    DescribedTransaction,
    EndTxnReply,
    InitProducerId,
    InitProducerIdReply,
    ListedTransactions,
    ListTransactions,
    TransactionSummary,
)
from penstock.model.cluster import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.protocol.api_keys import ApiKey
from penstock.security.authorizer import AclOperation, ResourceType

INIT, ADD = ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN
ADD_OFFSETS, END = ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN
DESCRIBE, LIST = ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS
NONE, FENCED = ErrorCode.NONE, ErrorCode.PRODUCER_FENCED
OLD_FENCED = ErrorCode.INVALID_PRODUCER_EPOCH
DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
WHO = {"transactional_id": "t", "producer_id": 7, "producer_epoch": 3}
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def deny(harness: ApiHarness, operation: AclOperation) -> None:
    harness.guard.deny(operation, ResourceType.TRANSACTIONAL_ID, "t")


# -- InitProducerId ------------------------------------------------------------------------


@pytest.mark.parametrize("version", APIS[INIT].versions)
def test_a_transactional_id_is_initialized_by_its_coordinator(
    harness: ApiHarness, version: int
) -> None:
    fields = dict(
        WHO,
        transaction_timeout=timedelta(seconds=60),
        enable2_pc=True,
        keep_prepared_txn=True,
    )
    harness.transactions.initialised = InitProducerIdReply(
        code=NONE,
        producer_id=8,
        producer_epoch=4,
        ongoing_producer_id=8,
        ongoing_producer_epoch=3,
    )
    reply = harness.ask(INIT, version, **fields)
    assert (reply.error_code, reply.producer_id, reply.producer_epoch) == (0, 8, 4)
    assert harness.transactions.requests == [
        InitProducerId(
            transactional_id="t",
            timeout_ms=60_000,
            producer_id=7 if version >= 3 else -1,
            producer_epoch=3 if version >= 3 else -1,
            two_phase=version >= 6,
            keep_prepared=version >= 6,
        )
    ]
    if version >= 6:
        kept = reply.ongoing_txn_producer_id, reply.ongoing_txn_producer_epoch
        assert kept == (8, 3)


@pytest.mark.parametrize("half", [{"producer_id": 7}, {"producer_epoch": 3}])
def test_producer_id_and_epoch_come_together(harness: ApiHarness, half: dict[str, int]) -> None:
    reply = harness.ask(INIT, 5, transactional_id="t", **half)
    assert (reply.error_code, harness.transactions.requests) == (ErrorCode.INVALID_REQUEST, [])


@pytest.mark.parametrize(
    ("two_phase", "operation"), [(False, AclOperation.WRITE), (True, AclOperation.TWO_PHASE_COMMIT)]
)
def test_two_phase_commit_requires_its_own_permission(
    harness: ApiHarness, two_phase: bool, operation: AclOperation
) -> None:
    deny(harness, AclOperation.TWO_PHASE_COMMIT)
    assert harness.ask(INIT, 6, transactional_id="t").error_code == NONE
    deny(harness, operation)
    reply = harness.ask(INIT, 6, transactional_id="t", enable2_pc=two_phase)
    assert (reply.error_code, reply.producer_id) == (DENIED, -1)


@pytest.mark.parametrize("field", ["enable2_pc", "keep_prepared_txn"])
def test_two_phase_commit_without_a_transactional_id_is_invalid(
    harness: ApiHarness, field: str
) -> None:
    assert harness.ask(INIT, 6, **{field: True}).error_code == ErrorCode.INVALID_REQUEST


# -- the error code of a fenced producer ---------------------------------------------------


def fenced_codes(harness: ApiHarness, key: ApiKey, **fields: Any) -> list[int]:
    """Return the code in every version that producers use."""
    harness.make_topic("orders", 2)
    harness.make_topic(OFFSETS_TOPIC)
    harness.transactions.code = FENCED
    harness.transactions.ended = EndTxnReply(FENCED)
    harness.transactions.initialised = InitProducerIdReply(code=FENCED)
    versions = [version for version in APIS[key].versions if key is not ADD or version < 4]
    return [_first_code(harness.ask(key, version, **fields)) for version in versions]


def _first_code(reply: Any) -> int:
    if hasattr(reply, "error_code"):
        return int(reply.error_code)
    (topic,) = reply.results_by_topic_v3_and_below
    return int(topic.results_by_partition[0].partition_error_code)


def test_init_producer_id_returns_producer_fenced_by_version(harness: ApiHarness) -> None:
    assert fenced_codes(harness, INIT, **WHO) == [OLD_FENCED] * 4 + [FENCED] * 3


def test_end_txn_returns_producer_fenced_by_version(harness: ApiHarness) -> None:
    assert fenced_codes(harness, END, **WHO) == [OLD_FENCED] * 2 + [FENCED] * 4


def test_add_offsets_returns_producer_fenced_by_version(harness: ApiHarness) -> None:
    assert fenced_codes(harness, ADD_OFFSETS, **WHO) == [OLD_FENCED] * 2 + [FENCED] * 3


def test_add_partitions_returns_producer_fenced_by_version(harness: ApiHarness) -> None:
    codes = fenced_codes(harness, ADD, **producer_asks("orders", 0))
    assert codes == [OLD_FENCED] * 2 + [FENCED] * 2


# -- AddPartitionsToTxn --------------------------------------------------------------------


def producer_asks(topic: str, *numbers: int) -> dict[str, Any]:
    fields = {f"v3_and_below_{name}": value for name, value in WHO.items()}
    return {**fields, "v3_and_below_topics": [{"name": topic, "partitions": numbers}]}


def producer_codes(reply: Any) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic.name, result.partition_index): result.partition_error_code
        for topic in reply.results_by_topic_v3_and_below
        for result in topic.results_by_partition
    }


@pytest.mark.parametrize("version", range(4))
def test_a_producer_adds_partitions_each_once(harness: ApiHarness, version: int) -> None:
    harness.make_topic("orders", 2)
    reply = harness.ask(ADD, version, **producer_asks("orders", 0, 1, 0))
    assert producer_codes(reply) == {P0: 0, P1: 0}
    assert harness.transactions.requests == [("add", "t", 7, 3, (P0, P1), version)]
    assert harness.transactions.connection == harness.connection.number


def test_one_missing_partition_prevents_the_others(harness: ApiHarness) -> None:
    harness.make_topic("orders", 1)
    codes = producer_codes(harness.ask(ADD, 3, **producer_asks("orders", 0, 1)))
    assert codes == {
        P0: ErrorCode.OPERATION_NOT_ATTEMPTED,
        P1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert harness.transactions.requests == []


@pytest.mark.parametrize("topic", [OFFSETS_TOPIC, TRANSACTIONS_TOPIC, "theirs", "never"])
def test_adding_partitions_requires_write_on_the_topic(harness: ApiHarness, topic: str) -> None:
    """The error code does not reveal whether the topic exists."""
    harness.make_topic(OFFSETS_TOPIC)
    harness.make_topic("theirs")
    for name in ("theirs", "never"):
        harness.guard.deny(AclOperation.WRITE, ResourceType.TOPIC, name)
    codes = producer_codes(harness.ask(ADD, 3, **producer_asks(topic, 0)))
    assert codes == {TopicPartition(topic, 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED}


def broker_asks(*, verify_only: bool, ids: tuple[str, ...] = ("t",)) -> dict[str, Any]:
    topics = [{"name": "orders", "partitions": [0, 1]}]
    return {
        "transactions": [
            {**WHO, "transactional_id": id_, "verify_only": verify_only, "topics": topics}
            for id_ in ids
        ]
    }


def broker_codes(reply: Any) -> list[tuple[str, dict[TopicPartition, int]]]:
    assert reply.error_code == NONE
    return [
        (
            result.transactional_id,
            {
                TopicPartition(topic.name, result.partition_index): result.partition_error_code
                for topic in result.topic_results
                for result in topic.results_by_partition
            },
        )
        for result in reply.results_by_transaction
    ]


@pytest.mark.parametrize("version", [4, 5])
def test_brokers_verify_several_transactions_at_once(harness: ApiHarness, version: int) -> None:
    let_brokers_in(harness)
    harness.transactions.unverified = {P1: ErrorCode.TRANSACTION_ABORTABLE}
    reply = harness.ask(ADD, version, **broker_asks(verify_only=True, ids=("t", "u")))
    codes = {P0: NONE, P1: ErrorCode.TRANSACTION_ABORTABLE}
    assert broker_codes(reply) == [("t", codes), ("u", codes)]
    assert harness.transactions.requests == [
        ("verify", name, 7, 3, (P0, P1)) for name in ("t", "u")
    ]


def test_brokers_add_partitions_for_their_clients(harness: ApiHarness) -> None:
    let_brokers_in(harness)
    harness.transactions.code = FENCED
    reply = harness.ask(ADD, 5, **broker_asks(verify_only=False))
    assert broker_codes(reply) == [("t", {P0: FENCED, P1: FENCED})]
    assert harness.transactions.requests == [("add", "t", 7, 3, (P0, P1), 5)]
    assert harness.transactions.connection is None  # a broker's connection serves many producers


@pytest.mark.parametrize("listener", ["PLAINTEXT", "BROKERS"])
def test_only_brokers_may_use_the_broker_versions(harness: ApiHarness, listener: str) -> None:
    """On the client listener, or without the permission, they are refused."""
    let_brokers_in(harness, listener)
    harness.guard.denies_all = listener == "PLAINTEXT"
    reply = harness.ask(ADD, 4, **broker_asks(verify_only=True))
    refused = reply.error_code, reply.results_by_transaction
    assert refused == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ())
    assert harness.transactions.requests == []


# -- AddOffsetsToTxn -----------------------------------------------------------------------


@pytest.mark.parametrize("version", APIS[ADD_OFFSETS].versions)
def test_the_groups_partition_of_the_offsets_topic_is_added(
    harness: ApiHarness, version: int
) -> None:
    harness.groups.partition = 5
    reply = harness.ask(ADD_OFFSETS, version, **WHO, group_id="g")
    assert reply.error_code == NONE
    added = TopicPartition(OFFSETS_TOPIC, 5)
    assert harness.transactions.requests == [
        ("add", "t", 7, 3, (added,), 3)
    ]  # none with transactions v2
    assert harness.transactions.connection == harness.connection.number
    assert harness.groups.requests == ["ensure_topic"]


def test_without_the_offsets_topic_the_client_retries(harness: ApiHarness) -> None:
    harness.groups.topic_code = ErrorCode.INVALID_REPLICATION_FACTOR
    reply = harness.ask(ADD_OFFSETS, 3, **WHO, group_id="g")
    assert reply.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert harness.transactions.requests == []


def test_adding_offsets_requires_read_on_the_group(harness: ApiHarness) -> None:
    harness.guard.deny(AclOperation.READ, ResourceType.GROUP, "g")
    reply = harness.ask(ADD_OFFSETS, 3, **WHO, group_id="g")
    assert reply.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert harness.transactions.requests == []


# -- EndTxn --------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", APIS[END].versions)
def test_end_txn_is_decoded_and_its_response_encoded(
    harness: ApiHarness, version: int, commit: bool
) -> None:
    harness.transactions.ended = EndTxnReply(NONE, 9, 0)
    reply = harness.ask(END, version, **WHO, committed=commit)
    assert reply.error_code == NONE
    assert harness.transactions.requests == [("t", 7, 3, commit, version)]
    assert harness.transactions.connection == harness.connection.number
    if version >= 5:
        assert (reply.producer_id, reply.producer_epoch) == (9, 0)


def test_end_txn_requires_write_on_the_transactional_id(harness: ApiHarness) -> None:
    deny(harness, AclOperation.WRITE)
    assert harness.ask(END, 4, **WHO).error_code == DENIED
    assert harness.transactions.requests == []


# -- DescribeTransactions and ListTransactions ---------------------------------------------


def test_a_description_omits_topics_that_may_not_be_described(
    harness: ApiHarness,
) -> None:
    harness.guard.deny(AclOperation.DESCRIBE, ResourceType.TOPIC, "secret")
    harness.guard.deny(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "theirs")
    harness.transactions.described = {
        "t": DescribedTransaction(
            transactional_id="t",
            code=NONE,
            state="Ongoing",
            timeout_ms=60_000,
            started_ms=NOW_MS,
            producer_id=7,
            producer_epoch=3,
            partitions=(P0, P1, TopicPartition("secret", 0)),
        ),
        "gone": DescribedTransaction(
            transactional_id="gone", code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, state=""
        ),
    }
    reply = harness.ask(DESCRIBE, 0, transactional_ids=["t", "gone", "theirs", "t"])
    transaction, gone, theirs = reply.transaction_states
    assert (transaction.error_code, transaction.transaction_state) == (NONE, "Ongoing")
    assert transaction.transaction_start_time.timestamp() * 1000 == NOW_MS
    assert transaction.transaction_timeout == timedelta(seconds=60)
    assert (transaction.producer_id, transaction.producer_epoch) == (7, 3)
    assert [(topic.topic, topic.partitions) for topic in transaction.topics] == [("orders", (0, 1))]
    assert gone.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert (gone.transaction_start_time, theirs.error_code) == (None, DENIED)
    assert harness.transactions.requests == ["t", "gone"]


@pytest.mark.parametrize("version", APIS[LIST].versions)
def test_only_transactions_that_may_be_described_are_listed(
    harness: ApiHarness, version: int
) -> None:
    harness.guard.deny(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "theirs")
    harness.transactions.listed = ListedTransactions(
        NONE,
        ("Odd",),
        (TransactionSummary("t", 7, "Ongoing"), TransactionSummary("theirs", 8, "Ongoing")),
    )
    reply = harness.ask(
        LIST,
        version,
        state_filters=["Ongoing", "Odd"],
        producer_id_filters=[7, 8],
        duration_filter=5,
    )
    assert (reply.error_code, reply.unknown_state_filters) == (NONE, ("Odd",))
    (transaction,) = reply.transaction_states
    assert (
        transaction.transactional_id,
        transaction.producer_id,
        transaction.transaction_state,
    ) == (
        "t",
        7,
        "Ongoing",
    )
    assert harness.transactions.requests == [
        ListTransactions(
            states=frozenset(("Ongoing", "Odd")),
            producer_ids=frozenset((7, 8)),
            min_duration_ms=5 if version >= 1 else -1,
        )
    ]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        (None, ["billing-1", "billing-2", "sink é"]),
        ("", ["billing-1", "billing-2", "sink é"]),
        ("billing-.*", ["billing-1", "billing-2"]),
        ("billing", []),  # the pattern must match the whole id
        ("[^-]+", ["sink é"]),
    ],
)
def test_ids_are_listed_by_a_pattern(
    harness: ApiHarness, pattern: str | None, names: list[str]
) -> None:
    ids = ("billing-1", "billing-2", "sink é")
    harness.transactions.listed = ListedTransactions(
        NONE, (), tuple(TransactionSummary(name, 7, "Ongoing") for name in ids)
    )
    reply = harness.ask(LIST, 2, transactional_id_pattern=pattern)
    assert reply.error_code == NONE
    assert [state.transactional_id for state in reply.transaction_states] == names


def test_an_invalid_pattern_is_rejected(harness: ApiHarness) -> None:
    harness.transactions.listed = ListedTransactions(
        NONE, (), (TransactionSummary("t", 7, "Ongoing"),)
    )
    reply = harness.ask(LIST, 2, transactional_id_pattern="(a")
    assert reply.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert reply.transaction_states == ()
