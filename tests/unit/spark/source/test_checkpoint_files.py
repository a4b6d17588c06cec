"""Checkpoints are rewritten for Spark's own Kafka connector."""

from pathlib import Path

import pytest

from penstock.spark.source.checkpoint_files import CheckpointUnusable, strip_checkpoint

METADATA = '{"batchWatermarkMs":0}'
OURS = '{"t":{"0":5},"@start":{"t":{"0":1}},"@topicIds":{"t":"8c4e"}}'
STRIPPED = '{"t":{"0":5}}'


def write(folder: Path, log: str, batch: int, *lines: str) -> Path:
    path = folder / log / str(batch)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["v1", *lines]))
    path.with_name(f".{batch}.crc").write_bytes(b"crc")
    return path


def test_only_our_keys_are_removed(tmp_path: Path) -> None:
    first = write(tmp_path, "offsets", 0, METADATA, OURS, "-", '"2024-01-01"')
    other = write(tmp_path, "offsets", 1, METADATA, STRIPPED, '{"logOffset": 3}', "17")
    for batch in range(2):
        write(tmp_path, "commits", batch, "{}")
    untouched = other.read_text()
    assert strip_checkpoint(tmp_path) == 1
    assert first.read_text() == f'v1\n{METADATA}\n{STRIPPED}\n-\n"2024-01-01"'
    assert other.read_text() == untouched
    assert sorted(path.name for path in first.parent.iterdir()) == [".1.crc", "0", "1"]
    assert strip_checkpoint(tmp_path) == 0


def test_batch_that_is_not_completed_keeps_its_start(tmp_path: Path) -> None:
    path = write(tmp_path, "offsets", 0, METADATA, OURS)
    with pytest.raises(CheckpointUnusable, match=r"batch 0 .* run the query once more"):
        strip_checkpoint(tmp_path)
    assert OURS in path.read_text()


def test_other_folders_and_formats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointUnusable, match="is not a checkpoint"):
        strip_checkpoint(tmp_path)
    path = write(tmp_path, "offsets", 0, METADATA, OURS)
    write(tmp_path, "commits", 0, "{}")
    path.write_text(path.read_text().replace("v1", "v9"))
    with pytest.raises(CheckpointUnusable, match="'v9'"):
        strip_checkpoint(tmp_path)
