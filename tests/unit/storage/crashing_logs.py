"""One small log on a simulated disk, for tests that crash and recover it."""

from uuid import UUID

from penstock.config.log_config import LogConfig, StorageConfig
from penstock.logs.event_logger import message_logger
from penstock.model.ids import LeaderEpoch, Offset, TopicId, TopicPartition
from penstock.protocol.records import Record, build_batch
from penstock.storage.engine import AppendItem, AppendOrigin, LogAppendInfo
from penstock.storage.errors import StorageError
from penstock.storage.log import SegmentedLog
from penstock.storage.segmented_engine import SegmentedEngine
from penstock.testing.simulated_disk import SimulatedDisk

PARTITION = TopicPartition("t", 0)
FOLDER = "/d/t-0"
NOW_MS = 1_000_000
CONFIG = LogConfig(segment_bytes=300, index_interval_bytes=0)  # two or three batches per segment


class Broker:
    """An engine with one log; `after` restarts it on a survivor of a crash."""

    def __init__(
        self, disk: SimulatedDisk, config: LogConfig = CONFIG, descriptors: int = 9
    ) -> None:
        self.disk = disk
        self.config = config
        self.reports: list[str] = []
        self.engine = SegmentedEngine(
            StorageConfig(log_dirs=("/d",)),
            config_of=lambda topic: config,
            disk=disk,
            logger=message_logger(self.reports.append),
            descriptors=descriptors,
        )
        logs = self.engine.recover(lambda *, done, total: None, NOW_MS)
        log = logs.get(PARTITION)
        if log is None:
            log = self.engine.create(PARTITION, TopicId(UUID(int=1)), config, NOW_MS)
        assert isinstance(log, SegmentedLog)
        self.log = log

    def after(self, disk: SimulatedDisk) -> "Broker":
        return Broker(disk, self.config)

    def append(self, count: int = 1, *, epoch: int = 0, value: bytes = b"v" * 20) -> LogAppendInfo:
        records = [Record(index, NOW_MS, b"k", value) for index in range(count)]
        result = self.send(build_batch(records), epoch=epoch)
        assert isinstance(result, LogAppendInfo), result
        return result

    def follow(self, base_offset: int, *, epoch: int = 0) -> None:
        record = Record(base_offset, NOW_MS, b"k", b"v" * 20)
        batch = build_batch([record], base_offset=base_offset, leader_epoch=epoch)
        result = self.send(batch, origin=AppendOrigin.REPLICATION)
        assert isinstance(result, LogAppendInfo), result

    def send(
        self, batch: bytearray, *, epoch: int = 0, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> LogAppendInfo | StorageError:
        item = AppendItem(self.log, memoryview(batch), LeaderEpoch(epoch), origin)
        return self.engine.append([item], NOW_MS)[0]

    def flush(self) -> None:
        answers: list[StorageError | None] = []
        self.engine.flush(self.log, self.log.log_end_offset, answers.append)
        assert answers == [None]

    def checkpoint(self) -> None:
        self.engine.due_jobs(NOW_MS)
        for job in self.engine.due_jobs(NOW_MS + 60_000):
            if job.name == "checkpoint":
                job.run(lambda function: function())

    def truncate(self, offset: int) -> None:
        self.log.truncate_to(Offset(offset), NOW_MS)

    def values(self) -> list[tuple[int, bytes]]:
        """Return the first offset and the last 20 bytes of each batch as read."""
        records: list[tuple[int, bytes]] = []
        position = self.log.log_start_offset
        while position < self.log.log_end_offset:
            read = self.log.read(
                position, below=self.log.log_end_offset, max_bytes=1, at_least_one=True
            )
            content = b"".join(self.disk.pread(s.fd, s.length, s.position) for s in read.slices)
            read.lease.release()
            records.append((int.from_bytes(content[:8], "big"), content[-21:-1]))
            position = read.end_offset
        return records

    def offsets(self) -> list[int]:
        return [offset for offset, _ in self.values()]
