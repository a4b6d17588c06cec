"""A batch that a producer sends again is answered with its first append."""

from penstock.config.log_config import LogConfig
from penstock.model.ids import NO_TIMESTAMP, Offset
from penstock.protocol.batch import BatchHeader
from penstock.storage.engine import LogAppendInfo
from penstock.storage.producer_replay import check_batch
from penstock.storage.producer_state_manager import ProducerStateManager


def find_stored(
    producers: ProducerStateManager,
    header: BatchHeader,
    batches: memoryview,
    config: LogConfig,
    tp: object,
) -> LogAppendInfo | None:
    """The first append of a duplicate batch; None if it may be appended; raises otherwise."""
    stored = check_batch(producers, header, batches, tp)
    if stored is None:
        return None
    is_stamped = config.message_timestamp_type == "LogAppendTime"
    append_time_ms = stored.timestamp_ms if is_stamped else NO_TIMESTAMP
    return LogAppendInfo(stored.base_offset, Offset(stored.last_offset + 1), append_time_ms, True)
