"""Tables synced with their topics, with tasks in this process: everything but Spark is real."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest
from tests.spark.synced_tables import (
    SyncedTable,
    client_of,
    dead_letters,
    open_synced,
    positions_of,
    read_table,
    run_here,
)
from tests.spark.topics import Sent, create_topic, delete_records, delete_topic, send

import penstock
from penstock.cli.table_option_values import TableOptions
from penstock.spark.tables.errors import TableError
from penstock.spark.tables.follow import FollowOptions, follow
from penstock.spark.tables.maintenance import DAY_MS, TableMaintenance, compact_table
from penstock.spark.tables.opening import TableFolder
from penstock.spark.tables.parts import HeldRange
from penstock.spark.tables.rules import RunTasks, SyncRules
from penstock.spark.tables.spec import DeadLetterPolicy, TableFormat
from penstock.spark.tables.status import PartitionStatus, table_status
from penstock.spark.tables.sync import SyncProgress
from penstock.spark.tables.table_schema import values_of_schema

PARTITIONS = 2
RULES = SyncRules()
FORMATS = pytest.mark.parametrize("kind", list(TableFormat))


def numbered(first: int, count: int, *, bad_every: int = 0) -> list[Sent]:
    """Record n has the number n in its value; every `bad_every`th value is broken."""
    return [
        Sent(
            b"broken" if bad_every and n % bad_every == 0 else json.dumps({"n": n}).encode(),
            b"key-%d" % (n % 10),
            n % PARTITIONS,
            1_700_000_000_000 + n,
            [("number", b"%d" % n)],
        )
        for n in range(first, first + count)
    ]


@contextmanager
def synced_table(*arguments: Any, **options: Any) -> Iterator[SyncedTable]:
    table = open_synced(*arguments, **options)
    try:
        yield table
    finally:
        table.tables.close()


@FORMATS
def test_every_record_is_a_row_or_a_dead_letter(
    broker: penstock.Broker, topic_name: str, tmp_path: Path, kind: TableFormat
) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name, partitions=PARTITIONS)
    send(servers, topic_name, numbered(0, 500, bad_every=50))
    options = {"format": kind, "value": "json", "partition_by": ("day(_timestamp)",)}
    with synced_table(broker, tmp_path, topic_name, most_records=200, options=options) as table:
        done = table.drain()
        assert [progress.rows for progress in done] == [200, 200, 100]
        assert [progress.lag for progress in done] == [300, 100, 0]
        send(servers, topic_name, numbered(500, 100))
        assert table.drain()[0].rows == 100

    rows = read_table(tmp_path, topic_name, kind)
    good = [n for n in range(600) if n >= 500 or n % 50]
    assert sorted(rows.column("n").to_pylist()) == good
    row = next(row for row in rows.to_pylist() if row["n"] == 7)
    assert (row["_partition"], row["_offset"], row["_key"]) == (1, 3, b"key-7")
    assert row["_value"] == b'{"n": 7}'
    assert [dict(header) for header in row["_headers"]] == [{"key": "number", "value": b"7"}]
    assert row["_timestamp"].timestamp() == 1_700_000_000.007
    letters = dead_letters(tmp_path, topic_name, kind)
    assert [letter["_offset"] for letter in letters] == list(range(0, 250, 25))
    assert {letter["_value"] for letter in letters} == {b"broken"}
    assert letters[0]["_error"].startswith("not valid JSON: ")


class Crash(Exception):
    """The driver crashes here."""


def _die(*_: object) -> NoReturn:
    raise Crash


def _crash_after_tasks(work: Callable[[Any], Any], tasks: Sequence[Any]) -> list[Any]:
    run_here(work, tasks)  # the files are written, but the results are lost
    raise Crash


CRASHES = ("before the tasks", "after the tasks", "before the commit", "after the commit")


@FORMATS
@pytest.mark.parametrize("where", CRASHES)
def test_crash_at_any_point_loses_and_duplicates_nothing(
    broker: penstock.Broker,
    topic_name: str,
    tmp_path: Path,
    kind: TableFormat,
    where: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Includes dead letters, which have their own table and are committed first."""
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name, partitions=PARTITIONS)
    send(servers, topic_name, numbered(0, 100, bad_every=10))
    options = {"format": kind, "value": "json", "columns": "n BIGINT"}
    with synced_table(broker, tmp_path, topic_name, most_records=60, options=options) as table:
        assert table.sync.run_batch() is not None
        with monkeypatch.context() as patch:
            if where == "before the tasks":
                patch.setattr(table.sync, "_run_tasks", _die)
            elif where == "after the tasks":
                patch.setattr(table.sync, "_run_tasks", _crash_after_tasks)
            elif where == "before the commit":
                patch.setattr(table.tables.store, "commit", _die)
            else:
                patch.setattr("penstock.spark.tables.sync._progress", _die)
            with pytest.raises(Crash):
                table.sync.run_batch()
    with synced_table(broker, tmp_path, topic_name, most_records=7) as table:
        table.drain()
        paths = [part.path for part in table.tables.store.parts()]
    assert len(set(paths)) == len(paths)
    rows = read_table(tmp_path, topic_name, kind)
    assert sorted(rows.column("n").to_pylist()) == [n for n in range(100) if n % 10]
    assert [letter["_offset"] for letter in dead_letters(tmp_path, topic_name, kind)] == list(
        range(0, 50, 5)
    )


@FORMATS
def test_concurrent_syncs_of_one_table_duplicate_nothing(
    broker: penstock.Broker, topic_name: str, tmp_path: Path, kind: TableFormat
) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name, partitions=PARTITIONS)
    send(servers, topic_name, numbered(0, 40))
    rivals: list[Callable[[], object]] = []
    tasks = _overtaken_by(rivals)
    options = {"format": kind, "value": "json", "columns": "n BIGINT"}
    with (
        synced_table(broker, tmp_path, topic_name, run_tasks=tasks, options=options) as table,
        synced_table(broker, tmp_path, topic_name, most_records=11) as other,
    ):
        rivals.append(other.drain)
        assert table.drain() == []
        assert "planning again" in table.notes[0]
    assert positions_of(read_table(tmp_path, topic_name, kind)) == [
        (number, offset) for number in range(PARTITIONS) for offset in range(20)
    ]


def _overtaken_by(rivals: list[Callable[[], object]]) -> RunTasks:
    def run_tasks(work: Callable[[Any], Any], tasks: Sequence[Any]) -> list[Any]:
        done = run_here(work, tasks)
        if rivals:
            rivals.pop()()  # commits between our tasks and our commit
        return done

    return run_tasks


@FORMATS
@pytest.mark.parametrize("most_records", [1, 2])
def test_concurrent_syncs_with_new_columns_duplicate_nothing(
    broker: penstock.Broker, topic_name: str, tmp_path: Path, kind: TableFormat, most_records: int
) -> None:
    """The rival commits only the first record, which has no new field, or adds the same column."""
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name)
    send(servers, topic_name, [Sent(b'{"n": 1}'), Sent(b'{"n": 2, "new": 1}')])
    rivals: list[Callable[[], object]] = []
    options = {"format": kind, "value": "json", "columns": "n BIGINT", "evolves": True}
    with (
        synced_table(
            broker, tmp_path, topic_name, run_tasks=_overtaken_by(rivals), options=options
        ) as table,
        synced_table(broker, tmp_path, topic_name, most_records=most_records) as other,
    ):
        rivals.append(other.sync.run_batch)
        table.drain()
        assert "planning again" in table.notes[0]
    rows = read_table(tmp_path, topic_name, kind)
    assert positions_of(rows) == [(0, 0), (0, 1)]
    assert sorted(rows.column("new").to_pylist(), key=str) == [1, None]


@FORMATS
def test_new_fields_become_columns(
    broker: penstock.Broker, topic_name: str, tmp_path: Path, kind: TableFormat
) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name)
    send(servers, topic_name, [Sent(b'{"a": 1, "s": {"x": 1}}'), Sent(None), Sent(b'{"a": 2}')])
    with synced_table(
        broker, tmp_path, topic_name, options={"format": kind, "value": "json"}
    ) as table:
        table.drain()
        values = [b'{"a": 3, "b": "new", "s": {"x": 2, "y": [true]}}', b'{"a": "not a number"}']
        send(servers, topic_name, [Sent(value) for value in values])
        table.drain()
        first, second = (set(note.split(": new columns ")[1].split(", ")) for note in table.notes)
        assert (first, second) == ({"a", "s"}, {"b", "s.*"})
    rows = sorted(
        read_table(tmp_path, topic_name, kind).to_pylist(), key=lambda row: int(row["_offset"])
    )
    assert [(row["a"], row["b"]) for row in rows] == [
        (1, None),
        (None, None),
        (2, None),
        (3, "new"),
    ]
    assert rows[3]["s"] == {"x": 2, "y": [True]}
    (letter,) = dead_letters(tmp_path, topic_name, kind)
    assert letter["_error"] == 'field a: "not a number" is not int64'


@FORMATS
def test_upsert_table_has_the_latest_record_of_each_key(
    broker: penstock.Broker, topic_name: str, tmp_path: Path, kind: TableFormat
) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name, partitions=PARTITIONS)
    send(servers, topic_name, numbered(0, 100))
    options = {"format": kind, "value": "json", "upserts": True}
    with synced_table(broker, tmp_path, topic_name, most_records=30, options=options) as table:
        table.drain()
        first = read_table(tmp_path, topic_name, kind)
        assert sorted(first.column("n").to_pylist()) == list(range(90, 100))
        gone = [Sent(None, b"key-3", 1), Sent(b'{"n": 1004}', b"key-4", 0), Sent(b'{"n": 0}', None)]
        send(servers, topic_name, gone)
        table.drain()
    rows = {row["_key"]: row["n"] for row in read_table(tmp_path, topic_name, kind).to_pylist()}
    assert rows == {b"key-%d" % n: 90 + n for n in range(10) if n != 3} | {b"key-4": 1004}
    (letter,) = dead_letters(tmp_path, topic_name, kind)
    assert letter["_error"] == "no key, but the table has one row per key"


@FORMATS
def test_compaction_keeps_rows_and_held_offsets(
    broker: penstock.Broker, topic_name: str, tmp_path: Path, kind: TableFormat
) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name, partitions=PARTITIONS)
    values = [b'{"n": %d, "country": "AT"}' % n for n in range(100)]
    send(servers, topic_name, [Sent(value, None, n % 2) for n, value in enumerate(values)])
    options = {"format": kind, "value": "json", "columns": "country STRING", "evolves": True}
    options |= {"partition_by": ("country",)}
    with synced_table(broker, tmp_path, topic_name, most_records=10, options=options) as table:
        table.drain()
        store = table.tables.store
        assert len(store.parts()) == 20
        held = store.state.held
        assert compact_table(store, run_here, RULES, least_files=2) == 20
        assert store.state.held == held
        assert [(part.rows, part.first_offset, part.last_offset) for part in store.parts()] == [
            (50, 0, 49),
            (50, 0, 49),
        ]
        assert compact_table(store, run_here, RULES, least_files=2) == 0
    rows = read_table(tmp_path, topic_name, kind)
    assert sorted(rows.column("n").to_pylist()) == list(range(100))


def test_follow_once_ends_when_tables_are_up_to_date(
    broker: penstock.Broker, topic_name: str, tmp_path: Path
) -> None:
    """Records that arrive while it runs are left for the next run: a busy topic would never end."""
    servers, names = broker.bootstrap_servers, (topic_name, f"{topic_name}-b")
    shown: list[SyncProgress] = []
    for name in names:
        create_topic(servers, name)
        send(servers, name, [Sent(b"%d" % n) for n in range(30)])

    def show(progress: SyncProgress) -> None:
        shown.append(progress)
        send(servers, progress.topic, [Sent(b"later")])

    synced = [open_synced(broker, tmp_path, name, options={"format": "parquet"}) for name in names]
    follow_options = FollowOptions(
        once=True,
        every_s=60,
        stop=threading.Event(),
        rules=SyncRules(most_records=20),
        show=show,
        note=lambda _: None,
    )
    follow([table.tables for table in synced], client_of(broker), run_here, follow_options)
    assert [progress.topic for progress in shown] == [*names, *names]
    assert [progress.rows for progress in shown] == [20, 20, 11, 11]


def test_maintenance_compacts_and_vacuums_periodically(
    broker: penstock.Broker, topic_name: str, tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name)
    now_ms = time.time_ns() // 1_000_000
    with synced_table(broker, tmp_path, topic_name, options={"format": "iceberg"}) as table:
        store = table.tables.store
        upkeep = TableMaintenance(store, run_here, RULES)
        done = []
        for number in range(16):
            send(servers, topic_name, [Sent(b"%d" % number)])
            table.drain()
            done.append(upkeep.after_commit(now_ms).compacted)
        assert done == [0] * 15 + [16]
        (part,) = store.parts()
        assert part.rows == 16
        files = set((store.location / "data").iterdir())
        assert len(files) == 17
        assert store.vacuum(DAY_MS, now_ms) == 0
        assert store.vacuum(0, now_ms + DAY_MS) == 16
        assert [str(path) for path in (store.location / "data").iterdir()] == [store.path_of(part)]


def test_sync_stops_if_unread_records_are_deleted(
    broker: penstock.Broker, topic_name: str, tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name)
    send(servers, topic_name, [Sent(b"%d" % n) for n in range(10)])
    with synced_table(broker, tmp_path, topic_name, options={"format": "parquet"}) as table:
        table.drain()
        send(servers, topic_name, [Sent(b"%d" % n) for n in range(10, 30)])
        delete_records(servers, topic_name, {0: 20})
        with pytest.raises(TableError, match=r"offsets 10 to 19 of .* are deleted"):
            table.drain()
    with synced_table(broker, tmp_path, topic_name, allows_loss=True) as table:
        table.drain()
        assert table.tables.store.state.held == {0: HeldRange(0, 30)}
    rows = read_table(tmp_path, topic_name, TableFormat.PARQUET)
    assert [offset for _, offset in positions_of(rows)] == [*range(10), *range(20, 30)]


def test_lag_counts_records_missing_in_the_table(
    broker: penstock.Broker, topic_name: str, tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name)
    send(servers, topic_name, [Sent(b"%d" % n) for n in range(10)])
    delete_records(servers, topic_name, {0: 4})
    with synced_table(
        broker, tmp_path, topic_name, most_records=2, options={"format": "parquet"}
    ) as table:
        location = tmp_path / topic_name
        assert table_status(location, client_of(broker)).lag == 6
        table.sync.run_batch()
        status = table_status(location, client_of(broker))
        assert (status.rows, status.lag) == (2, 4)
        assert status.partitions == [PartitionStatus(0, HeldRange(4, 6), 4)]
    delete_topic(servers, topic_name)
    assert table_status(location, client_of(broker)).lag is None


def test_recreated_topic_does_not_continue_in_the_old_table(
    broker: penstock.Broker, topic_name: str, tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name)
    send(servers, topic_name, [Sent(b"old")])
    with synced_table(broker, tmp_path, topic_name, options={"format": "parquet"}) as table:
        table.drain()
        delete_topic(servers, topic_name)
        create_topic(servers, topic_name)
        send(servers, topic_name, [Sent(b"new"), Sent(b"new")])
        with pytest.raises(TableError, match="was deleted and recreated"):
            table.drain()
    with pytest.raises(TableError, match="was deleted and recreated"):
        open_synced(broker, tmp_path, topic_name)


def test_table_cannot_change_its_format(
    broker: penstock.Broker, topic_name: str, tmp_path: Path
) -> None:
    create_topic(broker.bootstrap_servers, topic_name)
    with synced_table(broker, tmp_path, topic_name, options={"format": "parquet"}):
        pass
    with pytest.raises(TableError, match='format is "parquet", not "delta"'):
        open_synced(broker, tmp_path, topic_name, options={"format": "delta"})
    with pytest.raises(TableError, match="at least with --format"):
        open_synced(broker, tmp_path / "elsewhere", topic_name)


def test_topic_config_gives_the_table_its_columns(
    broker: penstock.Broker, topic_name: str, tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    wanted = {"format": "parquet", "value": "json", "schema": "price DECIMAL(9, 2), at TIMESTAMP"}
    config = {f"penstock.table.{name}": value for name, value in wanted.items()}
    create_topic(servers, topic_name, config=config)
    (tables,) = TableOptions([topic_name], None, {}).open_tables(
        TableFolder(folder=tmp_path), client_of(broker)
    )
    columns = values_of_schema(tables.spec, tables.store.schema)
    assert [str(column.type) for column in columns] == ["decimal128(9, 2)", "timestamp[us, tz=UTC]"]
    delete_topic(servers, topic_name)  # a sync without a topic would sync it too


def test_later_run_may_change_bad_values(
    broker: penstock.Broker, topic_name: str, tmp_path: Path
) -> None:
    """The table's stored spec does not change."""
    create_topic(broker.bootstrap_servers, topic_name)
    options = {"format": "parquet", "value": "json", "columns": "n INT"}
    with synced_table(broker, tmp_path, topic_name, options=options):
        pass
    requested = TableOptions([topic_name], None, {"bad_values": "fail", "value": None})
    (tables,) = requested.open_tables(TableFolder(folder=tmp_path), client_of(broker))
    assert (tables.spec.bad_values, tables.dead_letters) == (DeadLetterPolicy.FAIL, None)
    assert tables.store.spec.bad_values is DeadLetterPolicy.DEAD_LETTER


def test_bad_value_fails_the_sync_if_requested(
    broker: penstock.Broker, topic_name: str, tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name)
    send(servers, topic_name, [Sent(b"{}"), Sent(b"broken")])
    options = {"format": "parquet", "value": "json", "columns": "n INT", "bad_values": "fail"}
    with synced_table(broker, tmp_path, topic_name, options=options) as table:
        with pytest.raises(TableError, match=r"-0, offset 1: not valid JSON.*'broken'"):
            table.drain()
        assert table.tables.store.state.held == {}
    assert not list(tmp_path.rglob("*.parquet"))
