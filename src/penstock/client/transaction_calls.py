"""Requests about transactions as plain values. No connections here.

EndTxn 5 and Produce 12 belong to another protocol (transactions v2) and are not sent: partitions
are added with a separate request, so a prepared transaction lists them as written.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from penstock.client.call import Call
from penstock.client.data_calls import group_numbers
from penstock.client.errors import RefusedByBroker
from penstock.client.metadata import BrokerMetadata, read_error
from penstock.client.transaction_values import (
    InitialisedProducer,
    ListedTransaction,
    OpenTransaction,
    PreparedState,
    TransactionalProducerId,
    TransactionDescription,
)
from penstock.model.errors import ErrorCode
from penstock.model.ids import NO_PRODUCER_ID, TopicPartition
from penstock.protocol.api_keys import ApiKey

_TWO_PHASE_VERSION = 6
_NO_START_OFFSET = -1


# Requests of producers.


def init_producer_call(
    transactional_id: str, *, timeout_ms: int, two_phase: bool, keep_prepared: bool
) -> Call:
    fields = {
        "transactional_id": transactional_id,
        "transaction_timeout": timedelta(milliseconds=timeout_ms),
        "producer_id": NO_PRODUCER_ID,
        "producer_epoch": -1,
        "enable2_pc": two_phase,
        "keep_prepared_txn": keep_prepared,
    }
    lowest = _TWO_PHASE_VERSION if two_phase or keep_prepared else 4
    return Call(ApiKey.INIT_PRODUCER_ID, range(lowest, _TWO_PHASE_VERSION + 1), fields)


def read_initialised(transactional_id: str, answer: Any) -> InitialisedProducer:
    check(f"begin as {transactional_id!r}", answer)
    producer = TransactionalProducerId(transactional_id, answer.producer_id, answer.producer_epoch)
    ongoing = getattr(answer, "ongoing_txn_producer_id", NO_PRODUCER_ID)
    if ongoing == NO_PRODUCER_ID:
        return InitialisedProducer(producer)
    prepared = PreparedState(transactional_id, ongoing, answer.ongoing_txn_producer_epoch)
    return InitialisedProducer(producer, prepared)


def add_partitions_call(
    producer: TransactionalProducerId, partitions: Iterable[TopicPartition]
) -> Call:
    fields = {
        "v3_and_below_transactional_id": producer.transactional_id,
        "v3_and_below_producer_id": producer.producer_id,
        "v3_and_below_producer_epoch": producer.producer_epoch,
        "v3_and_below_topics": group_numbers(partitions, "partitions"),
    }
    return Call(ApiKey.ADD_PARTITIONS_TO_TXN, range(2, 4), fields)


def check_added(what: str, answer: Any) -> None:
    """Raise the error of the partition because of which none was added."""
    codes = {
        TopicPartition(topic.name, result.partition_index): read_error(result.partition_error_code)
        for topic in answer.results_by_topic_v3_and_below
        for result in topic.results_by_partition
    }
    failed = {partition: code for partition, code in codes.items() if code}
    for partition, code in sorted(failed.items(), key=_is_consequence):
        raise RefusedByBroker(f"{what}: {partition}", code)


def _is_consequence(failed: tuple[TopicPartition, ErrorCode]) -> bool:
    return failed[1] is ErrorCode.OPERATION_NOT_ATTEMPTED


def end_call(producer: TransactionalProducerId, *, commit: bool) -> Call:
    return Call(ApiKey.END_TXN, range(2, 5), {**producer._asdict(), "committed": commit})


# Requests of admins.


def list_call(states: Sequence[str], producer_ids: Sequence[int], *, min_duration_ms: int) -> Call:
    """Requires a version with the filters used: an older one would silently ignore them."""
    fields = {
        "state_filters": states,
        "producer_id_filters": producer_ids,
        "duration_filter": min_duration_ms,
    }
    return Call(ApiKey.LIST_TRANSACTIONS, range(1 if min_duration_ms >= 0 else 0, 2), fields)


def read_listed(answer: Any, coordinator: int) -> list[ListedTransaction]:
    check("list transactions", answer)
    if answer.unknown_state_filters:
        unknown = ", ".join(answer.unknown_state_filters)
        raise RefusedByBroker(
            "list transactions", ErrorCode.INVALID_REQUEST, f"no state is named {unknown}"
        )
    return [
        ListedTransaction(
            state.transactional_id, state.producer_id, state.transaction_state, coordinator
        )
        for state in answer.transaction_states
    ]


def describe_call(transactional_id: str) -> Call:
    return Call(ApiKey.DESCRIBE_TRANSACTIONS, range(1), {"transactional_ids": [transactional_id]})


def read_described(answer: Any, coordinator: BrokerMetadata) -> TransactionDescription:
    (state,) = answer.transaction_states
    check(f"describe transactional id {state.transactional_id!r}", state)
    return TransactionDescription(
        transactional_id=state.transactional_id,
        coordinator=coordinator,
        state=state.transaction_state,
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        timeout_ms=state.transaction_timeout // timedelta(milliseconds=1),
        start_ms=_find_ms(state.transaction_start_time),
        partitions=tuple(
            sorted(
                TopicPartition(topic.topic, number)
                for topic in state.topics
                for number in topic.partitions
            )
        ),
    )


def describe_producers_call(partitions: Iterable[TopicPartition]) -> Call:
    topics = group_numbers(partitions, "partition_indexes")
    return Call(ApiKey.DESCRIBE_PRODUCERS, range(1), {"topics": topics})


def read_producers(
    answer: Any,
) -> dict[TopicPartition, tuple[ErrorCode, str | None, list[OpenTransaction]]]:
    """Only producers with an open transaction."""
    producers = {}
    for topic in answer.topics:
        for data in topic.partitions:
            partition = TopicPartition(topic.name, data.partition_index)
            open_ones = [
                _read_open(partition, producer)
                for producer in data.active_producers
                if producer.current_txn_start_offset != _NO_START_OFFSET
            ]
            producers[partition] = read_error(data.error_code), data.error_message, open_ones
    return producers


def _read_open(partition: TopicPartition, producer: Any) -> OpenTransaction:
    return OpenTransaction(
        partition,
        producer.producer_id,
        producer.producer_epoch,
        producer.coordinator_epoch,
        producer.current_txn_start_offset,
        producer.last_timestamp,
    )


def abort_marker_call(hanging: OpenTransaction) -> Call:
    """An abort marker as Kafka's own tool sends it: with the epoch of the last coordinator."""
    marker = {
        "producer_id": hanging.producer_id,
        "producer_epoch": hanging.producer_epoch,
        "transaction_result": False,
        "topics": group_numbers([hanging.tp], "partition_indexes"),
        "coordinator_epoch": max(hanging.coordinator_epoch, 0),
        "transaction_version": 0,
    }
    return Call(ApiKey.WRITE_TXN_MARKERS, range(1, 3), {"markers": [marker]})


def read_marked(answer: Any) -> dict[TopicPartition, ErrorCode]:
    return {
        TopicPartition(topic.name, partition.partition_index): read_error(partition.error_code)
        for marker in answer.markers
        for topic in marker.topics
        for partition in topic.partitions
    }


def check(what: str, result: Any) -> None:
    code = read_error(result.error_code)
    if code:
        raise RefusedByBroker(what, code, getattr(result, "error_message", None))


def _find_ms(time: datetime | None) -> int | None:
    return None if time is None else round(time.timestamp() * 1000)
