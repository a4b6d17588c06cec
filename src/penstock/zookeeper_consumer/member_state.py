"""What outlives a member's sessions: its reader, what it knows of stored offsets, its counters.

Owned by the membership's event loop; `reader` and the counters may be read by any thread.
"""

import logging
from collections.abc import Callable

from penstock.model.ids import TopicPartition
from penstock.zookeeper_consumer.member_config import MemberConfig
from penstock.zookeeper_consumer.partition_reader import PartitionReader
from penstock.zookeeper_consumer.reading_progress import ReadingProgress

LOG = logging.getLogger("penstock.zookeeper_consumer")
LOG.addHandler(logging.NullHandler())


class SharedMemberState:
    def __init__(self, config: MemberConfig, may_read: Callable[[], bool]) -> None:
        self._config = config
        self._may_read = may_read
        self._progress = ReadingProgress()
        self.reader: PartitionReader | None = None
        self.last_stored: dict[TopicPartition, int] = {}  # what this member knows to be stored
        self.sessions = 0
        self.rebalances = 0
        self.conflicts = 0
        self.watch_events = 0
        self.commits = 0

    def reader_for(self, bootstrap_servers: str) -> PartitionReader:
        """A new one if none of the brokers remain by which the last one found the cluster."""
        reader = self.reader
        if reader is not None:
            if _share_one(reader.bootstrap_servers, bootstrap_servers):
                return reader
            LOG.info("all brokers have other addresses: connecting to %s", bootstrap_servers)
            reader.close()
        config = self._config
        self.reader = PartitionReader(
            bootstrap_servers,
            group=config.group,
            client_id=config.client_id,
            from_beginning=config.from_beginning,
            may_read=self._may_read,
            config=config.config,
            progress=self._progress,
        )
        return self.reader


def _share_one(addresses: str, others: str) -> bool:
    return not set(addresses.split(",")).isdisjoint(others.split(","))
