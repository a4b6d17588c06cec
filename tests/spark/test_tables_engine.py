"""Tables that follow their topics, with tasks in this process: everything but Spark is real."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest
from tests.spark.table_keeping import (
    Keeper,
    client_of,
    dead_letters,
    keep,
    places_of,
    read_table,
    run_here,
)
from tests.spark.topics import Sent, create_topic, delete_topic, send, trim

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
    """Record n has the number n in its value; some have nothing of use in theirs."""
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
def kept(*arguments: Any, **options: Any) -> Iterator[Keeper]:
    keeper = keep(*arguments, **options)
    try:
        yield keeper
    finally:
        keeper.tables.close()


@FORMATS
def test_every_record_is_a_row_or_a_dead_letter(
    broker: penstock.Broker, topic_name: str, tmp_path: Path, kind: TableFormat
) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name, partitions=PARTITIONS)
    send(servers, topic_name, numbered(0, 500, bad_every=50))
    said = {"format": kind, "value": "json", "partition_by": ("day(_timestamp)",)}
    with kept(broker, tmp_path, topic_name, most_records=200, said=said) as keeper:
        done = keeper.drain()
        assert [progress.rows for progress in done] == [200, 200, 100]
        assert [progress.lag for progress in done] == [300, 100, 0]
        send(servers, topic_name, numbered(500, 100))
        assert keeper.drain()[0].rows == 100

    rows = read_table(tmp_path, topic_name, kind)
    good = [n for n in range(600) if n >= 500 or n % 50]
    assert sorted(rows.column("n").to_pylist()) == good
    row = next(each for each in rows.to_pylist() if each["n"] == 7)
    assert (row["_partition"], row["_offset"], row["_key"]) == (1, 3, b"key-7")
    assert row["_value"] == b'{"n": 7}'
    assert [dict(each) for each in row["_headers"]] == [{"key": "number", "value": b"7"}]
    assert row["_timestamp"].timestamp() == 1_700_000_000.007
    letters = dead_letters(tmp_path, topic_name, kind)
    assert [letter["_offset"] for letter in letters] == list(range(0, 250, 25))
    assert {letter["_value"] for letter in letters} == {b"broken"}
    assert letters[0]["_error"].startswith("it is no JSON: ")


class Crash(Exception):
    """The driver dies here."""


def _die(*_: object) -> NoReturn:
    raise Crash


def _tasks_end_too_late(work: Callable[[Any], Any], tasks: Sequence[Any]) -> list[Any]:
    run_here(work, tasks)  # their files are there, and nobody is told
    raise Crash


CRASHES = ("before the tasks", "after the tasks", "before the commit", "after the commit")


@FORMATS
@pytest.mark.parametrize("where", CRASHES)
def test_a_crash_anywhere_loses_nothing_and_doubles_nothing(
    broker: penstock.Broker,
    topic_name: str,
    tmp_path: Path,
    kind: TableFormat,
    where: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also of dead letters, which are in a table of their own, and committed first."""
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name, partitions=PARTITIONS)
    send(servers, topic_name, numbered(0, 100, bad_every=10))
    said = {"format": kind, "value": "json", "columns": "n BIGINT"}
    with kept(broker, tmp_path, topic_name, most_records=60, said=said) as keeper:
        assert keeper.sync.run_batch() is not None
        with monkeypatch.context() as patch:
            if where == "before the tasks":
                patch.setattr(keeper.sync, "_run_tasks", _die)
            elif where == "after the tasks":
                patch.setattr(keeper.sync, "_run_tasks", _tasks_end_too_late)
            elif where == "before the commit":
                patch.setattr(keeper.tables.store, "commit", _die)
            else:
                patch.setattr("penstock.spark.tables.sync._progress", _die)
            with pytest.raises(Crash):
                keeper.sync.run_batch()
    with kept(broker, tmp_path, topic_name, most_records=7) as keeper:
        keeper.drain()
        paths = [part.path for part in keeper.tables.store.parts()]
    assert len(set(paths)) == len(paths)
    rows = read_table(tmp_path, topic_name, kind)
    assert sorted(rows.column("n").to_pylist()) == [n for n in range(100) if n % 10]
    assert [letter["_offset"] for letter in dead_letters(tmp_path, topic_name, kind)] == list(
        range(0, 50, 5)
    )


@FORMATS
def test_two_syncs_of_one_table_keep_it_right_together(
    broker: penstock.Broker, topic_name: str, tmp_path: Path, kind: TableFormat
) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name, partitions=PARTITIONS)
    send(servers, topic_name, numbered(0, 40))
    rivals: list[Callable[[], object]] = []
    tasks = _overtaken_by(rivals)
    said = {"format": kind, "value": "json", "columns": "n BIGINT"}
    with (
        kept(broker, tmp_path, topic_name, run_tasks=tasks, said=said) as keeper,
        kept(broker, tmp_path, topic_name, most_records=11) as other,
    ):
        rivals.append(other.drain)
        assert keeper.drain() == []
        assert "planning again" in keeper.notes[0]
    assert places_of(read_table(tmp_path, topic_name, kind)) == [
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
def test_two_syncs_of_which_one_adds_columns_double_no_row(
    broker: penstock.Broker, topic_name: str, tmp_path: Path, kind: TableFormat, most_records: int
) -> None:
    """The rival commits the first record alone, which has no new field, or adds the same column."""
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name)
    send(servers, topic_name, [Sent(b'{"n": 1}'), Sent(b'{"n": 2, "new": 1}')])
    rivals: list[Callable[[], object]] = []
    said = {"format": kind, "value": "json", "columns": "n BIGINT", "evolves": True}
    with (
        kept(broker, tmp_path, topic_name, run_tasks=_overtaken_by(rivals), said=said) as keeper,
        kept(broker, tmp_path, topic_name, most_records=most_records) as other,
    ):
        rivals.append(other.sync.run_batch)
        keeper.drain()
        assert "planning again" in keeper.notes[0]
    rows = read_table(tmp_path, topic_name, kind)
    assert places_of(rows) == [(0, 0), (0, 1)]
    assert sorted(rows.column("new").to_pylist(), key=str) == [1, None]


@FORMATS
def test_new_fields_become_columns_of_the_same_table(
    broker: penstock.Broker, topic_name: str, tmp_path: Path, kind: TableFormat
) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name)
    send(servers, topic_name, [Sent(b'{"a": 1, "s": {"x": 1}}'), Sent(None), Sent(b'{"a": 2}')])
    with kept(broker, tmp_path, topic_name, said={"format": kind, "value": "json"}) as keeper:
        keeper.drain()
        values = [b'{"a": 3, "b": "new", "s": {"x": 2, "y": [true]}}', b'{"a": "not a number"}']
        send(servers, topic_name, [Sent(value) for value in values])
        keeper.drain()
        first, second = (set(note.split(": new columns ")[1].split(", ")) for note in keeper.notes)
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
    assert letter["_error"] == 'field a: "not a number" is no int64'


@FORMATS
def test_the_latest_record_of_each_key_is_its_row(
    broker: penstock.Broker, topic_name: str, tmp_path: Path, kind: TableFormat
) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name, partitions=PARTITIONS)
    send(servers, topic_name, numbered(0, 100))
    said = {"format": kind, "value": "json", "upserts": True}
    with kept(broker, tmp_path, topic_name, most_records=30, said=said) as keeper:
        keeper.drain()
        first = read_table(tmp_path, topic_name, kind)
        assert sorted(first.column("n").to_pylist()) == list(range(90, 100))
        gone = [Sent(None, b"key-3", 1), Sent(b'{"n": 1004}', b"key-4", 0), Sent(b'{"n": 0}', None)]
        send(servers, topic_name, gone)
        keeper.drain()
    rows = {row["_key"]: row["n"] for row in read_table(tmp_path, topic_name, kind).to_pylist()}
    assert rows == {b"key-%d" % n: 90 + n for n in range(10) if n != 3} | {b"key-4": 1004}
    (letter,) = dead_letters(tmp_path, topic_name, kind)
    assert letter["_error"] == "it has no key, and the table has a row for each key"


@FORMATS
def test_small_files_become_larger_ones_with_the_same_rows(
    broker: penstock.Broker, topic_name: str, tmp_path: Path, kind: TableFormat
) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name, partitions=PARTITIONS)
    values = [b'{"n": %d, "country": "AT"}' % n for n in range(100)]
    send(servers, topic_name, [Sent(value, None, n % 2) for n, value in enumerate(values)])
    said = {"format": kind, "value": "json", "columns": "country STRING", "evolves": True}
    said |= {"partition_by": ("country",)}
    with kept(broker, tmp_path, topic_name, most_records=10, said=said) as keeper:
        keeper.drain()
        store = keeper.tables.store
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


def test_tables_are_followed_until_they_hold_what_was_there(
    broker: penstock.Broker, topic_name: str, tmp_path: Path
) -> None:
    """What comes while it runs is left for the next time: else a busy topic would never end."""
    servers, names = broker.bootstrap_servers, (topic_name, f"{topic_name}-b")
    shown: list[SyncProgress] = []
    for name in names:
        create_topic(servers, name)
        send(servers, name, [Sent(b"%d" % n) for n in range(30)])

    def show(progress: SyncProgress) -> None:
        shown.append(progress)
        send(servers, progress.topic, [Sent(b"later")])

    keepers = [keep(broker, tmp_path, name, said={"format": "parquet"}) for name in names]
    how = FollowOptions(
        once=True,
        every_s=60,
        stop=threading.Event(),
        rules=SyncRules(most_records=20),
        show=show,
        note=lambda _: None,
    )
    follow([keeper.tables for keeper in keepers], client_of(broker), run_here, how)
    assert [progress.topic for progress in shown] == [*names, *names]
    assert [progress.rows for progress in shown] == [20, 20, 11, 11]


def test_a_sync_joins_small_files_and_deletes_old_ones_now_and_then(
    broker: penstock.Broker, topic_name: str, tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name)
    now_ms = time.time_ns() // 1_000_000
    with kept(broker, tmp_path, topic_name, said={"format": "iceberg"}) as keeper:
        store = keeper.tables.store
        upkeep = TableMaintenance(store, run_here, RULES)
        done = []
        for number in range(16):
            send(servers, topic_name, [Sent(b"%d" % number)])
            keeper.drain()
            done.append(upkeep.after_commit(now_ms).compacted)
        assert done == [0] * 15 + [16]
        (part,) = store.parts()
        assert part.rows == 16
        files = set((store.location / "data").iterdir())
        assert len(files) == 17
        assert store.forget_older_than(DAY_MS, now_ms) == 0
        assert store.forget_older_than(0, now_ms + DAY_MS) == 16
        assert [str(path) for path in (store.location / "data").iterdir()] == [store.path_of(part)]


def test_what_the_topic_deleted_before_it_was_read_is_not_passed_over_in_silence(
    broker: penstock.Broker, topic_name: str, tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name)
    send(servers, topic_name, [Sent(b"%d" % n) for n in range(10)])
    with kept(broker, tmp_path, topic_name, said={"format": "parquet"}) as keeper:
        keeper.drain()
        send(servers, topic_name, [Sent(b"%d" % n) for n in range(10, 30)])
        trim(servers, topic_name, {0: 20})
        with pytest.raises(TableError, match=r"offsets 10 to 19 of .* are deleted"):
            keeper.drain()
    with kept(broker, tmp_path, topic_name, allows_loss=True) as keeper:
        keeper.drain()
        assert keeper.tables.store.state.held == {0: HeldRange(0, 30)}
    rows = read_table(tmp_path, topic_name, TableFormat.PARQUET)
    assert [offset for _, offset in places_of(rows)] == [*range(10), *range(20, 30)]


def test_the_lag_of_a_table_is_what_the_topic_still_has_and_the_table_has_not(
    broker: penstock.Broker, topic_name: str, tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name)
    send(servers, topic_name, [Sent(b"%d" % n) for n in range(10)])
    trim(servers, topic_name, {0: 4})
    with kept(broker, tmp_path, topic_name, most_records=2, said={"format": "parquet"}) as keeper:
        place = tmp_path / topic_name
        assert table_status(place, client_of(broker)).lag == 6
        keeper.sync.run_batch()
        status = table_status(place, client_of(broker))
        assert (status.rows, status.lag) == (2, 4)
        assert status.partitions == [PartitionStatus(0, HeldRange(4, 6), 4)]
    delete_topic(servers, topic_name)
    assert table_status(place, client_of(broker)).lag is None


def test_a_topic_made_anew_does_not_go_on_in_the_old_table(
    broker: penstock.Broker, topic_name: str, tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name)
    send(servers, topic_name, [Sent(b"old")])
    with kept(broker, tmp_path, topic_name, said={"format": "parquet"}) as keeper:
        keeper.drain()
        delete_topic(servers, topic_name)
        create_topic(servers, topic_name)
        send(servers, topic_name, [Sent(b"new"), Sent(b"new")])
        with pytest.raises(TableError, match="was deleted and made anew"):
            keeper.drain()
    with pytest.raises(TableError, match="was deleted and made anew"):
        keep(broker, tmp_path, topic_name)


def test_a_table_cannot_become_another_one(
    broker: penstock.Broker, topic_name: str, tmp_path: Path
) -> None:
    create_topic(broker.bootstrap_servers, topic_name)
    with kept(broker, tmp_path, topic_name, said={"format": "parquet"}):
        pass
    with pytest.raises(TableError, match='format is "parquet", not "delta"'):
        keep(broker, tmp_path, topic_name, said={"format": "delta"})
    with pytest.raises(TableError, match="at least with --format"):
        keep(broker, tmp_path / "elsewhere", topic_name)


def test_a_topic_says_itself_which_columns_its_table_has(
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
    delete_topic(servers, topic_name)  # a sync that is told no topic keeps all such


def test_a_later_run_may_say_anew_what_becomes_of_bad_values(
    broker: penstock.Broker, topic_name: str, tmp_path: Path
) -> None:
    """The table keeps what it was made with."""
    create_topic(broker.bootstrap_servers, topic_name)
    said = {"format": "parquet", "value": "json", "columns": "n INT"}
    with kept(broker, tmp_path, topic_name, said=said):
        pass
    asked = TableOptions([topic_name], None, {"bad_values": "fail", "value": None})
    (tables,) = asked.open_tables(TableFolder(folder=tmp_path), client_of(broker))
    assert (tables.spec.bad_values, tables.dead_letters) == (DeadLetterPolicy.FAIL, None)
    assert tables.store.spec.bad_values is DeadLetterPolicy.DEAD_LETTER


def test_a_bad_value_stops_the_sync_where_that_was_asked_for(
    broker: penstock.Broker, topic_name: str, tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, topic_name)
    send(servers, topic_name, [Sent(b"{}"), Sent(b"broken")])
    said = {"format": "parquet", "value": "json", "columns": "n INT", "bad_values": "fail"}
    with kept(broker, tmp_path, topic_name, said=said) as keeper:
        with pytest.raises(TableError, match=r"-0, offset 1: it is no JSON.*'broken'"):
            keeper.drain()
        assert keeper.tables.store.state.held == {}
    assert not list(tmp_path.rglob("*.parquet"))
