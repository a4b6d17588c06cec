"""The settings of a sync, and the interface that runs its tasks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from penstock.spark.tables.part_writer import WriteRules
from penstock.spark.tables.store import TableStore
from penstock.spark.tables.table_schema import partition_fields_of

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


class RunTasks(Protocol):
    """Runs tasks anywhere and returns their results in order."""

    def __call__(
        self, work: Callable[[_Task], _Result], tasks: Sequence[_Task]
    ) -> list[_Result]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRules:
    most_records: int = 1_000_000  # per commit
    task_records: int = 250_000
    target_bytes: int = 128 * 1024 * 1024
    allows_loss: bool = False  # continue if the topic has deleted records before they were read
    compacts: bool = True  # merge small files and delete unused ones


def write_rules(store: TableStore, target_bytes: int) -> WriteRules:
    return WriteRules(
        table=str(store.location.absolute()),
        layout=store.layout,
        schema=store.schema,
        partition_fields=partition_fields_of(store.spec),
        target_bytes=target_bytes,
    )
