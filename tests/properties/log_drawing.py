"""Random configs, steps and background timing of the log's property test."""

from collections.abc import Callable, Iterable
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

from penstock.config.log_config import LogConfig
from penstock.model.ids import TopicId, TopicPartition

PARTITION = TopicPartition("t", 0)
OTHER = TopicPartition("other", 0)
TOPIC_ID = TopicId(UUID(int=7))
NOW_MS = 1_000_000
MAX_EPOCH = 2**31 - 1
MAX_TIMESTAMP = 2**63 - 1
RELATIVE_LIMIT = 2**31 - 1
BOTH = frozenset({"compact", "delete"})
KEYS = [b"k0", b"k1", b"k2", b"k3"]
TIMES = [*range(NOW_MS - 400, NOW_MS, 37), 0, -1, MAX_TIMESTAMP]

OPERATIONS = {
    "append": 14,
    "append_by_producer": 14,
    "append_again": 3,
    "append_gap": 2,
    "mark": 6,
    "follow": 8,
    "truncate": 5,
    "roll": 3,
    "retain": 5,
    "compact": 9,
    "delete_before": 3,
    "begin_epoch": 3,
    "flush": 7,
    "checkpoint": 5,
    "advance": 12,
    "read": 10,
    "look_up_time": 4,
    "look_up_epoch": 3,
    "restart_log": 1,
    "pump": 5,
    "kill": 3,
    "cut_power": 4,
    "close": 2,
}


# Steps around a deletion: what may be in progress when it comes, and what may follow.
BEFORE_DELETION = ["checkpoint", "append_other", "append", "flush", "delete_before", "compact"]
AFTER_DELETION = ["checkpoint", "append_other", "append", "flush", "remove_folders", "pump"]
RESTARTS = ["kill", "cut_power", "cut_power", "close"]
SHARE_WITH_DELETIONS = 0.3
OTHER_CONFIG = LogConfig(
    segment_bytes=700, retention_ms=-1, message_timestamp_after_max_ms=MAX_TIMESTAMP
)


class Step(NamedTuple):
    operation: str
    seed: int


def draw_steps(seed: int, count: int) -> list[Step]:
    random = Random(seed)
    names = random.choices(list(OPERATIONS), list(OPERATIONS.values()), k=count)
    return [Step(name, random.getrandbits(32)) for name in names]


def draw_steps_with_deletions(seed: int, count: int) -> list[Step]:
    """Draws steps as above, in some examples with deletions, which need two partitions."""
    steps = draw_steps(seed, count)
    random = Random(f"deletions {seed}")
    if random.random() >= SHARE_WITH_DELETIONS:
        return steps
    for _ in range(random.randint(1, 4)):
        names = random.choices(BEFORE_DELETION, k=random.randint(0, 3))
        names += ["recreate", *random.choices(AFTER_DELETION, k=random.randint(0, 3))]
        names += random.choices(RESTARTS, k=random.choice([0, 1]))
        index = random.randrange(len(steps) + 1)
        steps[index:index] = [Step(name, random.getrandbits(32)) for name in names]
    return steps


class Deferred:
    """A background executor that runs only on request, so that the owner continues meanwhile."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def run(self, work: Callable[[], None]) -> None:
        self.waiting.append(work)

    def run_all(self, function: Callable[[Any], None], items: Iterable[Any]) -> None:
        for item in items:
            function(item)

    def pump(self) -> None:
        while self.waiting:
            self.waiting.pop(0)()


class Immediate(Deferred):
    def run(self, work: Callable[[], None]) -> None:
        work()


def draw_config(random: Random) -> LogConfig:
    return LogConfig(
        segment_bytes=random.choice([450, 700, 1200, 2000]),
        index_interval_bytes=random.choice([0, 100, 300, 4096]),
        segment_index_bytes=random.choice([48, 10_000, 10_000]),
        segment_ms=random.choice([200, 10**9]),
        retention_ms=random.choice([-1, 150, 10**9]),
        retention_bytes=random.choice([-1, 600, 1500]),
        cleanup_policy=random.choice(
            [frozenset({"delete"}), frozenset({"compact"}), frozenset({"compact"}), BOTH]
        ),
        delete_retention_ms=random.choice([0, 50, 10**6]),
        message_timestamp_after_max_ms=MAX_TIMESTAMP,
        flush_messages=random.choice([1, 5, 2**60]),
    )


def ignore_progress(*, done: int, total: int) -> None:
    assert done <= total
