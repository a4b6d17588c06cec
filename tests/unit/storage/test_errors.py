import inspect

from penstock.model.ids import TopicPartition
from penstock.storage import errors


def test_every_error_of_the_package_is_a_storage_error() -> None:
    named = [value for _, value in inspect.getmembers(errors, inspect.isclass)]
    raised = [c for c in named if issubclass(c, BaseException)]
    assert len(raised) > 15
    assert all(issubclass(c, errors.StorageError) for c in raised)


def test_offset_out_of_range_names_the_offset_and_both_bounds() -> None:
    error = errors.OffsetOutOfRange(0, 7, 2**63 - 1)
    assert (error.requested, error.log_start_offset, error.log_end_offset) == (0, 7, 2**63 - 1)
    assert all(number in str(error) for number in ("offset 0 ", " 7 ", str(2**63 - 1)))


def test_a_fenced_log_names_the_partition_and_the_first_error() -> None:
    first = OSError(28, "No space left on device")
    error = errors.LogFenced(TopicPartition("orders", 3), first)
    assert error.first_error is first
    assert "orders-3" in str(error)
    assert "No space left on device" in str(error)


def test_a_failed_directory_names_itself_and_the_first_error() -> None:
    error = errors.DirectoryFailed("/data/a", OSError(5, "Input/output error"))
    assert error.directory == "/data/a"
    assert "/data/a" in str(error)
    assert "Input/output error" in str(error)


def test_partition_and_directory_errors_name_their_subject() -> None:
    partition = TopicPartition("orders", 0)
    assert errors.UnknownPartition(partition).tp == partition
    assert "orders-0" in str(errors.UnknownPartition(partition))
    assert "orders-0" in str(errors.PartitionExists(partition))
    assert "/data/a" in str(errors.DirectoryLocked("/data/a"))
