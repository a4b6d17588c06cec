"""`log verify` on Kafka's own files: compacted, transactional, killed."""

import shutil
from pathlib import Path

import pytest
from tests.interop.kafka_corpus import Corpus

from penstock.storage.verify import verify_directory

pytestmark = pytest.mark.xdist_group("kafka")


@pytest.mark.parametrize("stopped", ["clean", "killed"])
def test_kafkas_files_have_no_problem(kafka_corpus: Corpus, stopped: str) -> None:
    data = getattr(kafka_corpus, stopped)
    findings = verify_directory(data.data, records=True)
    assert findings.problems == []
    written = sum(len(partition.written) for partition in data.partitions.values())
    assert findings.records > written // 4  # compaction has removed most records of one topic
    zeros = {note.path for note in findings.notes if note.kind == "zeros"}
    assert bool(zeros) == (stopped == "killed")  # a clean shutdown trims the preallocated indexes


def test_a_flipped_bit_in_kafkas_log_is_found(kafka_corpus: Corpus, tmp_path: Path) -> None:
    folder = tmp_path / "transactions-0"
    shutil.copytree(kafka_corpus.clean.directory(folder.name), folder)
    log = min(folder.glob("*.log"))
    content = bytearray(log.read_bytes())
    content[100] ^= 1
    log.write_bytes(content)
    problems = verify_directory(folder).problems
    assert [(item.kind, item.path, item.position) for item in problems] == [("crc", str(log), 0)]
