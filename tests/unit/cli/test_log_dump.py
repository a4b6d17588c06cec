import json
import os
import struct
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.storage.sample_logs import NOW_MS, Writer, write_sample, writing
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.protocol.batch import iter_headers
from penstock.protocol.compression import Codec
from penstock.protocol.records import Record, build_batch
from penstock.storage.transaction_index import decode_entries


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data")
    write_sample(path)
    return path


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    with writing(tmp_path) as writer:
        yield writer


def dump(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["log", "dump", *map(str, arguments)])
    assert result.exit_code == code, result.output
    assert code or not result.stderr
    return result.stdout


def dump_json(*arguments: object, code: int = 0) -> list[dict[str, Any]]:
    return [json.loads(line) for line in dump(*arguments, "--json", code=code).splitlines()]


def of_type(kind: str, objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [item for item in objects if item["type"] == kind]


def first_log(data: Path) -> Path:
    return min(data.glob("t-0/*.log"))


def test_a_batch_line_shows_the_fields_of_its_header(writer: Writer, tmp_path: Path) -> None:
    writer.epoch = 4
    writer.records(2, codec=Codec.ZSTD, timestamp_ms=NOW_MS)
    (size,) = [path.stat().st_size for path in tmp_path.glob("t-0/*.log")]
    (line,) = [x for x in dump(first_log(tmp_path)).splitlines() if x.startswith("  batch")]
    assert line == (
        f"  batch base_offset=0 last_offset=1 count=2 size={size} position=0 epoch=4 codec=zstd "
        f"base_timestamp=1800000000000 (2027-01-15T08:00:00.000Z) "
        f"max_timestamp=1800000000001 (2027-01-15T08:00:00.001Z) crc=ok"
    )


def test_every_batch_of_every_codec_is_shown(data: Path) -> None:
    batches = of_type("batch", dump_json(data))
    headers = [
        header
        for path in sorted(data.glob("t-0/*.log"))
        for _, header in iter_headers(path.read_bytes())
    ]
    assert [batch["base_offset"] for batch in batches] == [h.base_offset for h in headers]
    assert [batch["size"] for batch in batches] == [h.size for h in headers]
    assert {batch["codec"] for batch in batches} == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert all(batch["crc_ok"] for batch in batches)


def test_a_producers_fields_and_markers_are_shown(writer: Writer, tmp_path: Path) -> None:
    writer.transactional(17)
    writer.end(17, commit=False)
    writer.transactional(17)
    writer.end(17, commit=True)
    text = dump(first_log(tmp_path), "--deep")
    assert "producer_id=17 producer_epoch=0 base_sequence=2 transactional crc=ok" in text
    assert "marker=ABORT by coordinator 0" in text
    assert "marker=COMMIT by coordinator 0" in text
    markers = [x["marker"] for x in of_type("batch", dump_json(first_log(tmp_path)))]
    assert markers == [None, "ABORT by coordinator 0", None, "COMMIT by coordinator 0"]


def test_records_are_shown_as_text_if_printable_and_as_hex_otherwise(
    writer: Writer, tmp_path: Path
) -> None:
    hidden = b"\x1b[31mred"
    writer.append(
        build_batch(
            [
                Record(0, NOW_MS, b"key", "grün".encode(), (("h", b"1"), ("empty", None))),
                Record(1, NOW_MS, None, None),
                Record(2, NOW_MS, hidden, b"\xff\x00", (("\udcff", b"\x00"),)),
            ]
        )
    )
    text = dump(first_log(tmp_path), "--deep")
    lines = [line.split(") ")[1] for line in text.splitlines() if line.startswith("    record")]
    assert lines == [
        'key="key" value="grün" headers={"h": "1", "empty": null}',
        "key=null value=null",
        f"key=hex:{hidden.hex()} value=hex:ff00 headers={{hex:ff: hex:00}}",
    ]
    records = of_type("record", dump_json(first_log(tmp_path), "--deep"))
    assert (records[0]["key"], records[0]["value"]) == ("key", "grün")
    assert records[0]["headers"] == [{"key": "h", "value": "1"}, {"key": "empty", "value": None}]
    assert (records[1]["key"], records[1]["value"]) == (None, None)
    assert b64decode(records[2]["key_base64"]) == hidden
    assert "key" not in records[2]


def test_long_values_are_shortened_in_text_but_not_in_json(writer: Writer, tmp_path: Path) -> None:
    writer.records(1, value=b"v" * 1000)
    text = dump(first_log(tmp_path), "--deep")
    assert 'v"... (1000 bytes)' in text
    assert "v" * 201 not in text
    (record,) = of_type("record", dump_json(first_log(tmp_path), "--deep"))
    assert record["value"] == "v" * 1000


def test_invalid_timestamps_are_shown_as_numbers(writer: Writer, tmp_path: Path) -> None:
    writer.append(build_batch([Record(0, -1, None, b"x")]))
    assert "max_timestamp=-1 crc" in dump(first_log(tmp_path))


def test_from_offset_and_max_batches_limit_the_dump(data: Path) -> None:
    whole = of_type("batch", dump_json(data))
    start = next(i for i, batch in enumerate(whole) if i > 30 and batch["count"] > 2)
    offset = whole[start]["base_offset"] + 1
    part = of_type("batch", dump_json(data, "--from-offset", offset, "--max-batches", 5))
    assert part == whole[start : start + 5]
    records = of_type(
        "record", dump_json(data, "--from-offset", offset, "--max-batches", 1, "--deep")
    )
    assert [record["offset"] for record in records] == list(
        range(offset, whole[start]["last_offset"] + 1)
    )


def test_from_offset_accepts_every_offset_of_a_file(data: Path) -> None:
    log = sorted(data.glob("t-0/*.log"))[2]
    batches = of_type("batch", dump_json(log))
    for batch in batches:
        batches_read = of_type("batch", dump_json(log, "--from-offset", batch["last_offset"]))
        assert batches_read == batches[batches.index(batch) :]


def test_from_offset_works_with_a_wrong_index(data: Path, tmp_path: Path) -> None:
    log = sorted(data.glob("t-0/*.log"))[2]
    copy = tmp_path / log.name
    copy.write_bytes(log.read_bytes())
    copy.with_suffix(".index").write_bytes(struct.pack(">II", 1, 17))
    last = of_type("batch", dump_json(log))[-1]
    batches_read = of_type("batch", dump_json(copy, "--from-offset", last["base_offset"]))
    assert [batch["base_offset"] for batch in batches_read] == [last["base_offset"]]


def test_a_folder_is_dumped_file_by_file_in_order(data: Path) -> None:
    files = [Path(item["path"]).name for item in of_type("file", dump_json(data / "t-0"))]
    assert sorted(files) == sorted(path.name for path in (data / "t-0").iterdir())
    assert files[:2] == ["leader-epoch-checkpoint", "partition.metadata"]
    logs = [name for name in files if name.endswith(".log")]
    assert logs == sorted(logs)


def test_index_entries_are_shown_with_absolute_offsets(data: Path) -> None:
    log = sorted(data.glob("t-0/*.log"))[2]
    base, batches = int(log.stem), {b["position"]: b for b in of_type("batch", dump_json(log))}
    entries = of_type("offset-index", dump_json(log.with_suffix(".index")))
    assert entries
    for entry in entries:
        assert entry["offset"] == batches[entry["position"]]["last_offset"] >= base
    times = of_type("time-index", dump_json(log.with_suffix(".timeindex")))
    largest = max(batch["max_timestamp_ms"] for batch in batches.values())
    assert times[-1]["timestamp_ms"] == largest


def test_checkpoints_metadata_and_snapshots_are_shown(data: Path) -> None:
    objects = dump_json(data)
    assert of_type("partition-metadata", objects)[0]["topic_id"] == "AAAAAAAAAAAAAAAAAAAABw"
    assert [item["epoch"] for item in of_type("epoch", objects)] == [0, 1, 2]
    ends = {item["offset"] for item in of_type("offset", objects) if "recovery" in item["path"]}
    assert ends == {of_type("batch", objects)[-1]["last_offset"] + 1}
    aborted = [
        entry
        for path in sorted(data.glob("t-0/*.txnindex"))
        for entry in decode_entries(path.read_bytes())
    ]
    shown = of_type("aborted-transaction", objects)
    assert [item["last_offset"] for item in shown] == [entry.last_offset for entry in aborted]
    assert {item["producer_id"] for item in of_type("producer", objects)} == {1, 2, 3}


def test_a_bad_crc_is_shown_and_reported_and_the_dump_continues(data: Path, tmp_path: Path) -> None:
    log = first_log(data)
    content = bytearray(log.read_bytes())
    positions = [position for position, _ in iter_headers(bytes(content))]
    content[positions[2] - 1] ^= 1
    copy = tmp_path / log.name
    copy.write_bytes(content)
    result = CliRunner().invoke(app, ["log", "dump", "--deep", str(copy)])
    assert result.exit_code == 1
    assert f"{copy}, position {positions[1]}: the CRC" in result.stderr
    assert result.stdout.count("crc=BAD") == 1
    assert result.stdout.count("  batch ") == len(positions)


def test_a_torn_tail_is_reported_with_its_position(data: Path, tmp_path: Path) -> None:
    log = first_log(data)
    copy = tmp_path / log.name
    copy.write_bytes(log.read_bytes()[:-5])
    last = [position for position, _ in iter_headers(log.read_bytes())][-1]
    result = CliRunner().invoke(app, ["log", "dump", "--json", str(copy)])
    assert result.exit_code == 1
    assert f"{copy}, position {last}: no batch can be read" in result.stderr
    (damage,) = of_type("damage", [json.loads(line) for line in result.stdout.splitlines()])
    assert (damage["path"], damage["position"]) == (str(copy), last)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (f"{0:020d}.index", b"123"),
        (f"{0:020d}.timeindex", b"123"),
        (f"{0:020d}.txnindex", b"123"),
        (f"{0:020d}.snapshot", b"123"),
        (f"{0:020d}.log", b"123"),
        ("leader-epoch-checkpoint", b"x"),
        ("recovery-point-offset-checkpoint", b"0\n1\n"),
        ("partition.metadata", b"\xff"),
        ("meta.properties", b"nonsense"),
    ],
)
def test_damage_of_any_file_is_reported_with_its_path(
    tmp_path: Path, name: str, content: bytes
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    result = CliRunner().invoke(app, ["log", "dump", str(path)])
    assert result.exit_code == 1
    assert result.stderr.startswith(str(path))
    assert "Traceback" not in result.output


def test_a_flipped_byte_never_causes_a_traceback(data: Path, tmp_path: Path) -> None:
    for source in sorted((data / "t-0").iterdir())[:9]:
        content = source.read_bytes()
        for position in range(0, len(content), 97):
            damaged = bytearray(content)
            damaged[position] ^= 0xFF
            path = tmp_path / source.name
            path.write_bytes(damaged)
            result = CliRunner().invoke(app, ["log", "dump", "--deep", str(path)])
            assert result.exit_code in (0, 1), result.output
            assert result.exception is None or isinstance(result.exception, SystemExit)


def test_a_fifo_in_place_of_a_segment_is_reported_and_the_rest_is_shown(tmp_path: Path) -> None:
    write_sample(tmp_path)
    fifo, following = sorted(tmp_path.glob("t-0/*.log"))[1:3]
    fifo.unlink()
    os.mkfifo(fifo)
    for path in (tmp_path, fifo.parent, fifo):
        result = CliRunner().invoke(app, ["log", "dump", str(path)])
        assert (result.exit_code, result.stderr) == (
            1,
            f"{fifo}: cannot be read: is not a regular file\n",
        )
        assert (f"{following} (log, " in result.stdout) == (path is not fifo)
