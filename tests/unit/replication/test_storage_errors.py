from penstock.model.errors import ErrorCode
from penstock.replication.storage_errors import CODES, as_refusal, code_of
from penstock.storage import errors
from penstock.storage.errors import StorageError


def test_every_storage_error_has_a_code() -> None:
    declared = {
        var
        for var in vars(errors).values()
        if isinstance(var, type) and issubclass(var, StorageError)
    }
    assert declared == set(CODES)


def test_clients_get_details_of_record_errors_but_not_of_disk_errors() -> None:
    mine = as_refusal(errors.RecordTooLarge("orders-0: a batch of 9 bytes is too large"))
    assert (mine.code, mine.message) == (
        ErrorCode.MESSAGE_TOO_LARGE,
        "orders-0: a batch of 9 bytes is too large",
    )
    disk = as_refusal(errors.DirectoryFailed("/secret/place", OSError("broken")))
    assert (disk.code, disk.message) == (ErrorCode.KAFKA_STORAGE_ERROR, None)


def test_a_batch_above_segment_bytes_differs_from_one_above_max_message_bytes() -> None:
    assert code_of(errors.SegmentTooSmall("x")) is ErrorCode.RECORD_LIST_TOO_LARGE
    assert code_of(errors.RecordTooLarge("x")) is ErrorCode.MESSAGE_TOO_LARGE
