"""Maps storage errors to Kafka's error codes: the one table, kept complete by a test."""

from collections.abc import Mapping
from types import MappingProxyType

from penstock.model.errors import ErrorCode, Refusal
from penstock.storage import errors
from penstock.storage.errors import StorageError

CODES: Mapping[type[StorageError], ErrorCode] = MappingProxyType(
    {
        StorageError: ErrorCode.UNKNOWN_SERVER_ERROR,
        errors.OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
        errors.UnknownPartition: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        errors.PartitionExists: ErrorCode.KAFKA_STORAGE_ERROR,
        errors.CorruptRecords: ErrorCode.CORRUPT_MESSAGE,
        errors.RecordTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
        errors.SegmentTooSmall: ErrorCode.RECORD_LIST_TOO_LARGE,
        errors.InvalidRecords: ErrorCode.INVALID_RECORD,
        errors.InvalidTimestamp: ErrorCode.INVALID_TIMESTAMP,
        # From followers, never from clients
        errors.UnexpectedOffset: ErrorCode.UNKNOWN_SERVER_ERROR,
        errors.LogFenced: ErrorCode.KAFKA_STORAGE_ERROR,
        errors.DirectoryFailed: ErrorCode.KAFKA_STORAGE_ERROR,
        errors.DirectoryLocked: ErrorCode.KAFKA_STORAGE_ERROR,
        errors.MalformedCheckpoint: ErrorCode.KAFKA_STORAGE_ERROR,
        errors.MalformedTransactionIndex: ErrorCode.KAFKA_STORAGE_ERROR,
        errors.CorruptSnapshot: ErrorCode.KAFKA_STORAGE_ERROR,
        errors.UnknownProducer: ErrorCode.UNKNOWN_PRODUCER_ID,
        errors.OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        errors.DuplicateSequence: ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        # Not PRODUCER_FENCED: old producers know only this code, new ones handle both (KIP-588).
        errors.InvalidProducerEpoch: ErrorCode.INVALID_PRODUCER_EPOCH,
        errors.InvalidTransactionState: ErrorCode.INVALID_TXN_STATE,
        errors.CoordinatorFenced: ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    }
)


def code_of(error: StorageError) -> ErrorCode:
    return CODES[type(error)]


def message_of(error: StorageError) -> str | None:
    """The message for a client. Details of a disk error are for operators only."""
    return None if code_of(error) is ErrorCode.KAFKA_STORAGE_ERROR else str(error)


def as_refusal(error: StorageError) -> Refusal:
    return Refusal(code_of(error), message_of(error))
