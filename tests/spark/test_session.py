"""The session preset, on the shared Spark; and its class archive, in a separate process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow
import pyspark
import pytest
from pyspark.sql import SparkSession
from tests.profile import is_long

from penstock.config.java import JavaHome
from penstock.spark.session.builder import LOW_LATENCY, preset
from penstock.spark.session.class_archive import find_archive

QUERY_TIMEOUT_S = 180
MAPS = """
import sys
from pathlib import Path
from penstock.spark.session.builder import session

config = {"spark.ui.enabled": "false", "spark.local.dir": sys.argv[1]}
spark = session("preset", master="local[2]", config=config)
print(Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/maps").read_text())
spark.stop()
"""


def test_local_session_has_as_many_shuffle_partitions_as_cores() -> None:
    assert preset("local[3]")["spark.sql.shuffle.partitions"] == "3"
    assert preset("local")["spark.sql.shuffle.partitions"] == "1"
    assert preset("local[4,2]")["spark.sql.shuffle.partitions"] == "4"
    assert int(preset("local[*]")["spark.sql.shuffle.partitions"]) >= 1


def test_cluster_keeps_its_own_shuffle_partitions() -> None:
    assert preset("spark://host:7077") == dict(LOW_LATENCY)


def test_user_settings_override_the_preset() -> None:
    settings = {
        "spark.sql.shuffle.partitions": "7",
        "spark.python.unix.domain.socket.enabled": "false",
    }
    assert preset("local[2]", settings).items() >= settings.items()


def test_streaming_with_python_workers_runs_with_the_preset(
    spark: SparkSession, tmp_path: Path
) -> None:
    settings = dict(spark.sparkContext.getConf().getAll())
    assert settings.items() >= preset("local[2]").items()
    (tmp_path / "in").mkdir()
    lines = '{"word": "a"}\n{"word": "b"}\n{"word": "a"}\n'
    (tmp_path / "in" / "lines.json").write_text(lines)
    words = spark.readStream.schema("word STRING").json(str(tmp_path / "in"))
    counted = (
        words.groupBy("word").count().mapInArrow(lambda batches: batches, "word STRING, n LONG")
    )
    writer = counted.writeStream.format("memory").queryName("counted").outputMode("complete")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(QUERY_TIMEOUT_S)
    assert sorted(map(tuple, spark.table("counted").collect())) == [("a", 2), ("b", 1)]
    checkpoint = [path.name for path in (tmp_path / "checkpoint").rglob("*")]
    assert "commits" in checkpoint
    assert [name for name in checkpoint if name.endswith(".crc")] == []


def test_workers_import_compiled_pyspark(spark: SparkSession) -> None:
    def where(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        for batch in batches:
            yield pyarrow.record_batch({"file": [pyspark.__file__] * batch.num_rows})

    ((file,),) = spark.range(1).mapInArrow(where, "file STRING").collect()
    assert ".zip" not in file


@pytest.mark.skipif(not is_long(), reason="the archive is built in `make verify`")
def test_jvm_maps_the_class_archive(java: JavaHome, tmp_path: Path) -> None:
    assert find_archive(java) is not None
    result = subprocess.run(
        [sys.executable, "-c", MAPS, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert "/spark-classes-" in result.stdout
