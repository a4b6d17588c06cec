"""How a table is kept: sizes, what is allowed, and who does the tasks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from penstock.spark.tables.part_writer import WriteRules
from penstock.spark.tables.store import TableStore
from penstock.spark.tables.table_schema import divisions_of

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


class RunTasks(Protocol):
    """Does the tasks, somewhere; results in their order."""

    def __call__(
        self, work: Callable[[_Task], _Result], tasks: Sequence[_Task]
    ) -> list[_Result]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRules:
    most_records: int = 1_000_000  # of a batch
    task_records: int = 250_000
    target_bytes: int = 128 * 1024 * 1024
    allows_loss: bool = False  # go on where the topic has deleted what the table lacks
    compacts: bool = True  # and deletes what nobody needs any more


def write_rules(store: TableStore, target_bytes: int) -> WriteRules:
    return WriteRules(
        table=str(store.location.absolute()),
        layout=store.layout,
        schema=store.schema,
        divisions=divisions_of(store.spec),
        target_bytes=target_bytes,
    )
